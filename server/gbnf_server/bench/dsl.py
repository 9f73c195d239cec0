"""Suites in Python: the same tables as in TOML, made by functions, and read by the same reader.

    from gbnf_server.bench.dsl import anything, call, case, contains, suite

    SUITE = suite(
        "mine",
        case(
            "email anna@example.com that the train is late",
            calls=[call("send_messages", to=["anna@example.com"], subject=anything(), body=anything())],
            after={"messages": [{"to": ["anna@example.com"], "body": contains("train")}]},
        ),
    )

`gbnf bench --suite mine.py` takes the suites that a file defines at its top level.
"""

from __future__ import annotations

import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from gbnf.manifests import Executor
from gbnf_server.bench.cases import Suite
from gbnf_server.bench.errors import Fault, SuiteErrors
from gbnf_server.bench.suite_files import read_suite

Table: TypeAlias = dict[str, Any]


def suite(
    name: str,
    *cases: Mapping[str, Any],
    description: str = "",
    defaults: Mapping[str, Any] | None = None,
    decoys: Sequence[Mapping[str, Any]] = (),
    executors: Sequence[Executor] | None = None,
) -> Suite:
    """A suite of these cases. `executors` are the tools to choose from, the shipped ones where absent.

    Raises SuiteErrors with every fault.
    """
    content = {
        "name": name,
        "description": description,
        "defaults": dict(defaults or {}),
        "decoys": list(decoys),
        "cases": list(cases),
    }
    return read_suite(content, f"suite {name!r}", executors)


def case(query: str, **keys: Any) -> Table:
    """A case; `keys` are those of the suite format."""
    return {"query": query, **keys}


def call(name: str, /, *, optional: bool = False, **arguments: Any) -> Table:
    """An expected call, its arguments as patterns."""
    return {"name": name, "arguments": arguments, "optional": optional}


def contains(*members: Any) -> Table:
    """Text or a list that holds all of these."""
    return {"contains": list(members)}


def matches(regex: str) -> Table:
    """Text in which the regular expression is found."""
    return {"matches": regex}


def one_of(*patterns: Any) -> Table:
    """What one of these fits."""
    return {"one_of": list(patterns)}


def unordered(*members: Any) -> Table:
    """A list with these members in any order."""
    return {"unordered": list(members)}


def exactly(value: Any) -> Table:
    """This value, though it might be taken for a pattern."""
    return {"equals": value}


def maybe(pattern: Any) -> Table:
    """Nothing, or what the pattern fits."""
    return {"optional": pattern}


def anything() -> Table:
    """Whatever, or nothing."""
    return {"any": True}


def load_python(path: Path) -> tuple[Suite, ...]:
    """The suites that a Python file defines, in its order. It is executed. Raises SuiteErrors."""
    if not path.is_file():
        raise SuiteErrors(str(path), [Fault((), None, "there is no such file", "Correct the path.")])
    found = [value for value in runpy.run_path(str(path)).values() if isinstance(value, Suite)]
    if not found:
        fault = Fault(
            (), None, "it defines no suite at its top level", 'Write SUITE = suite("name", case(…)).'
        )
        raise SuiteErrors(str(path), [fault])
    return tuple(found)
