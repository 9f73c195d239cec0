"""Argument schemas from elsewhere, of which malformed parts are removed and reported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gbnf.findings import Finding
from gbnf.schema.applicators import APPLICATORS, SchemaPath
from gbnf.schema.drafts import as_2020_12
from gbnf.schema.metaschema import child_pointer
from gbnf.tools.argument_schema import ArgumentSchemaError, checked_argument_schema

_MOST_REMOVED = 100


def loosened_argument_schema(tool: str, given: Any) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """Return the schema without what `checked_argument_schema` refuses, and a finding for each part of it.

    Where nothing is left, the schema allows any arguments. `given` consists of JSON values.
    """
    findings: list[Finding] = []
    schema = as_2020_12(given)
    while len(findings) < _MOST_REMOVED:
        try:
            return checked_argument_schema(schema), tuple(findings)
        except ArgumentSchemaError as error:
            if not error.path:
                break
            path, is_schema = _removable(error.path)
            try:
                schema = _without(schema, path, error.value, is_schema=is_schema)
            except (LookupError, TypeError):
                break
            reason = f"{error.problem}, so it is ignored"
            findings.append(Finding(tool, _pointer(path[:-1]), str(path[-1]), "loosened", reason))
    problem = "the schema of the arguments cannot be used, so any arguments are accepted"
    findings.append(Finding(tool, "", "args", "loosened", problem))
    return {"type": "object", "additionalProperties": True}, tuple(findings)


def _pointer(path: Iterable[str | int]) -> str:
    pointer = ""
    for step in path:
        pointer = child_pointer(pointer, step)
    return pointer


def _removable(path: SchemaPath) -> tuple[SchemaPath, bool]:
    """Return the path of the keyword that an error is about, or of a schema, and whether it is a schema."""
    end = length = 0
    while end < len(path):
        length = {"one": 1, "list": 2, "map": 2}.get(APPLICATORS.get(str(path[end]), ""), 0)
        if not length:
            return path[: end + 1], False
        end += length
    return path, end == len(path) and length == 2


def _without(schema: Any, path: SchemaPath, value: Any, *, is_schema: bool) -> Any:
    """Return `schema` without a keyword, or the name `value` of `required`; with True for a schema."""
    step, *below = path
    copy: Any = list(schema) if isinstance(schema, list) else dict(schema)
    if below:
        copy[step] = _without(schema[step], tuple(below), value, is_schema=is_schema)
    elif is_schema:
        copy[step] = True
    elif step == "required" and isinstance(schema[step], list) and value in schema[step]:
        copy[step] = [name for name in schema[step] if name != value]
    else:
        del copy[step]
    return copy
