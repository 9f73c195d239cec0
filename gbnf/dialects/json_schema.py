"""Build one JSON Schema of a pool: a discriminated union of calls, for servers that accept no grammar.

    {"anyOf": [{"type": "object", "properties": {"name": {"const": "find_files"}, "arguments": {…}}, …}, …]}

Each branch binds one tool's name to that tool's arguments.

Invariants:

- A call is valid against this schema exactly if `validate_call` accepts it. Key order and layout are up to
  the server.
- Simple converters to grammars handle the schema: `requires_one_of` becomes more branches rather than an
  `allOf`, which llama.cpp's own converter ignores beside `properties`, and annotations are left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gbnf.calls.validation.argument_schemas import validation_schema
from gbnf.compiler.pool import no_callable_tool, pool_tools
from gbnf.errors import SchemaError, clip
from gbnf.schema.document import with_local_references
from gbnf.schema.drafts import DIALECT
from gbnf.schema.keywords import KEYWORDS, map_subschemas, walk
from gbnf.schema_caches import schema_cache
from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf.tools import Tool
from gbnf.tools.tool import offered_args

_KEPT = KEYWORDS | {"$defs", "definitions"}
_NAMES = frozenset({"$id", "$anchor", "$dynamicAnchor", "$dynamicRef"})
_MOST_BRANCHES = 16  # of one tool; more choices between required arguments become an `allOf`
_SHOWN = 200


def call_schema(
    tools: Sequence[Tool],
    *,
    final_answer: bool = False,
    ask_user: bool = False,
    steps: Sequence[int] = (),
    closed: bool = True,
) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the calls that `compile_pool` compiles; same arguments.

    The targets of a tool's own references are in `$defs`, under the tool's name. The same arguments give the
    same dict: treat it as immutable.

    References by `$id`, `$anchor` and the like become JSON Pointers. Raises PoolError if no tool is left or
    two have the same name, SchemaError for a `$schema`, other than 2020-12 at the top, and for a reference
    that no pointer can replace (`with_local_references`).
    """
    return _call_schema(pool_tools(tools, final_answer, ask_user), tuple(steps), closed)


@schema_cache(maxsize=256)
def _call_schema(tools: tuple[Tool, ...], steps: tuple[int, ...], closed: bool) -> dict[str, Any]:
    branches: list[dict[str, Any]] = []
    definitions: dict[str, Any] = {}
    for tool in tools:
        offered = offered_args(tool, steps)
        if offered is None:
            continue
        arguments = _arguments(tool, offered, steps, closed=closed)
        if any("$ref" in schema for _, schema in walk(arguments) if isinstance(schema, Mapping)):
            definitions[tool.name] = arguments
        branches += [
            {
                "type": "object",
                "properties": {"name": {"const": tool.name}, "arguments": chosen},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for chosen in _choices(offered, arguments)
        ]
    if not branches:
        raise no_callable_tool(tools)
    union = branches[0] if len(branches) == 1 else {"anyOf": branches}
    return {**union, "$defs": definitions} if definitions else union


def schema_violation(schema: Mapping[str, Any], text: str) -> str | None:
    """Return why a complete answer is not valid against the schema, None if it is."""
    from gbnf.schema.validators import violation  # noqa: PLC0415  # only answers without a grammar are judged

    try:
        value = parse_json(text)
    except InvalidJsonError as fault:
        return f"the text is not a JSON value ({fault})"
    return clip(violation(schema, value), _SHOWN) or None


def _arguments(
    tool: Tool, offered: Mapping[str, Any], steps: tuple[int, ...], *, closed: bool
) -> dict[str, Any]:
    """Return the schema of one tool's arguments, its references pointing into `$defs`."""
    if str(offered.get("$schema", "")).rstrip("#") == DIALECT:  # the dialect of the joint schema
        offered = {keyword: value for keyword, value in offered.items() if keyword != "$schema"}
    for path, inside in walk(offered):
        if isinstance(inside, Mapping) and "$schema" in inside:
            raise SchemaError(
                "/".join(["", *map(str, path), "$schema"]),
                f"the arguments of {tool.name!r} use $schema, which a joint schema cannot have",
                "Write the schema in JSON Schema 2020-12.",
            )
    if any(
        isinstance(inside, Mapping) and not inside.keys().isdisjoint(_NAMES) for _, inside in walk(offered)
    ):
        offered = with_local_references(offered)
    schema: dict[str, Any] = validation_schema(offered, frozenset(), closed=closed)
    if steps and tool.step_references:
        numbers = {name: {"enum": list(steps)} for name in tool.step_references}
        schema = {**schema, "properties": {**schema["properties"], **numbers}}
    rebased: dict[str, Any] = _rebased(schema, f"#/$defs/{tool.name}")
    return rebased


def _rebased(schema: Any, base: str) -> Any:
    """Return `schema` without annotations, `#` in its references replaced by `base`."""
    if not isinstance(schema, Mapping):
        return schema

    mapped = map_subschemas(schema, lambda _path, subschema: _rebased(subschema, base))
    enforced: dict[str, Any] = {keyword: value for keyword, value in mapped.items() if keyword in _KEPT}
    reference = enforced.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        enforced["$ref"] = base + reference[1:]
    return enforced


def _choices(offered: Mapping[str, Any], arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the arguments, once for each choice of one property from every `requires_one_of` group."""
    required = list(arguments.get("required", ()))
    groups = [group for group in offered.get("requires_one_of", ()) if not set(group) & set(required)]
    choices = list(itertools.islice(itertools.product(*groups), _MOST_BRANCHES + 1))
    if len(choices) > _MOST_BRANCHES:
        demands = [{"anyOf": [{"required": [name]} for name in group]} for group in groups]
        yield {**arguments, "allOf": [*arguments.get("allOf", ()), *demands]}
        return
    for chosen in choices:
        names = list(dict.fromkeys([*required, *chosen]))
        yield {**arguments, "required": names} if names else arguments
