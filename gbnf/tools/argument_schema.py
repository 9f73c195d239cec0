"""What may be wrong with the schema of a tool's arguments.

It must be a valid JSON Schema 2020-12 of type object that refers to nothing outside itself, each property
that it demands must be declared, and this project's own keywords (`requires_one_of`, `fills`,
`runtime_resolved`) must name what exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import best_match
from referencing import Registry, Resource, exceptions
from referencing.jsonschema import DRAFT202012

from gbnf.errors import GbnfError
from gbnf.schema.applicators import IN_PLACE_APPLICATORS, SchemaPath, map_subschemas, subschemas, walk
from gbnf.schema.pattern_matching import is_supported_pattern

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ROOT_URI = "urn:args"
_FORMATS = copy(Draft202012Validator.FORMAT_CHECKER)
_FORMATS.checkers = {
    **_FORMATS.checkers,
    "regex": (lambda text: not isinstance(text, str) or is_supported_pattern(text), ()),
}
_METASCHEMA = Draft202012Validator(Draft202012Validator.META_SCHEMA, format_checker=_FORMATS)
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
    """A fault at `place` (keys and indices below the schema), with the value there and the way out."""

    def __init__(self, place: SchemaPath, value: Any, problem: str, hint: str) -> None:
        self.place, self.value, self.problem, self.hint = place, value, problem, hint
        super().__init__(problem)


def checked_argument_schema(given: Any) -> dict[str, Any]:
    """The schema, its `type` made explicit where it says none. Raises SchemaFault at the first fault.

    `given` consists of JSON values. The arguments of a call are an object in any case, so a missing `type` is
    no ambiguity.
    """
    if not isinstance(given, dict):
        raise ArgumentSchemaError(
            (), given, "the schema of the arguments is a table", 'Write [args] and type = "object".'
        )
    if given.get("type", "object") not in ("object", ["object"]):
        hint = 'Arguments have names: write type = "object" and declare them below [args.properties].'
        raise ArgumentSchemaError(("type",), given["type"], "the arguments must be an object", hint)
    args: dict[str, Any] = {"type": "object", **given} | {"type": "object"}
    if str(args.get("$schema", DIALECT)).rstrip("#") != DIALECT:
        hint = "Write the schema in draft 2020-12 and leave $schema out."
        raise ArgumentSchemaError(
            ("$schema",), args["$schema"], "arguments are described in draft 2020-12", hint
        )
    _check_descriptions(args)
    _check_metaschema(args)
    for place, schema in walk(args):
        _check_required(place, schema)
        _check_requires_one_of(place, schema)
    _check_references(args)
    _check_properties(args.get("properties", {}))
    return args


def _check_descriptions(args: dict[str, Any]) -> None:
    for place, schema in walk(args):
        if not isinstance(schema, Mapping):
            continue
        texts = schema.get("description", "")
        for language, text in texts.items() if isinstance(texts, Mapping) else ():
            if not isinstance(text, str):
                problem = "a description is a string or a table of languages"
                raise ArgumentSchemaError(
                    (*place, "description", language), text, problem, "Put the text in quotes."
                )


def _check_metaschema(args: dict[str, Any]) -> None:
    """Judge by the draft's metaschema, for which a description is a string only."""
    error = best_match(_METASCHEMA.iter_errors(_with_plain_descriptions(args)))
    if error is not None:
        raise ArgumentSchemaError(tuple(error.absolute_path), error.instance, _said(error), _hint(error))


