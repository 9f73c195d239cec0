"""Results and exceptions of executors: limits, redaction, and the texts for a model and for an author."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

from gbnf.strict_json import map_json
from gbnf.surrogates import replace_lone_surrogates
from gbnf_server.executors.secrets import Secrets
from gbnf_server.system.errors import ExecutorError

MAX_DEPTH = 64
"""Maximum nesting depth of a result, itself included."""

LONGEST_TEXT = 4000
_LONGEST_TRACE = 16_000
_FRAMES = 200  # the last ones: infinite recursion has many


def too_deep(name: str) -> ExecutorError:
    """Return the error for a result that is nested too deeply."""
    return ExecutorError(
        f"'{name}' returned a result nested deeper than {MAX_DEPTH} arrays and objects. Return a flatter one."
    )


def redact_result(value: Any, secrets: Secrets) -> Any:
    """Return a result with handles for credentials, and without lone surrogates."""

    def text(part: str) -> str:
        return secrets.redact(replace_lone_surrogates(part))

    def scalar(part: Any) -> Any:
        if isinstance(part, str):
            return text(part)
        is_number = isinstance(part, int | float) and not isinstance(part, bool)
        return secrets.redact_number(part) if is_number else part

    return map_json(value, scalar, text)


def describe_failure(name: str, code: str, error: BaseException) -> str:
    """Return the message of an exception of the tool `name`; `code` is the file whose line is shown."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__, -_FRAMES) if frame.filename == code
    ]
    place = f" ({Path(code).name}, line {frames[-1].lineno})" if frames else ""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"'{name}' failed: {text[:LONGEST_TEXT]}{place}"


def format_traceback(error: BaseException) -> str:
    """Return the traceback of an exception."""
    return "".join(traceback.format_exception(error, limit=-_FRAMES))[-_LONGEST_TRACE:]
