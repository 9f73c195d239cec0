"""Checks of the schema of a tool's arguments.

It must be a valid JSON Schema of any draft, of type object, without references outside itself. It is
rewritten in draft 2020-12, which all checks are about. Each required property must be declared, and so must
what this project's own keywords name: `fills`, and each group of `requires_one_of` at least once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any
from urllib.parse import urljoin

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import best_match
from jsonschema_specifications import REGISTRY
from referencing import Registry, Resource, exceptions
from referencing.jsonschema import DRAFT202012

from gbnf.errors import GbnfError
from gbnf.schema.drafts import as_2020_12
from gbnf.schema.format_checks import FORMAT_CHECKER
from gbnf.schema.keywords import IN_PLACE_APPLICATORS, SchemaPath, map_subschemas, subschemas, walk
from gbnf.schema.pattern_matching import is_supported_pattern

_ROOT_URI = "urn:args"
_FORMATS = copy(FORMAT_CHECKER)
_FORMATS.checkers = {
    **_FORMATS.checkers,
    "regex": (lambda text: not isinstance(text, str) or is_supported_pattern(text), ()),
}


def _whole_metaschema() -> Any:
    """Return the metaschema of draft 2020-12 and its vocabularies as one schema.

    With references from one document to another, a check takes four times as long.
    """
    root: dict[str, Any] = Draft202012Validator.META_SCHEMA
    parts = [root, *(REGISTRY.contents(urljoin(root["$id"], part["$ref"])) for part in root["allOf"])]
    whole: dict[str, Any] = {"type": root["type"]}
    for keyword in ("properties", "$defs"):
        whole[keyword] = {name: schema for part in parts for name, schema in part.get(keyword, {}).items()}
    text = json.dumps(whole).replace('"$dynamicRef": "#meta"', '"$ref": "#"')
    return json.loads(re.sub(r'"\$ref": "[^"#]+#', '"$ref": "#', text))


_METASCHEMA = Draft202012Validator(_whole_metaschema(), format_checker=_FORMATS)
_DECLARES_ELSEWHERE = frozenset(
    {
        "$ref",
        "$dynamicRef",
        "patternProperties",
        "additionalProperties",
        "unevaluatedProperties",
        *IN_PLACE_APPLICATORS,
    }
)
"""Keywords beside which a required property may be declared elsewhere, or needs no declaration."""


class ArgumentSchemaError(GbnfError):
    """The schema of a tool's arguments is invalid at `path` (keys and indices), where `value` is."""

    def __init__(self, path: SchemaPath, value: Any, problem: str, hint: str) -> None:
        self.path, self.value, self.problem, self.hint = path, value, problem, hint
        super().__init__(problem)


def checked_argument_schema(given: Any) -> dict[str, Any]:
    """Return the schema in draft 2020-12, with `type = "object"` added if it declares no type.

    `given` consists of JSON values. Raises ArgumentSchemaError for the first problem.
    """
    if not isinstance(given, dict):
        raise ArgumentSchemaError(
            (), given, "the schema of the arguments must be a table", 'Write [args] and type = "object".'
        )
    given = as_2020_12(given)
    if given.get("type", "object") not in ("object", ["object"]):
        hint = 'Write type = "object", and declare the arguments below [args.properties].'
        raise ArgumentSchemaError(("type",), given["type"], "the type of the arguments must be object", hint)
    args: dict[str, Any] = {"type": "object", **given} | {"type": "object"}
    _check_descriptions(args)
    error = best_match(_METASCHEMA.iter_errors(_with_plain_descriptions(args)))  # it knows only strings
    if error is not None:
        raise ArgumentSchemaError(tuple(error.absolute_path), error.instance, _problem(error), _hint(error))
    for path, schema in walk(args):
        _check_required(path, schema)
        _check_requires_one_of(path, schema)
    _check_references(args)
    _check_properties(args.get("properties", {}))
    return args


