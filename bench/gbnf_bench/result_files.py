"""The result files of a bench: read, and replaced atomically."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from gbnf_bench.errors import ResultsFileError
from gbnf_server.planner.runs.run_files import RunFileError
from gbnf_server.system.errors import SetupError

_Read = TypeVar("_Read")


def replace_file(path: Path, text: str, hint: str = "use another --out") -> None:
    """Replace a file atomically. Raises SetupError with the hint."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.write_text(text, "utf-8", "replace")
        temporary.replace(path)
    except OSError as error:
        raise unwritable(path, error, hint) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def unwritable(path: Path, error: OSError, hint: str = "use another --out") -> SetupError:
    """Return the error for a results file that cannot be written."""
    reason: object = error.strerror or error
    if isinstance(error, FileExistsError | NotADirectoryError):
        reason = f"{error.filename} is in the way" if error.filename != str(path) else "a file is in its way"
    return SetupError(f"{path} can't be written: {reason}; {hint}")


def load_stored(path: Path, read: Callable[[Any], _Read], command: str) -> _Read:
    """Return `read` of the file's JSON value. Raises ResultsFileError, also if `read` refuses the value."""
    try:
        return read(json.loads(path.read_text("utf-8")))
    except OSError as error:
        raise ResultsFileError(
            f"{path} cannot be read: {error.strerror or error}. Use a JSON file from `{command}`."
        ) from None
    except (ValueError, LookupError, TypeError, AttributeError, RunFileError) as error:
        raise ResultsFileError(
            f"{path} is not a JSON file from `{command}`: {error!r}. Use a JSON file from that command."
        ) from None
