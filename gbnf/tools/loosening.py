"""Tools from what is not a manifest.

The malformed parts of their argument schemas are removed and required names declared, and reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from gbnf.findings import Finding, Kind
from gbnf.schema.drafts import as_2020_12
from gbnf.schema.keywords import APPLICATORS, SchemaPath, path_pointer, resolve_pointer
from gbnf.strict_json import nests_deeper
from gbnf.tools.argument_schema import UNDECLARED, ArgumentSchemaError, checked_argument_schema
from gbnf.tools.manifest_checks import json_like, manifest_fields
from gbnf.tools.tool import Tool

_MOST_REMOVED = 100


def loosened_argument_schema(tool: str, source: Any) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """Return the schema without what `checked_argument_schema` refuses, and a finding for each part of it.

    Where nothing is left, the schema allows any arguments. `source` consists of JSON values.
    """
    findings: list[Finding] = []
    schema = source
    while len(findings) < _MOST_REMOVED:
        while (rewritten := as_2020_12(schema)) != schema:  # what was malformed before may be rewritten now
            schema = rewritten
        try:
            return checked_argument_schema(schema), tuple(findings)
        except ArgumentSchemaError as error:
            if not error.path:
                break
            if (local := _local_reference(schema, error)) is not None:
                schema, finding = local
                findings.append(replace(finding, tool=tool))
                continue
            path, is_schema = _removable(error.path)
            declares = error.problem == UNDECLARED
            try:
                schema = _changed(
                    schema, path, declares=error.value if declares else None, is_schema=is_schema
                )
            except (LookupError, TypeError):
                break
            what = "so any value of it is accepted" if declares else "so it is ignored"
            kind: Kind = "undeclared" if declares else "loosened"
            finding = Finding(tool, path_pointer(path[:-1]), str(path[-1]), kind, f"{error.problem}, {what}")
            findings.append(finding)
    problem = "the schema of the arguments cannot be used, so any arguments are accepted"
    findings.append(Finding(tool, "", "args", "loosened", problem))
    return {"type": "object", "additionalProperties": True}, tuple(findings)


def _local_reference(schema: Any, error: ArgumentSchemaError) -> tuple[Any, Finding] | None:
    """Return the schema with a reference to a definition beside or around it, where it is not at the root."""
    if error.path[-1] != "$ref":
        return None
    for end in range(len(error.path) - 1, 0, -1):
        here = schema
        for step in error.path[:end]:
            here = here[step]
        if (local := resolve_pointer(error.value, here)) is not None and isinstance(local[1], Mapping | bool):
            target = path_pointer((*error.path[:end], *local[0]))
            reason = f"{error.value!r} is not defined at the root, so {target} is used"
            finding = Finding("", path_pointer(error.path[:-1]), "$ref", "undeclared", reason)
            return _replaced(schema, error.path, f"#{quote(target)}"), finding
    return None


def _replaced(schema: Any, path: SchemaPath, value: Any) -> Any:
    if not path:
        return value
    copy: Any = list(schema) if isinstance(schema, list) else dict(schema)
    copy[path[0]] = _replaced(schema[path[0]], path[1:], value)
    return copy


def _removable(path: SchemaPath) -> tuple[SchemaPath, bool]:
    """Return the path of the keyword that an error is about, or of a schema, and whether it is a schema."""
    end = length = 0
    while end < len(path):
        length = {"one": 1, "list": 2, "map": 2}.get(APPLICATORS.get(str(path[end]), ""), 0)
        if not length:
            return path[: end + 1], False
        end += length
    return path, end == len(path) and length == 2


def _changed(schema: Any, path: SchemaPath, *, declares: str | None, is_schema: bool) -> Any:
    """Return `schema` without a keyword, with True for a schema, or with a property that it requires."""
    step, *below = path
    copy: Any = list(schema) if isinstance(schema, list) else dict(schema)
    if below:
        copy[step] = _changed(schema[step], tuple(below), declares=declares, is_schema=is_schema)
    elif is_schema:
        copy[step] = True
    elif declares is not None:
        copy["properties"] = {**schema.get("properties", {}), declares: True}
    else:
        del copy[step]
    return copy


_MAX_DEPTH = 60
"""How deeply a schema may be nested: it is rewritten and checked recursively."""


def build_tool(
    name: Any, description: str, schema: Any, *, run: Mapping[str, Any], extra: Mapping[str, Any]
) -> Tool:
    """Return a tool. What was removed from its schema is among its findings. Raises ManifestError."""
    # too deep: None is no schema, so any arguments are accepted
    readable = None if nests_deeper(schema, _MAX_DEPTH) else json_like(schema)
    args, findings = loosened_argument_schema(str(name), readable)
    content = {"name": name, "description": description, "args": args, "run": run}
    fields = manifest_fields({**extra, **content}, None, args)
    return Tool(**fields | {"findings": (*findings, *fields["findings"])})
