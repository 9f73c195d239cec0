"""Descriptions of tools for a model, in several styles, and declarations of tools for chat templates.

Which style is best depends on the model (`gbnf tune --style` measures each):

    minimal      find_files(base_path, pattern?)
    default      the signature with types, the description, a line per described argument
    skeleton     the default, and the call as JSON with a placeholder for each value
    placeholder  the description and the call as JSON with a placeholder for every argument, no signature
    verbose      every argument with its type, whether it is required, its values, bounds and default

Invariants: placeholders are `<name: type>` and never sample content, which small models copy; a skeleton is
valid JSON; nothing that the runtime fills in appears. Texts for models must not change: the demonstration
model is trained on them. Types are in the style of TypeScript, `{path: string, content: string}[]`: they
inform the model, and only grammar and validator enforce the schema. Every schema has a type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from gbnf.errors import InvalidArgumentError
from gbnf.schema.keywords import map_subschemas, resolve_pointer
from gbnf.strict_json import json_of
from gbnf.tools import Tool, localized
from gbnf.tools.near_misses import OWN_KEYWORDS
from gbnf.tools.prerequisites import ANY_TOOL
from gbnf.tools.tool import supported_language

PromptStyle: TypeAlias = Literal["default", "full", "minimal", "skeleton", "placeholder", "verbose"]
"""A style of descriptions. "full" is an alias of "default"."""

_WORDS = {
    "en": {
        "one_of": "needs at least one of {}",
        "call": "Call",
        "required": "required",
        "optional": "optional",
        "default": "default {}",
        "tool": "Tool",
        "arguments": "Arguments",
        "none": "Arguments: none",
        "fills": "takes the number of an earlier step",
        "after": "only after {}",
        "terminal": "ends the work",
    },
    "it": {
        "one_of": "serve almeno uno tra {}",
        "call": "Chiamata",
        "required": "obbligatorio",
        "optional": "facoltativo",
        "default": "se manca {}",
        "tool": "Strumento",
        "arguments": "Argomenti",
        "none": "Argomenti: nessuno",
        "fills": "prende il numero di un passo precedente",
        "after": "solo dopo {}",
        "terminal": "conclude il lavoro",
    },
}
_BOUNDS = (
    ("minimum", "≥ {}"), ("exclusiveMinimum", "> {}"), ("maximum", "≤ {}"), ("exclusiveMaximum", "< {}"),
    ("minLength", "≥ {} chars"), ("maxLength", "≤ {} chars"), ("minItems", "≥ {} items"),
    ("maxItems", "≤ {} items"), ("format", "{}"), ("pattern", "/{}/"),
)  # fmt: skip
_WRITTEN_FORMATS = {"date": "YYYY-MM-DD", "time": "HH:MM:SS", "date-time": "YYYY-MM-DDTHH:MM:SSZ"}
_LONGEST_TYPE = 250  # characters
_LONGEST_FACT = 60  # characters: a pattern that no model reads
_SENTENCE = re.compile(r"(?:(?![.!?]\s|\n).){0,160}[.!?]?")  # the first one, or its beginning


def describe_tool(tool: Tool, style: PromptStyle, language: str) -> str:
    """Describe a tool in a style, in `language` if the manifest has it, otherwise in English.

    Raises InvalidArgumentError for an unknown style.
    """
    if style not in _STYLE_WRITERS:
        raise InvalidArgumentError(f"unknown prompt style {style!r}. Use one of {', '.join(_STYLE_WRITERS)}.")
    text = "\n".join(_STYLE_WRITERS[style](tool, supported_language(language, _WORDS)))
    words = _WORDS[supported_language(language, _WORDS)]
    after = [name for name in tool.offer.after if name != ANY_TOOL]
    order = [words["after"].format(", ".join(after))] if after else []
    order += [words["terminal"]] if tool.offer.terminal else []
    return text + (("  " if style == "minimal" else "\n  ") + "; ".join(order) if order else "")


def call_skeleton(tool: Tool, *, optional: str | None = None) -> str:
    """Return a call of the tool as JSON on one line, with a placeholder for each value.

    `{"name": "find_files", "arguments": {"base_path": "<base_path: string>"}}`: the required arguments, and
    the first of each group of `requires_one_of`. `optional`: a word that marks the others; None: without
    them.
    """
    args = tool.model_args()
    properties = args.get("properties", {})
    needed = {*args.get("required", ()), *(group[0] for group in args.get("requires_one_of", ()) if group)}
    values = {
        name: _placeholder(name if name in needed else f"{optional} {name}", schema, args)
        for name, schema in properties.items()
        if optional or name in needed
    }
    return json_of({"name": tool.name, "arguments": values})


def value_bounds(schema: Mapping[str, Any]) -> list[str]:
    """Return the bounds that a schema itself declares for a value: `≥ 5`, `≤ 20 items`, `/^a/`."""
    return [
        text.format(schema[keyword])
        for keyword, text in _BOUNDS
        if keyword in schema and len(str(schema[keyword])) <= _LONGEST_FACT
    ]


def one_of_lines(tool: Tool, language: str) -> Iterator[str]:
    """Yield a line for each group of `requires_one_of`."""
    groups: Sequence[Sequence[str]] = tool.model_args().get("requires_one_of", ())
    for group in groups:
        yield _WORDS[supported_language(language, _WORDS)]["one_of"].format(", ".join(group))


def _minimal(tool: Tool, _language: str) -> Iterator[str]:
    yield f"{tool.name}({argument_list(tool.model_args(), types=False)})"


def _default(tool: Tool, language: str) -> Iterator[str]:
    args = tool.model_args()
    yield f"{tool.name}({argument_list(args, types=True)})"
    if description := one_line(tool.description(language)):
        yield f"  {description}"
    yield from (f"  {name}: {text}" for name, text in argument_lines(args, language))
    yield from (f"  {line}" for line in one_of_lines(tool, language))


def _skeleton(tool: Tool, language: str) -> Iterator[str]:
    yield from _default(tool, language)
    yield f"  {_WORDS[language]['call']}: {call_skeleton(tool)}"


def _placeholders(tool: Tool, language: str) -> Iterator[str]:
    description = one_line(tool.description(language))
    yield f"{tool.name}: {description}" if description else tool.name
    yield f"  {call_skeleton(tool, optional=_WORDS[language]['optional'])}"
    yield from (f"  {line}" for line in one_of_lines(tool, language))


def _verbose(tool: Tool, language: str) -> Iterator[str]:
    words = _WORDS[language]
    args = tool.model_args()
    properties: Mapping[str, Any] = args.get("properties", {})
    yield f"{words['tool']}: {tool.name}"
    if description := one_line(tool.description(language)):
        yield f"  {description}"
    yield f"  {words['arguments']}:" if properties else f"  {words['none']}"
    below = dict(argument_lines(args, language))
    for name, schema in properties.items():
        declared = schema if isinstance(schema, Mapping) else {}
        facts = [
            type_text(schema, args),
            words["required" if name in args.get("required", ()) else "optional"],
        ]
        facts += value_bounds(declared)
        facts += [words["default"].format(json_of(declared["default"]))] if "default" in declared else []
        facts += [words["fills"]] if name in tool.step_references else []
        described = one_line(localized(declared.get("description"), language))
        yield f"  - {name} ({', '.join(facts)}){': ' + described if described else ''}"
        inner = ((path, text) for path, text in below.items() if path.startswith((f"{name}.", f"{name}[")))
        yield from (f"    - {path}: {text}" for path, text in inner)
    yield from (f"  {line}" for line in one_of_lines(tool, language))
    yield f"  {words['call']}: {call_skeleton(tool)}"


def field_placeholder(name: str, schema: Any, root: Mapping[str, Any], language: str) -> str:
    """Return the placeholder of a line, for a list of an item: `<best: integer, 1 to 3; the best poem>`."""
    declared = schema if isinstance(schema, Mapping) else {}
    item = declared.get("items") if declared.get("type") == "array" else declared
    facts = item if isinstance(item, Mapping) else {}
    kind = (
        type_text(True if item is None else item, root).replace('"', "").replace("boolean", "true or false")
    )
    bounds = value_bounds(facts)
    if {"minimum", "maximum"} <= facts.keys():
        bounds = [f"{facts['minimum']} to {facts['maximum']}"]
    bounds = [_WRITTEN_FORMATS.get(bound, bound) for bound in bounds]
    described = one_line(localized(declared.get("description"), language))
    text = ", ".join([*([kind] if kind != "any" and len(kind) <= _LONGEST_TYPE else []), *bounds])
    return f"<{name}: {'; '.join(filter(None, (text, described)))}>"


def _placeholder(name: str, schema: Any, root: Mapping[str, Any]) -> Any:
    """Return the placeholder of a value: text in angle brackets, in a list if the value is a list."""
    if isinstance(schema, Mapping) and schema.get("type") == "array":
        return [_placeholder(name, schema.get("items"), root)]
    if isinstance(schema, Mapping) and schema.get("type") == "object" and schema.get("properties"):
        return {key: _placeholder(key, member, root) for key, member in schema["properties"].items()}
    kind = type_text(schema, root).replace('"', "")
    return f"<{name}>" if kind == "any" or len(kind) > _LONGEST_TYPE else f"<{name}: {kind}>"


def copied_placeholder(value: Any, name: str = "") -> str:
    """Return a text of `value` that is a placeholder of a skeleton, "" if there is none. `name`: its key."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*<(?:\w+ )?([\w.-]+): [^<>]*>\s*", value) if name else None
        return value if match and match[1] == name else ""
    keyed = isinstance(value, Mapping)
    members = value.items() if keyed else [(name, item) for item in value] if isinstance(value, list) else ()
    return next((text for key, member in members if (text := copied_placeholder(member, key))), "")


