"""The schemas by which a tool's arguments are validated, and the properties that they declare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gbnf.schema.closing import InPlaceSchemas, close_arguments
from gbnf.schema.keywords import CONDITIONS, map_subschemas
from gbnf.tools.tool import is_runtime_resolved, without_properties

FILLED_BY_RUNTIME: dict[str, Any] = {"runtime_resolved": True, "not": {}}
"""The schema of a property that the runtime fills in: no value is valid."""


def validation_schema(args: Mapping[str, Any], without: frozenset[str], *, closed: bool) -> dict[str, Any]:
    """Return `args` for the validator: without the top-level properties in `without`, closed if `closed`.

    They are judged in draft 2020-12, in which tools are rewritten, whatever draft they name.
    """
    args = {keyword: value for keyword, value in args.items() if keyword != "$schema"}
    prepared: dict[str, Any] = _prepared(without_properties(args, without) if without else args)
    return close_arguments(prepared) if closed else prepared


def declared_names(schema: Any, root: Mapping[str, Any]) -> list[str]:
    """Return every property that `schema` allows a model to give, its own and those of its references."""
    names: dict[str, None] = {}
    for here in InPlaceSchemas(root).of(schema, branches=True):
        names |= {
            name: None for name, member in here.get("properties", {}).items() if member != FILLED_BY_RUNTIME
        }
    return list(names)


def _prepared(schema: Any) -> Any:
    """Return `schema` with what the runtime fills in neither allowed nor required."""
    if not isinstance(schema, Mapping):
        return schema
    if is_runtime_resolved(schema):
        return FILLED_BY_RUNTIME
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    names = [name for name in required if not is_runtime_resolved(properties.get(name))]
    if len(names) < len(required):
        schema = {**schema, "required": names}
    return map_subschemas(schema, lambda path, member: member if path[0] in CONDITIONS else _prepared(member))
