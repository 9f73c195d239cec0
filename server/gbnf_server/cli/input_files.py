"""Files that a command line names; `-` is the standard input."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import typer

from gbnf.errors import GrammarSyntaxError, InvalidArgumentError, ManifestError, SchemaError
from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf_server.cli.output import request_text
from gbnf_server.cli.python_source import python_target, python_value
from gbnf_server.system.errors import InputError

STDIN = "-"
SCHEMA_OPTION: Any = typer.Option(
    metavar="SCHEMA", help="JSON Schema file or Python type: models.py:NAME, module:NAME; -: standard input."
)
_TOOL_KEYS = frozenset({"args", "function", "inputSchema", "input_schema", "name", "parameters", "tools"})
"""Keys of tools and tool lists, which no keyword of JSON Schema is."""


def read_text(path: str | Path, what: str) -> str:
    """Return the text of a file, or of the standard input. Raises InputError, which asks for `what`."""
    try:
        content = sys.stdin.buffer.read() if str(path) == STDIN else Path(path).read_bytes()
        return content.decode("utf-8-sig")
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}. Give {what}, or - for the standard input."
        ) from None
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} is {error.object[error.start]:#04x}. Save it as UTF-8."
        raise InputError(f"{source_name(path)} is no UTF-8 text: {problem}") from None


def read_json(path: str | Path, what: str) -> Any:
    """Return the JSON value in a file, or on the standard input. Raises InputError."""
    text = read_text(path, what)
    try:
        return parse_json(text)
    except InvalidJsonError as error:
        raise InputError(f"{source_name(path)}: invalid JSON: {error}. Give {what}.") from None


@dataclass(frozen=True, slots=True)
class SchemaSource:
    """A JSON Schema, and the Python type that it describes; None if it comes from a file."""

    schema: Mapping[str, Any] | bool
    type: Any = None


def read_schema_source(path: str | Path) -> SchemaSource:
    """Return the JSON Schema in a file, on the standard input or of a Python type. Raises InputError."""
    from gbnf.schema.keywords import KEYWORDS

    if python_target(str(path)):
        return _schema_of_python(str(path))
    value = read_json(path, "a JSON Schema")
    if not isinstance(value, dict | bool):
        raise InputError(f"{source_name(path)}: a JSON Schema is an object or a boolean, got {value!r:.80}.")
    if isinstance(value, dict) and "tools" in value and not KEYWORDS & value.keys():
        raise InputError(f"{source_name(path)}: it is a list of tools, not a JSON Schema. Use --tools.")
    return SchemaSource(value)


def _schema_of_python(text: str) -> SchemaSource:
    from gbnf.schema.models import json_schema_of

    value = python_value(text)
    if isinstance(value, dict | bool):
        return SchemaSource(value)
    if isinstance(value, ModuleType):
        raise InputError(f"{text}: name a type in it, as {text}:NAME.")
    if inspect.isroutine(value):
        raise InputError(f"{text}: it is a function, not a type. Use --tools.")
    try:
        return SchemaSource(json_schema_of(value), value)
    except InvalidArgumentError as error:
        raise InputError(f"{text}: {error}") from None


def read_request(text: str, argument: str = "REQUEST") -> str:
    """Return a request, from the standard input if it is "-". Raises BadParameter if it is blank."""
    if text == STDIN:
        text = sys.stdin.buffer.read().decode(errors="surrogateescape")
    return request_text(text, argument)


def check_one_stdin(*sources: str | Path | None) -> None:
    """Raise BadParameter if several arguments are the standard input."""
    if sum(str(source) == STDIN for source in sources) > 1:
        raise typer.BadParameter("only one argument can be -: the standard input is read once")


def source_name(path: str | Path) -> str:
    """Return how messages name a file."""
    return "the standard input" if str(path) == STDIN else str(path)


def schemas_among(paths: Sequence[Path], schema: str | None) -> list[str]:
    """Return the value of --schema, and the paths of files with a JSON Schema, to judge by their content."""
    contents = {path: _json_content(path) for path in paths}
    return [*([] if schema is None else [schema])] + [
        str(path)
        for path, value in contents.items()
        if isinstance(value, bool) or (isinstance(value, dict) and not _TOOL_KEYS & value.keys())
    ]


def is_json_file(path: Path) -> bool:
    """Return whether a file contains JSON, to judge by its name or its content."""
    return path.suffix == ".json" or isinstance(_json_content(path), dict | list)


def _json_content(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes()) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None


@contextmanager
def errors_of(file: str | Path) -> Iterator[None]:
    """Raise InputError with the file's name for an error of what it contains."""
    try:
        yield
    except (GrammarSyntaxError, ManifestError, SchemaError) as error:
        raise InputError(f"{source_name(file)}: {error}") from None
