"""What a schema allows at a path, in words: `an integer ≥ 5`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gbnf.schema.applicators import resolve_pointer
from gbnf.schema.pattern_matching import pattern_matches

_ANYTHING = "any JSON value"
_MOST_VALUES = 8
_MOST_FORMS = 4
_MOST_DEPTH = 6
_MOST_SCHEMAS = 64
_LONGEST = 80
_NOUNS = {
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "boolean": "true or false",
    "null": "null",
    "array": "an array",
    "object": "an object",
}
_BOUNDS = (
    ("minimum", "≥ {}"), ("exclusiveMinimum", "> {}"), ("maximum", "≤ {}"), ("exclusiveMaximum", "< {}"),
    ("multipleOf", "that is a multiple of {}"),
)  # fmt: skip
_LENGTHS = (
    ("minLength", "at least {}", "character"), ("maxLength", "at most {}", "character"),
    ("minItems", "at least {}", "item"), ("maxItems", "at most {}", "item"),
    ("minProperties", "at least {}", "property"), ("maxProperties", "at most {}", "property"),
)  # fmt: skip
_OF = {"string": ("minLength", "maxLength"), "array": ("minItems", "maxItems"),
       "object": ("minProperties", "maxProperties")}  # fmt: skip


def schemas_at(root: Any, path: Sequence[str | int]) -> list[Any]:
    """Return the schemas that judge the value at a path, as far as properties and items declare them."""
    schemas = list(_in_place(root, root, 0))
    for step in path:
        below: list[Any] = []
        for schema in schemas:
            below += [one for child in _children(schema, step) for one in _in_place(child, root, 0)]
        schemas = below[:_MOST_SCHEMAS]
    return schemas


def property_names(root: Any, path: Sequence[str | int]) -> list[str]:
    """Return the properties that are declared for the object at a path, each once."""
    found: dict[str, None] = {}
    for schema in schemas_at(root, path):
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        if isinstance(properties, Mapping):
            found.update(dict.fromkeys(properties))
    return list(found)


def words_at(root: Any, path: Sequence[str | int]) -> str:
    """Return what may be at a path, in words."""
    schema = root
    for step in path:
        surely, perhaps = (
            [child for one in _in_place(schema, root, 0, choices=choices) for child in _children(one, step)]
            for choices in (False, True)
        )
        match surely or perhaps:
            case []:
                return _ANYTHING
            case [only]:
                schema = only
            case several:
                schema = {"allOf" if surely else "anyOf": several}
    return words(schema, root)


def words(schema: Any, root: Any, depth: int = 0) -> str:
    """Return the values that a schema allows, in words. `root`: where references resolve."""
    if schema is False:
        return "nothing"
    if not isinstance(schema, Mapping) or depth > _MOST_DEPTH:
        return _ANYTHING
    if "const" in schema:
        return _json(schema["const"])
    if isinstance(values := schema.get("enum"), list):
        shown = [_json(value) for value in values[:_MOST_VALUES]]
        shown += [f"{len(values) - _MOST_VALUES} more"] if len(values) > _MOST_VALUES else []
        return shown[0] if len(shown) == 1 else f"one of {', '.join(shown)}"
    own = _own_words(schema)
    if own:
        return own
    if (target := _target(schema, root)) is not None:
        return words(target, root, depth + 1)
    for keyword in ("anyOf", "oneOf"):
        if isinstance(members := schema.get(keyword), list) and members:
            forms = dict.fromkeys(words(member, root, depth + 1) for member in members[:_MOST_FORMS])
            more = [f"{len(members) - _MOST_FORMS} more forms"] if len(members) > _MOST_FORMS else []
            return " or ".join([*forms, *more])
    if isinstance(members := schema.get("allOf"), list) and members:
        parts = dict.fromkeys(words(member, root, depth + 1) for member in members[:_MOST_FORMS])
        parts.pop(_ANYTHING, None)
        return " and ".join(parts) or _ANYTHING
    return _ANYTHING


def _own_words(schema: Mapping[str, Any]) -> str:
    declared = schema.get("type")
    names = [declared] if isinstance(declared, str) else declared if isinstance(declared, list) else []
    if not names:
        if isinstance(schema.get("properties"), Mapping) and "$ref" not in schema:
            names = ["object"]
        elif "items" in schema or "prefixItems" in schema:
            names = ["array"]
        elif "pattern" in schema or "minLength" in schema or "maxLength" in schema:
            names = ["string"]
    return " or ".join(_noun(name, schema) for name in names if name in _NOUNS)


def _noun(name: str, schema: Mapping[str, Any]) -> str:
    details: list[str] = []
    if name in ("integer", "number"):
        details += [text.format(_json(schema[keyword])) for keyword, text in _BOUNDS if keyword in schema]
        return " ".join([_NOUNS[name], " and ".join(details)]) if details else _NOUNS[name]
    for keyword, text, unit in _LENGTHS:
        if keyword in schema and keyword in _OF.get(name, ()):
            number = schema[keyword]
            plural = unit if number == 1 else "properties" if unit == "property" else f"{unit}s"
            details.append(f"{text.format(number)} {plural}")
    noun = _NOUNS[name]
    if name == "string" and isinstance(schema.get("format"), str):
        noun = f"a {schema['format']} in a string"
    if details:
        noun += f" of {' and '.join(details)}"
    if name == "string" and isinstance(schema.get("pattern"), str):
        noun += f" that matches {_cut(schema['pattern'])}"
    if name == "array" and isinstance(schema.get("items"), Mapping):
        item = _own_words(schema["items"])
        noun += f", each item {item}" if item and len(item) < _LONGEST else ""
    return noun


def _in_place(schema: Any, root: Any, depth: int, *, choices: bool = True) -> Iterator[Any]:
    """Yield a schema, and those inside that judge the same value; with `choices`, those that may, too."""
    yield schema
    if not isinstance(schema, Mapping) or depth > _MOST_DEPTH:
        return
    if (target := _target(schema, root)) is not None:
        yield from _in_place(target, root, depth + 1, choices=choices)
    for keyword in ("allOf", "anyOf", "oneOf") if choices else ("allOf",):
        if isinstance(members := schema.get(keyword), list):
            for member in members[:_MOST_SCHEMAS]:
                yield from _in_place(member, root, depth + 1, choices=choices)
    for keyword in ("then", "else") if choices else ():
        if isinstance(member := schema.get(keyword), Mapping):
            yield from _in_place(member, root, depth + 1)


def _children(schema: Any, step: str | int) -> Iterator[Any]:
    """Yield the schemas of the value under a key or an index."""
    if not isinstance(schema, Mapping):
        return
    if isinstance(step, int):
        prefix = schema.get("prefixItems")
        if isinstance(prefix, list) and step < len(prefix):
            yield prefix[step]
        elif isinstance(items := schema.get("items"), Mapping | bool):
            yield items
        return
    properties = schema.get("properties")
    patterns = schema.get("patternProperties")
    declared = isinstance(properties, Mapping) and step in properties
    if declared:
        yield properties[step]  # type: ignore[index]  # it is a mapping
    if isinstance(patterns, Mapping):
        for pattern, member in patterns.items():
            if pattern_matches(pattern, step):
                declared = True
                yield member
    if not declared and isinstance(other := schema.get("additionalProperties"), Mapping):
        yield other


def _target(schema: Mapping[str, Any], root: Any) -> Any:
    found = resolve_pointer(schema.get("$ref"), root)
    return None if found is None else found[1]


def _json(value: Any) -> str:
    return _cut(json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
