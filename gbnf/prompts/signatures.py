"""JSON Schemas as short types in the style of TypeScript, for the signatures of tools.

    string   integer   "a"|"b"   string[]   {path: string, content: string}[]

Types inform the model: long enumerations and deep objects are shortened, and only grammar and validator
enforce the schema. Every schema has a type; nothing here raises an exception.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from gbnf.schema.applicators import resolve_pointer
from gbnf.tools import localized

#: Characters of one enumeration, and levels of objects and arrays, before the rest becomes "…".
ENUM_LIMIT, DEPTH_LIMIT = 240, 4

_PLAIN_NAME = re.compile(r"[\w.-]+")


def argument_list(args: Mapping[str, Any], *, types: bool) -> str:
    """Return the arguments in declared order, `?` after optional ones: `path: string, n?: integer`."""
    required = args.get("required", ())
    return ", ".join(
        _name(name) + ("" if name in required else "?") + (f": {type_text(schema, args)}" if types else "")
        for name, schema in args.get("properties", {}).items()
    )


def type_text(schema: Any, root: Mapping[str, Any]) -> str:
    """Return the type of the values that `schema` allows. `root`: the schema that references resolve in."""
    return _joined(_types(schema, root, 0))


def argument_lines(args: Mapping[str, Any], language: str) -> Iterator[tuple[str, str]]:
    """Yield each argument with its description on one line, nested ones by path: `dialog[].schema`."""
    for name, schema in args.get("properties", {}).items():
        yield from _described(_name(name), schema, language, 0)


def one_line(text: str) -> str:
    """Return a text with each run of whitespace replaced by a space."""
    return " ".join(text.split())


def _described(path: str, schema: Any, language: str, depth: int) -> Iterator[tuple[str, str]]:
    if not isinstance(schema, Mapping) or depth > DEPTH_LIMIT:
        return
    description = one_line(localized(schema.get("description"), language))
    if description:
        yield path, description
    for name, member in schema.get("properties", {}).items():
        yield from _described(f"{path}.{_name(name)}", member, language, depth + 1)
    yield from _described(f"{path}[]", schema.get("items"), language, depth + 1)


_Types: TypeAlias = tuple[list[str], str]
"""The members of a union or an intersection, and the operator between them."""


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> _Types:
    if not isinstance(schema, Mapping):
        return ["never" if schema is False else "any"], "|"
    if depth > DEPTH_LIMIT:
        return ["…"], "|"
    if "const" in schema:
        return [_json(schema["const"])], "|"
    if isinstance(schema.get("enum"), list):
        return _enumeration(schema["enum"]), "|"
    if "$ref" in schema:
        target = resolve_pointer(schema["$ref"], root)
        return _types(True if target is None else target[1], root, depth + 1)
    for keyword, sign in (("anyOf", "|"), ("oneOf", "|"), ("allOf", "&")):
        members = schema.get(keyword)
        if isinstance(members, list) and members and "properties" not in schema:
            return [_joined(_types(member, root, depth + 1)) for member in members], sign
    declared = schema.get("type", "object" if "properties" in schema else "any")
    names = declared if isinstance(declared, list) else [declared]
    return [_one_type(str(name), schema, root, depth + 1) for name in names], "|"


def _one_type(name: str, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    match name:
        case "array" if isinstance(schema.get("prefixItems"), list):
            members = (_joined(_types(member, root, depth)) for member in schema["prefixItems"])
            return f"[{', '.join(members)}]"
        case "array":
            item = _types(schema.get("items"), root, depth)
            return f"({_joined(item)})[]" if len(set(item[0])) > 1 else f"{_joined(item)}[]"
        case "object" if schema.get("properties") and depth > DEPTH_LIMIT:
            return "{…}"
        case "object" if schema.get("properties"):
            required = schema.get("required", ())
            members = (
                f"{_name(key)}{'' if key in required else '?'}: {_joined(_types(member, root, depth))}"
                for key, member in schema["properties"].items()
            )
            return "{" + ", ".join(members) + "}"
        case "object" if isinstance(schema.get("additionalProperties"), Mapping):
            return "{[key]: " + _joined(_types(schema["additionalProperties"], root, depth)) + "}"
        case _:
            return name


def _enumeration(values: list[Any]) -> list[str]:
    shown: list[str] = []
    for value in values:
        shown.append(_json(value))
        if sum(map(len, shown)) + len(shown) > ENUM_LIMIT and len(shown) > 1:
            return [*shown[:-1], "…"]
    return shown or ["never"]


def _joined(types: _Types) -> str:
    members, sign = types
    return sign.join(dict.fromkeys(members))


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else _json(name)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
