"""Checks of the schema of a tool's arguments.

It must be a valid JSON Schema of any draft, of type object, without references outside itself. It is
rewritten in draft 2020-12, which all checks are about. Each required property must be declared, and so must
what this project's own keywords name: `fills`, and each group of `requires_one_of` at least once.
"""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from gbnf.errors import GbnfError, SchemaError
from gbnf.findings import Finding
from gbnf.schema import keywords
from gbnf.schema.metaschema import MetaschemaChecker
from gbnf.schema.pattern_matching import is_supported_pattern

if TYPE_CHECKING:
    from referencing import Registry, Resource

_ROOT_URI = "urn:args"
_DECLARES_ELSEWHERE = frozenset(
    {
        "$ref",
        "$dynamicRef",
        "patternProperties",
        "additionalProperties",
        "unevaluatedProperties",
        *keywords.IN_PLACE_APPLICATORS,
    }
)
"""Keywords beside which a required property may be declared elsewhere, or needs no declaration."""
_REFERENCES = ("$ref", "$dynamicRef")
UNDECLARED = "a required property is not declared"
_SCHEMA = "Write a table of keywords, true or false."


class ArgumentSchemaError(GbnfError):
    """The schema of a tool's arguments is invalid at `path` (keys and indices), where `value` is."""

    def __init__(self, path: keywords.SchemaPath, value: Any, problem: str, hint: str) -> None:
        self.path, self.value, self.problem, self.hint = path, value, problem, hint
        super().__init__(problem)


def checked_argument_schema(source: Any) -> dict[str, Any]:
    """Return the schema with `type = "object"` added if it declares no type.

    `source` consists of JSON values, and is rewritten in draft 2020-12. Raises ArgumentSchemaError for the
    first problem.
    """
    if not isinstance(source, dict):
        raise ArgumentSchemaError(
            (), source, "the schema of the arguments must be a table", 'Write [args] and type = "object".'
        )
    if source.get("type", "object") not in ("object", ["object"]):
        hint = 'Write type = "object", and declare the arguments below [args.properties].'
        raise ArgumentSchemaError(("type",), source["type"], "the type of the arguments must be object", hint)
    args: dict[str, Any] = {"type": "object", **source} | {"type": "object"}
    try:
        MetaschemaChecker("2020-12", frozenset({"requires_one_of"})).check(args, "")
    except SchemaError as error:
        path, value = keywords.resolve_pointer(f"#{quote(error.pointer)}", args) or ((), None)
        is_unknown_type = path[-1:] == ("type",) and isinstance(value, str)
        problem = "unknown type" if is_unknown_type else error.problem
        raise ArgumentSchemaError(path, value, problem, error.hint) from None
    refers = False
    for path, schema in keywords.walk(args):
        if isinstance(schema, dict):
            _check_annotations(path, schema)
            _check_patterns(path, schema)
            _check_required(path, schema)
            _check_requires_one_of(path, schema)
            refers = refers or any(keyword in schema for keyword in _REFERENCES)
    if refers:
        _check_references(args)
    _check_properties(args.get("properties", {}))
    return args


def _check_annotations(path: keywords.SchemaPath, schema: dict[str, Any]) -> None:
    """Check what names and describes a schema, and definitions, whether or not something refers to them."""
    for keyword in ("$id", "$anchor", "$dynamicAnchor", "title", "description"):
        text = schema.get(keyword, "")
        texts = text if keyword == "description" and isinstance(text, Mapping) else {None: text}
        for language, wording in texts.items():
            if not isinstance(wording, str):
                steps = (keyword,) if language is None else (keyword, language)
                kind = "a string or a table of languages" if keyword == "description" else "a string"
                raise ArgumentSchemaError(
                    (*path, *steps), wording, f"{keyword} must be {kind}", "Put it in quotes."
                )
    try:
        urlsplit(schema.get("$id", ""))
    except ValueError as error:
        problem = f"$id must be a URI reference: {error}"
        raise ArgumentSchemaError((*path, "$id"), schema["$id"], problem, "Correct or remove it.") from None
    for keyword in keywords.DEFINITIONS:
        definitions = schema.get(keyword, {})
        if not isinstance(definitions, Mapping):
            problem = f"{keyword} must be a table of schemas"
            raise ArgumentSchemaError((*path, keyword), definitions, problem, _SCHEMA)
        for name, definition in definitions.items():
            if not isinstance(definition, Mapping | bool):
                raise ArgumentSchemaError((*path, keyword, name), definition, "it must be a schema", _SCHEMA)


def _check_patterns(path: keywords.SchemaPath, schema: dict[str, Any]) -> None:
    """Check that the validator of calls can match each pattern."""
    patterns: list[tuple[keywords.SchemaPath, str]] = (
        [(("pattern",), schema["pattern"])] if "pattern" in schema else []
    )
    patterns += [(("patternProperties", key), key) for key in schema.get("patternProperties", ())]
    for keyword_path, pattern in patterns:
        if not is_supported_pattern(pattern):
            hint = "Close every group and bracket, and escape a literal character with two backslashes."
            raise ArgumentSchemaError((*path, *keyword_path), pattern, "invalid regular expression", hint)


