"""The leaderboard's functions as tools, with its type names converted to JSON Schema.

Its documents use Python's type names ("dict", "float", "tuple", "any") beside JSON Schema's, and sometimes
those of Java and JavaScript. `any` is any value here. Invariant: a schema is never stricter than the
document, so that no correct call is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gbnf.tools import Tool
from gbnf.tools.manifest_checks import NAME_PATTERN, RESERVED_NAMES

_TYPES: Mapping[str, str | None] = {
    "string": "string", "str": "string", "char": "string", "String": "string",
    "integer": "integer", "int": "integer", "long": "integer", "short": "integer", "byte": "integer",
    "Bigint": "integer",
    "float": "number", "number": "number", "double": "number",
    "boolean": "boolean", "bool": "boolean", "Boolean": "boolean",
    "array": "array", "list": "array", "tuple": "array", "Array": "array", "ArrayList": "array",
    "set": "array", "Set": "array", "Queue": "array", "Stack": "array",
    "dict": "object", "object": "object", "HashMap": "object", "Hashtable": "object",
    "null": "null", "none": "null",
    "any": None, "Any": None,
}  # fmt: skip
_BOUNDS: Mapping[str, tuple[type, ...]] = {
    "minimum": (int, float), "maximum": (int, float), "exclusiveMinimum": (int, float),
    "exclusiveMaximum": (int, float), "minLength": (int,), "maxLength": (int,), "minItems": (int,),
    "maxItems": (int,),
}  # fmt: skip
_OF_TYPE: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,),
    "object": (dict,), "null": (type(None),),
}  # fmt: skip


def tools_of(functions: Sequence[Mapping[str, Any]]) -> dict[str, Tool]:
    """Return the tools of an entry's functions by the functions' names, the first of two with the same name.

    A tool's name differs from the function's if a tool can't have that name. Raises ManifestError if the
    parameters are not a schema after the conversion.
    """
    tools: dict[str, Tool] = {}
    taken: set[str] = set()
    for function in functions:
        if function["name"] in tools:
            continue
        name = _tool_name(function["name"], taken)
        taken.add(name)
        tools[function["name"]] = Tool.from_mapping(
            {
                "name": name,
                "description": str(function.get("description", "")),
                "args": {"type": "object", **_schema({**function.get("parameters", {}), "type": "dict"})},
            }
        )
    return tools


def _tool_name(name: str, taken: set[str]) -> str:
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:120]
    if not re.fullmatch(NAME_PATTERN, plain) or plain in RESERVED_NAMES:
        plain = f"f_{plain}"
    number, free = 2, plain
    while free in taken:
        number, free = number + 1, f"{plain}_{number}"
    return free


def _schema(source: Any) -> dict[str, Any]:
    """Return a parameter's description as JSON Schema.

    Keywords that the leaderboard's rules do not use are omitted.
    """
    if not isinstance(source, Mapping):
        return {}
    declared = source.get("type")
    types = [_TYPES.get(str(name)) for name in (declared if isinstance(declared, list) else [declared])]
    kinds = [kind for kind in dict.fromkeys(types) if kind is not None]
    schema: dict[str, Any] = {
        key: value
        for key, value in source.items()
        if key in _BOUNDS and isinstance(value, _BOUNDS[key]) and not isinstance(value, bool)
    }
    if isinstance(source.get("description"), str):
        schema["description"] = source["description"]
    if None not in types:
        schema["type"] = kinds[0] if len(kinds) == 1 else kinds
    choices = source.get("enum")
    choices = choices if isinstance(choices, list) else []
    if fitting := [choice for choice in choices if None in types or _is_of(choice, kinds)]:
        schema["enum"] = fitting
    if "array" in kinds:
        items = source.get("items")
        if choices and not fitting and not (isinstance(items, Mapping) and "enum" in items):
            items = {**(items or {}), "enum": choices}  # the document lists the choices of the items
        if items is not None:
            schema["items"] = _schema(items)
    if "object" in kinds:
        _add_members(schema, source)
    return schema


def _is_of(value: Any, types: Sequence[str]) -> bool:
    if isinstance(value, bool):
        return "boolean" in types
    return any(isinstance(value, _OF_TYPE[kind]) for kind in types)


def _add_members(schema: dict[str, Any], source: Mapping[str, Any]) -> None:
    properties = source.get("properties")
    if isinstance(properties, Mapping):
        schema["properties"] = {name: _schema(member) for name, member in properties.items()}
    required = source.get("required")
    names = [
        name
        for name in (dict.fromkeys(required) if isinstance(required, list) else ())
        if name in schema.get("properties", {})
    ]
    if names:
        schema["required"] = names
    if isinstance(source.get("additionalProperties"), Mapping):
        schema["additionalProperties"] = _schema(source["additionalProperties"])