_STYLE_WRITERS: Mapping[str, Callable[[Tool, str], Iterator[str]]] = {
    "default": _default,
    "full": _default,
    "minimal": _minimal,
    "skeleton": _skeleton,
    "placeholder": _placeholders,
    "verbose": _verbose,
}
PROMPT_STYLES: tuple[PromptStyle, ...] = ("minimal", "default", "skeleton", "placeholder", "verbose")
"""Every style without aliases, the shortest first."""


_GUIDING = frozenset({
    "type", "description", "properties", "required", "items", "prefixItems", "additionalProperties", "enum",
    "const", "default", "format", "anyOf", "oneOf", "$ref", "$defs",
})  # fmt: skip
"""What a small model reads of a schema. The grammar enforces all of it."""


def declare_tool(
    tool: Tool,
    *,
    language: str = "en",
    guiding: bool = False,
    described: bool = True,
    patterns: bool = True,
) -> dict[str, Any]:
    """Return `{"type": "function", "function": {"name", "description", "parameters"}}`.

    `guiding`: without what only a grammar reads: patterns, bounds, which arguments need others, and optional
    members of objects. `described`: with the descriptions of arguments and the items of arrays. `patterns`:
    with the long patterns of values that have a description, which a grammar enforces unread.
    """
    args = tool.model_args()
    if guiding:
        parameters = _guiding(plain_schema(args, language), args.get("properties", {}), described=described)
    else:
        plain = plain_schema(args, language)
        parameters = with_groups(plain if patterns else _without_long_patterns(plain), args)
    if "properties" not in parameters:  # many templates iterate over them
        parameters = {"type": "object", "properties": {}, **parameters}
    function = {"name": tool.name, "description": tool.description(language), "parameters": parameters}
    return {"type": "function", "function": function}


