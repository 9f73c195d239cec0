"""Suites in Python: functions that create the same tables as TOML, for the same reader.

    from gbnf_bench.dsl import call, case, contains, suite

    SUITE = suite(
        "mine",
        case(
            "email anna@example.com that the train is late",
            calls=[call("send_messages", to=["anna@example.com"], subject={}, body=contains("train"))],
            after={"messages": [{"to": ["anna@example.com"], "body": contains("train")}]},
        ),
    )

`gbnf bench --suite mine.py` loads the suites that a file defines at its top level.
"""

from __future__ import annotations

import runpy
import traceback
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeAlias

from gbnf.tools import Tool
from gbnf_bench.cases import Suite
from gbnf_bench.errors import InvalidSuiteError, SuiteFieldError
from gbnf_bench.expectations import contained
from gbnf_bench.suite_files import load_suite, read_suite

Table: TypeAlias = dict[str, Any]

_OFFERED: ContextVar[Sequence[Tool] | None] = ContextVar("_OFFERED", default=None)
_LOADED: ContextVar[Path | None] = ContextVar("_LOADED", default=None)
"""The Python file that is being loaded, and the tools of its suites."""


def suite(
    name: str,
    *cases: Mapping[str, Any],
    description: str = "",
    defaults: Mapping[str, Any] | None = None,
    decoys: Sequence[Mapping[str, Any]] = (),
    tools: Sequence[Tool] | None = None,
) -> Suite:
    """Return a suite of these cases.

    `tools` are the available tools; by default those that the file is loaded for, else the bundled ones.

    Raises InvalidSuiteError with all faults.
    """
    content = {
        "name": name,
        "description": description,
        "defaults": dict(defaults or {}),
        "decoys": list(decoys),
        "cases": list(cases),
    }
    path = _LOADED.get()
    origin = f"suite {name!r}" if path is None else f"{path}, suite {name!r}"
    return read_suite(content, origin, _OFFERED.get() if tools is None else tools)


def case(query: str, **keys: Any) -> Table:
    """Return a case; `keys` are those of the suite format."""
    return {"query": query, **keys}


def call(
    name: str,
    /,
    *,
    optional: bool = False,
    optional_arguments: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> Table:
    """Return an expected call; each argument is a value or a JSON Schema."""
    table = {"name": name, "arguments": arguments, "optional": optional}
    return {**table, "optional_arguments": dict(optional_arguments)} if optional_arguments else table


def contains(*texts: str) -> Table:
    """Return the schema of texts that contain all of these, ignoring case."""
    patterns = [{"pattern": contained(text)} for text in texts]
    return patterns[0] if len(patterns) == 1 else {"allOf": patterns}


def load_suites(names: Sequence[str], tools: Sequence[Tool]) -> tuple[Suite, ...]:
    """Return the bundled suites of these names, or those in these files. Raises InvalidSuiteError."""
    return tuple(
        suite
        for name in names
        for suite in (load_python(Path(name), tools) if name.endswith(".py") else [load_suite(name, tools)])
    )


def load_python(path: Path, tools: Sequence[Tool] | None = None) -> tuple[Suite, ...]:
    """Execute a Python file, and return the suites that it defines, in order. Raises InvalidSuiteError.

    `tools` are those that cases choose from; by default the bundled ones.
    """
    if not path.is_file():
        raise InvalidSuiteError(
            str(path), [SuiteFieldError((), None, "the file does not exist", "Correct the path.")]
        )
    offered, loaded = _OFFERED.set(tools), _LOADED.set(path)
    try:
        defined = runpy.run_path(str(path))
    except InvalidSuiteError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever a person's file does wrong
        raise InvalidSuiteError(str(path), [_failure(path, error)]) from None
    finally:
        _OFFERED.reset(offered)
        _LOADED.reset(loaded)
    suites = {id(value): value for value in defined.values() if isinstance(value, Suite)}
    if not suites:
        fault = SuiteFieldError(
            (), None, "it defines no suite at its top level", 'Write SUITE = suite("name", case(…)).'
        )
        raise InvalidSuiteError(str(path), [fault])
    return tuple(suites.values())


def _failure(path: Path, error: BaseException) -> SuiteFieldError:
    """Return the error in a Python file, with its line."""
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
    ]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    where = f"line {lines[-1]}: " if lines else ""
    return SuiteFieldError((), None, f"{where}{type(error).__name__}: {error}", "Correct the file.")