def _with_plain_descriptions(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    plain = dict(schema)
    if isinstance(plain.get("description"), Mapping):
        plain["description"] = ""
    return map_subschemas(plain, lambda _place, member: _with_plain_descriptions(member))


def _said(error: ValidationError) -> str:
    match error.validator:
        case "type":
            wanted: Any = error.validator_value
            return f"it must be of type {wanted if isinstance(wanted, str) else ' or '.join(wanted)}"
        case "format" if error.validator_value == "regex":
            return "it is no regular expression"
        case "anyOf" if error.absolute_path and error.absolute_path[-1] == "type":
            return "there is no such type"
        case _:
            return f"it is no valid JSON Schema: {error.message}"


def _hint(error: ValidationError) -> str:
    path = list(error.absolute_path)
    if path and path[-1] == "type":
        return "The types are null, boolean, integer, number, string, array and object."
    if path and path[-1] == "required" and error.validator == "type":
        return 'List the required names in the object: required = ["…"].'
    if error.validator == "format" and error.validator_value == "regex":
        return "Close every group and bracket, and escape a literal sign with two backslashes."
    return "See https://json-schema.org/understanding-json-schema for what may stand here."


def _check_required(place: SchemaPath, schema: Any) -> None:
    """A closed object can't hold what it doesn't declare, so such a demand can never be met."""
    if not isinstance(schema, Mapping):
        return
    in_place = any(step in IN_PLACE_APPLICATORS for step in place)
    if in_place or _DECLARES_ELSEWHERE & schema.keys() or (place and "properties" not in schema):
        return
    for name in schema.get("required", []):
        if name not in schema.get("properties", {}):
            hint = f"Declare it below properties.{name}, or take it out of required."
            raise ArgumentSchemaError((*place, "required"), name, "a required property isn't declared", hint)


def _check_references(args: dict[str, Any]) -> None:
    root: Resource[Any] = DRAFT202012.create_resource(args)
    uri = root.id() or _ROOT_URI
    registry: Registry[Any] = Registry().with_resource(uri, root).crawl()
    resolvers: dict[SchemaPath, Any] = {(): registry.resolver(uri)}
    leads_to: dict[int, list[tuple[int, SchemaPath]]] = {}
    for place, schema in walk(args):
        if not isinstance(schema, Mapping):
            continue
        resolver = resolvers.get(place) or next(
            resolvers[place[:end]] for end in range(len(place) - 1, -1, -1) if place[:end] in resolvers
        )
        if place and "$id" in schema:
            resolver = resolver.in_subresource(DRAFT202012.create_resource(schema))
        resolvers[place] = resolver
        edges = leads_to.setdefault(id(schema), [])
        edges += [
            (id(member), (*place, *at)) for at, member in subschemas(schema) if at[0] in IN_PLACE_APPLICATORS
        ]
        for keyword in schema.keys() & {"$ref", "$dynamicRef"}:
            reference = schema[keyword]
            try:
                found = resolver.lookup(reference).contents
            except (exceptions.Unresolvable, exceptions.NoSuchResource, ValueError, TypeError, KeyError):
                hint = "Refer to a place inside [args], such as #/$defs/name; nothing is fetched."
                raise ArgumentSchemaError(
                    (*place, keyword), reference, "the reference leads nowhere", hint
                ) from None
            if not isinstance(found, Mapping | bool):
                hint = "Let it lead to a schema, such as #/$defs/name."
                raise ArgumentSchemaError(
                    (*place, keyword), reference, "the reference leads to no schema", hint
                )
            edges.append((id(found), (*place, keyword)))
    for place in _endless(leads_to):
        hint = "Put a property or an array between a schema and itself."
        raise ArgumentSchemaError(place, None, "the schema refers to itself without an end", hint)


def _endless(leads_to: Mapping[int, list[tuple[int, SchemaPath]]]) -> Iterator[SchemaPath]:
    """Where following references and in-place schemas comes back to where it began."""
    finished: set[int] = set()
    for start in leads_to:
        path: dict[int, None] = {}
        pending: list[tuple[int, bool]] = [(start, False)]
        while pending:
            node, left = pending.pop()
            if left:
                path.pop(node)
                finished.add(node)
                continue
            if node in finished:
                continue
            path[node] = None
            pending.append((node, True))
            for target, place in leads_to.get(node, ()):
                if target in path:
                    yield place
                    return
                pending.append((target, False))


def _check_requires_one_of(place: SchemaPath, schema: Any) -> None:
    """Below the top it says nothing, so there only its form is checked."""
    if not isinstance(schema, Mapping) or "requires_one_of" not in schema:
        return
    groups, place = schema["requires_one_of"], (*place, "requires_one_of")
    hint = 'Write requires_one_of = [["pattern", "patterns"]]: of each inner list at least one must be given.'
    if not isinstance(groups, list):
        raise ArgumentSchemaError(place, groups, "this is an array of arrays of names", hint)
    for index, group in enumerate(groups):
        if not isinstance(group, list) or not group or not all(isinstance(name, str) for name in group):
            raise ArgumentSchemaError(
                (*place, index), group, "this is a non-empty array of property names", hint
            )
        for name in group if len(place) == 1 else ():
            if name not in schema.get("properties", {}):
                declare = f"Declare it below properties.{name}, or take it out of the list."
                raise ArgumentSchemaError(
                    (*place, index), name, "a property named here isn't declared", declare
                )


def _check_properties(properties: Mapping[str, Any]) -> None:
    for name, schema in properties.items():
        if not isinstance(schema, Mapping):
            continue
        resolved = schema.get("runtime_resolved", False)
        if not isinstance(resolved, bool):
            place: SchemaPath = ("properties", name, "runtime_resolved")
            raise ArgumentSchemaError(
                place, resolved, "this is true or false", "Write true or false, without quotes."
            )
        if "fills" not in schema:
            continue
        place = ("properties", name, "fills")
        target = schema["fills"]
        if not isinstance(target, str) or target not in properties or target == name:
            hint = "Name the other property that takes the earlier step's entries."
            raise ArgumentSchemaError(place, target, "fills names another declared property", hint)
        if schema.get("type") != "integer":
            hint = 'Write type = "integer".'
            raise ArgumentSchemaError(
                ("properties", name, "type"),
                schema.get("type"),
                "what fills a property is a step's number",
                hint,
            )
        filled = properties[target]
        held = filled.get("type", "array") if isinstance(filled, Mapping) else "array"
        if not {"array", "string"} & set([held] if isinstance(held, str) else held):
            hint = "Entries are a list, or lines of text: fill a property of type array or string."
            raise ArgumentSchemaError(place, target, f"a property of type {held} can't hold entries", hint)