def declare_purpose(tool: Tool, *, language: str = "en") -> dict[str, Any]:
    """Return the declaration of a tool without its arguments, with the first sentence of its description."""
    sentence = _SENTENCE.match(tool.description(language))
    assert sentence is not None
    return {"type": "function", "function": {"name": tool.name, "description": sentence[0]}}


def _guiding(schema: Any, shown: Collection[str] | None = None, *, described: bool) -> Any:
    """Return what a small model reads of a schema.

    `shown`: the properties that are kept; by default those that are required, or all if none is.
    """
    if not isinstance(schema, Mapping):
        return schema
    brief = {key: value for key, value in schema.items() if key in _GUIDING}
    if brief.get("additionalProperties") is False:
        del brief["additionalProperties"]
    if not described and {"type", "enum", "anyOf", "$ref"} & brief.keys():
        brief = {key: value for key, value in brief.items() if key not in {"description", "items"}}
    if isinstance(properties := brief.get("properties"), Mapping):
        required = [name for name in brief.get("required", ()) if shown is None or name in shown]
        shown = shown if shown is not None else required or properties.keys()
        brief["properties"] = {name: properties[name] for name in properties if name in shown}
        brief["required"] = required
    if not brief.get("required", True):
        del brief["required"]
    return map_subschemas(brief, lambda _path, member: _guiding(member, described=described))


def _without_long_patterns(schema: Any, *, in_described: bool = False) -> Any:
    """Return a schema without the patterns that no model reads, where a description is in their place.

    `in_described`: that of the array which a value is in.
    """
    if not isinstance(schema, Mapping):
        return schema
    is_described = in_described or bool(schema.get("description"))
    is_unread = is_described and len(str(schema.get("pattern", ""))) > _LONGEST_FACT
    others = {key: value for key, value in schema.items() if not (key == "pattern" and is_unread)}
    is_array = is_described and "properties" not in schema
    return map_subschemas(others, lambda _path, member: _without_long_patterns(member, in_described=is_array))


def plain_schema(schema: Any, language: str) -> Any:
    """Return a schema without the keywords of this project, with its descriptions in one language."""
    if not isinstance(schema, Mapping):
        return schema
    plain = {key: value for key, value in schema.items() if key not in OWN_KEYWORDS}
    if isinstance(plain.get("description"), Mapping):
        plain["description"] = localized(plain["description"], language)
    return map_subschemas(plain, lambda _path, member: plain_schema(member, language))


def with_groups(schema: dict[str, Any], args: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with the groups of `args["requires_one_of"]` in standard keywords."""
    groups = args.get("requires_one_of")
    if not groups:
        return schema
    needed = [{"anyOf": [{"required": [name]} for name in group]} for group in groups]
    return {**schema, "allOf": [*schema.get("allOf", ()), *needed]}


ENUM_LIMIT, DEPTH_LIMIT = 240, 4
"""Characters of one enumeration, and levels of objects and arrays, before the rest becomes "…"."""

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
    """Return the types of a schema, and the sign that joins them."""
    if not isinstance(schema, Mapping):
        return ["never" if schema is False else "any"], "|"
    if depth > DEPTH_LIMIT:
        return ["…"], "|"
    if "const" in schema:
        return [json_of(schema["const"])], "|"
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
        shown.append(json_of(value))
        if sum(map(len, shown)) + len(shown) > ENUM_LIMIT and len(shown) > 1:
            return [*shown[:-1], "…"]
    return shown or ["never"]


def _joined(types: _Types) -> str:
    members, sign = types
    return sign.join(dict.fromkeys(members))


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else json_of(name)