def _check_descriptions(args: dict[str, Any]) -> None:
    for path, schema in walk(args):
        if not isinstance(schema, Mapping):
            continue
        texts = schema.get("description", "")
        for language, text in texts.items() if isinstance(texts, Mapping) else ():
            if not isinstance(text, str):
                problem = "a description must be a string or a table of languages"
                raise ArgumentSchemaError(
                    (*path, "description", language), text, problem, "Put the text in quotes."
                )


def _with_plain_descriptions(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    plain = dict(schema)
    if isinstance(plain.get("description"), Mapping):
        plain["description"] = ""
    return map_subschemas(plain, lambda _place, member: _with_plain_descriptions(member))


def _problem(error: ValidationError) -> str:
    match error.validator:
        case "type":
            types: Any = error.validator_value
            return f"it must be of type {types if isinstance(types, str) else ' or '.join(types)}"
        case "format" if error.validator_value == "regex":
            return "invalid regular expression"
        case "anyOf" if error.absolute_path and error.absolute_path[-1] == "type":
            return "unknown type"
        case _:
            return f"invalid JSON Schema: {error.message}"


def _hint(error: ValidationError) -> str:
    path = list(error.absolute_path)
    if path and path[-1] == "type":
        return "The types are null, boolean, integer, number, string, array and object."
    if path and path[-1] == "required" and error.validator == "type":
        return 'List the required names in the object: required = ["…"].'
    if error.validator == "format" and error.validator_value == "regex":
        return "Close every group and bracket, and escape a literal character with two backslashes."
    return "See https://json-schema.org/understanding-json-schema."


def _check_required(path: SchemaPath, schema: Any) -> None:
    """Check that each required property is declared: a closed object cannot have any other."""
    if not isinstance(schema, Mapping):
        return
    in_place = any(step in IN_PLACE_APPLICATORS for step in path)
    if in_place or _DECLARES_ELSEWHERE & schema.keys() or (path and "properties" not in schema):
        return
    for name in schema.get("required", []):
        if name not in schema.get("properties", {}):
            hint = f"Declare it below properties.{name}, or remove it from required."
            raise ArgumentSchemaError((*path, "required"), name, "a required property is not declared", hint)


def _check_references(args: dict[str, Any]) -> None:
    root: Resource[Any] = DRAFT202012.create_resource(args)
    uri = root.id() or _ROOT_URI
    registry: Registry[Any] = Registry().with_resource(uri, root).crawl()
    resolvers: dict[SchemaPath, Any] = {(): registry.resolver(uri)}
    edges_from: dict[int, list[tuple[int, SchemaPath]]] = {}
    for path, schema in walk(args):
        if not isinstance(schema, Mapping):
            continue
        resolver = resolvers.get(path) or next(
            resolvers[path[:end]] for end in range(len(path) - 1, -1, -1) if path[:end] in resolvers
        )
        if path and "$id" in schema:
            resolver = resolver.in_subresource(DRAFT202012.create_resource(schema))
        resolvers[path] = resolver
        edges = edges_from.setdefault(id(schema), [])
        edges += [
            (id(member), (*path, *at)) for at, member in subschemas(schema) if at[0] in IN_PLACE_APPLICATORS
        ]
        for keyword in schema.keys() & {"$ref", "$dynamicRef"}:
            reference = schema[keyword]
            try:
                found = resolver.lookup(reference).contents
            except (exceptions.Unresolvable, exceptions.NoSuchResource, ValueError, TypeError, KeyError):
                hint = (
                    "Refer to a schema inside [args], such as #/$defs/name. Other documents are not loaded."
                )
                raise ArgumentSchemaError(
                    (*path, keyword), reference, "the reference cannot be resolved", hint
                ) from None
            if not isinstance(found, Mapping | bool):
                hint = "Refer to a schema, such as #/$defs/name."
                raise ArgumentSchemaError(
                    (*path, keyword), reference, "the reference does not resolve to a schema", hint
                )
            edges.append((id(found), (*path, keyword)))
    for path in _cycles(edges_from):
        hint = "Put a property or an array between the schema and its reference to itself."
        raise ArgumentSchemaError(path, None, "the schema is infinitely recursive", hint)


def _cycles(edges_from: Mapping[int, list[tuple[int, SchemaPath]]]) -> Iterator[SchemaPath]:
    """Yield a path at which references and in-place applicators form a cycle."""
    finished: set[int] = set()
    for start in edges_from:
        active: dict[int, None] = {}
        pending: list[tuple[int, bool]] = [(start, False)]
        while pending:
            node, left = pending.pop()
            if left:
                active.pop(node)
                finished.add(node)
                continue
            if node in finished:
                continue
            active[node] = None
            pending.append((node, True))
            for target, path in edges_from.get(node, ()):
                if target in active:
                    yield path
                    return
                pending.append((target, False))


def _check_requires_one_of(path: SchemaPath, schema: Any) -> None:
    """Check `requires_one_of`: its form everywhere, its names only at the top level, where it applies."""
    if not isinstance(schema, Mapping) or "requires_one_of" not in schema:
        return
    groups, path = schema["requires_one_of"], (*path, "requires_one_of")
    hint = 'Write requires_one_of = [["pattern", "patterns"]]: a call gives at least one of each group.'
    if not isinstance(groups, list):
        raise ArgumentSchemaError(path, groups, "requires_one_of must be an array of arrays of names", hint)
    for index, group in enumerate(groups):
        if not isinstance(group, list) or not group or not all(isinstance(name, str) for name in group):
            raise ArgumentSchemaError(
                (*path, index), group, "each group must be a non-empty array of property names", hint
            )
        if len(path) == 1 and schema.get("properties", {}).keys().isdisjoint(group):
            declare = f"Declare one of them below properties, such as properties.{group[0]}."
            raise ArgumentSchemaError((*path, index), group, "no property of the group is declared", declare)


def undeclared_members(args: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return the names in `requires_one_of` that no property has, each with the index of its group."""
    properties = args.get("properties", {})
    groups = enumerate(args.get("requires_one_of", ()))
    return [(index, name) for index, group in groups for name in group if name not in properties]


def without_undeclared_members(args: dict[str, Any]) -> dict[str, Any]:
    """Return the checked schema with only declared names in `requires_one_of`."""
    if not undeclared_members(args):
        return args
    properties = args.get("properties", {})
    groups = [[name for name in group if name in properties] for group in args["requires_one_of"]]
    return {**args, "requires_one_of": groups}


def _check_properties(properties: Mapping[str, Any]) -> None:
    for name, schema in properties.items():
        if not isinstance(schema, Mapping):
            continue
        resolved = schema.get("runtime_resolved", False)
        if not isinstance(resolved, bool):
            path: SchemaPath = ("properties", name, "runtime_resolved")
            raise ArgumentSchemaError(
                path, resolved, "it must be true or false", "Write true or false, without quotes."
            )
        if "fills" not in schema:
            continue
        path = ("properties", name, "fills")
        target = schema["fills"]
        if not isinstance(target, str) or target not in properties or target == name:
            hint = "Name the property that receives the entries of the earlier step."
            raise ArgumentSchemaError(path, target, "fills must name another declared property", hint)
        if schema.get("type") != "integer":
            hint = 'Write type = "integer".'
            raise ArgumentSchemaError(
                ("properties", name, "type"),
                schema.get("type"),
                "a property with fills is the number of a step, so its type must be integer",
                hint,
            )
        filled = properties[target]
        types = filled.get("type", "array") if isinstance(filled, Mapping) else "array"
        if not {"array", "string"} & set([types] if isinstance(types, str) else types):
            hint = "Entries are a list or lines of text. Use a property of type array or string."
            raise ArgumentSchemaError(
                path, target, f"a property of type {types} cannot receive entries", hint
            )