def _check_required(path: keywords.SchemaPath, schema: dict[str, Any]) -> None:
    """Check that each required property is declared: a closed object cannot have any other."""
    required = schema.get("required", [])
    if isinstance(required, bool):  # as in draft 3
        hint = 'List the required names in the object: required = ["…"].'
        raise ArgumentSchemaError((*path, "required"), required, "it must be an array of names", hint)
    in_place = any(step in keywords.IN_PLACE_APPLICATORS for step in path)
    if in_place or _DECLARES_ELSEWHERE & schema.keys() or (path and "properties" not in schema):
        return
    for name in required:
        if name not in schema.get("properties", {}):
            hint = f"Declare it below properties.{name}, or remove it from required."
            raise ArgumentSchemaError((*path, "required"), name, UNDECLARED, hint)


def _check_references(args: dict[str, Any]) -> None:
    """Raise ArgumentSchemaError for a reference to no schema in `args`, and for infinite recursion."""
    from referencing import Registry, exceptions  # noqa: PLC0415  # most schemas have no references
    from referencing.jsonschema import DRAFT202012  # noqa: PLC0415  # as above

    root: Resource[Any] = DRAFT202012.create_resource(args)
    uri = root.id() or _ROOT_URI
    registry: Registry[Any] = Registry().with_resource(uri, root).crawl()
    resolvers: dict[keywords.SchemaPath, Any] = {(): registry.resolver(uri)}
    edges_from: dict[int, dict[int, keywords.SchemaPath]] = {}
    for path, schema in keywords.walk(args):
        if not isinstance(schema, Mapping):
            continue
        resolver = resolvers.get(path) or next(
            resolvers[path[:end]] for end in range(len(path) - 1, -1, -1) if path[:end] in resolvers
        )
        if path and "$id" in schema:
            resolver = resolver.in_subresource(DRAFT202012.create_resource(schema))
        resolvers[path] = resolver
        edges = edges_from.setdefault(id(schema), {})
        in_place = (
            (below, member)
            for below, member in keywords.subschemas(schema)
            if below[0] in keywords.IN_PLACE_APPLICATORS
        )
        edges |= {id(member): (*path, *below) for below, member in in_place}
        for keyword in (name for name in _REFERENCES if name in schema):
            reference = schema[keyword]
            try:
                target_schema = resolver.lookup(reference).contents
            except (exceptions.Unresolvable, exceptions.NoSuchResource, ValueError, TypeError, KeyError):
                hint = (
                    "Refer to a schema inside [args], such as #/$defs/name. Other documents are not loaded."
                )
                raise ArgumentSchemaError(
                    (*path, keyword), reference, "the reference cannot be resolved", hint
                ) from None
            if not isinstance(target_schema, Mapping | bool):
                hint = "Refer to a schema, such as #/$defs/name."
                raise ArgumentSchemaError(
                    (*path, keyword), reference, "the reference does not resolve to a schema", hint
                )
            edges[id(target_schema)] = (*path, keyword)
    try:
        TopologicalSorter(edges_from).prepare()
    except CycleError as error:
        target, source = error.args[1][:2]
        hint = "Put a property or an array between the schema and its reference to itself."
        path = edges_from[source][target]
        raise ArgumentSchemaError(path, None, "the schema is infinitely recursive", hint) from None


def _check_requires_one_of(path: keywords.SchemaPath, schema: dict[str, Any]) -> None:
    """Check `requires_one_of`: its form everywhere, its names only at the top level, where it applies."""
    if "requires_one_of" not in schema:
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


def without_undeclared(tool: str, args: dict[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    """Return the checked schema with only declared names in `requires_one_of`, and findings on the others."""
    properties, groups = args.get("properties", {}), args.get("requires_one_of", ())
    undeclared = "the property {!r} is not declared, so no call gives it"
    findings = [
        Finding(tool, f"/requires_one_of/{index}", "requires_one_of", "undeclared", undeclared.format(name))
        for index, group in enumerate(groups)
        for name in group
        if name not in properties
    ]
    declared = [[name for name in group if name in properties] for group in groups]
    return {**args, "requires_one_of": declared} if findings else args, findings


def _check_properties(properties: Mapping[str, Any]) -> None:
    for name, schema in properties.items():
        if not isinstance(schema, Mapping):
            continue
        resolved = schema.get("runtime_resolved", False)
        if not isinstance(resolved, bool):
            path: keywords.SchemaPath = ("properties", name, "runtime_resolved")
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
            problem = "a property with fills is the number of a step, so its type must be integer"
            path, hint = ("properties", name, "type"), 'Write type = "integer".'
            raise ArgumentSchemaError(path, schema.get("type"), problem, hint)
        filled = properties[target]
        types = filled.get("type", "array") if isinstance(filled, Mapping) else "array"
        if not {"array", "string"} & set([types] if isinstance(types, str) else types):
            hint = "Entries are a list or lines of text. Use a property of type array or string."
            raise ArgumentSchemaError(
                path, target, f"a property of type {types} cannot receive entries", hint
            )
