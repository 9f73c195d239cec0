"""A pool as one JSON Schema: a discriminated union of calls, for servers that take no grammar.

    {"anyOf": [{"type": "object", "properties": {"name": {"const": "find_files"}, "arguments": {…}}, …}, …]}

Each branch binds one tool's name to that tool's arguments. What must stay true: a call is valid by this
schema exactly when `validate_call` finds it valid; key order and layout are the server's. The schema is
written so that simple converters to grammars do well with it too: `requires_one_of` becomes more branches
rather than an `allOf`, which llama.cpp's own converter leaves out beside `properties`, and annotations go.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from gbnf.calls.validation.closed_schema import validation_schema
from gbnf.errors import PoolError, SchemaError
from gbnf.schema.applicators import SchemaPath, map_subschemas, walk
from gbnf.schema.keywords import KEYWORDS
from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf.tools import ASK_USER, FINAL_ANSWER, Tool
from gbnf.tools.argument_schema import DIALECT
from gbnf.tools.step_references import offered_args

_KEPT = KEYWORDS | {"$defs", "definitions"}
_OWN_BASE = ("$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$schema")
_MOST_BRANCHES = 16  # of one tool; more choices between required arguments are said by `allOf`
_SHOWN = 200


def call_schema(
    tools: Sequence[Tool],
    *,
    final_answer: bool = False,
    ask_user: bool = False,
    steps: Sequence[int] = (),
    closed: bool = True,
) -> dict[str, Any]:
    """The JSON Schema (2020-12) of the calls that `compile_pool` makes a grammar of; same arguments.

    What a tool's own references lead to stands in `$defs` under the tool's name. The same dict at each call
    with the same arguments; don't change it.

    Raises PoolError where no tool is left or two share a name, SchemaError where a tool's schema has a base
    of its own (`$id`, `$anchor` and the like), which has no place in a joint schema. `$schema` may say
    2020-12, at the top.
    """
    tools = (*tools, *((ASK_USER,) if ask_user else ()), *((FINAL_ANSWER,) if final_answer else ()))
    return _call_schema(tools, tuple(steps), closed)


@lru_cache(maxsize=256)
def _call_schema(tools: tuple[Tool, ...], steps: tuple[int, ...], closed: bool) -> dict[str, Any]:
    if not tools:
        raise PoolError("the pool is empty: give at least one executor, or ask for final_answer")
    names = [tool.name for tool in tools]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise PoolError(f"the pool holds two tools of the name {twice[0]!r}: rename one")
    branches: list[dict[str, Any]] = []
    definitions: dict[str, Any] = {}
    for tool in tools:
        offered = offered_args(tool, steps)
        if offered is None:
            continue
        arguments = _arguments(tool, offered, steps, closed=closed)
        if any("$ref" in schema for _, schema in walk(arguments) if isinstance(schema, Mapping)):
            definitions[tool.name] = arguments
        branches += [_branch(tool.name, chosen) for chosen in _choices(offered, arguments)]
    if not branches:
        raise PoolError(f"none of {', '.join(names)} can be called before an earlier step has entries")
    union = branches[0] if len(branches) == 1 else {"anyOf": branches}
    return {**union, "$defs": definitions} if definitions else union


def schema_text(schema: Mapping[str, Any]) -> str:
    """The schema as compact JSON; the order of properties, by which servers write, stays."""
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


def schema_violation(schema: str, text: str) -> str | None:
    """What is wrong with a whole answer that the schema was to hold, None where it fits.

    `schema` is the text of a schema; an answer that was cut can't be judged by one.
    """
    try:
        value = parse_json(text)
    except InvalidJsonError as fault:
        return f"the text is no JSON value ({fault})"
    try:
        error = best_match(_validator(schema).iter_errors(value))
    except RecursionError:
        return "the value is nested too deeply"
    if error is None:
        return None
    said = error.message if len(error.message) <= _SHOWN else error.message[: _SHOWN - 1] + "…"
    return f"at {error.json_path} {said}"


@lru_cache(maxsize=16)
def _validator(schema: str) -> Any:
    return Draft202012Validator(json.loads(schema), format_checker=Draft202012Validator.FORMAT_CHECKER)


def _arguments(
    tool: Tool, offered: Mapping[str, Any], steps: tuple[int, ...], *, closed: bool
) -> dict[str, Any]:
    """The schema of one tool's arguments, its references leading into `$defs`."""
    if str(offered.get("$schema", "")).rstrip("#") == DIALECT:  # what the joint schema is written in anyway
        offered = {keyword: value for keyword, value in offered.items() if keyword != "$schema"}
    for place, inside in walk(offered):
        for keyword in _OWN_BASE:
            if isinstance(inside, Mapping) and keyword in inside:
                raise SchemaError(
                    "/".join(["", *map(str, place), keyword]),
                    f"the arguments of {tool.name!r} use {keyword}, which has no place in a joint schema",
                    'Write references as JSON pointers, "#/$defs/…".',
                )
    schema: dict[str, Any] = validation_schema(offered, frozenset(), closed=closed)
    if steps and tool.step_references:
        numbers = {name: {"enum": list(steps)} for name in tool.step_references}
        schema = {**schema, "properties": {**schema["properties"], **numbers}}
    written: dict[str, Any] = _written(schema, f"#/$defs/{tool.name}")
    return written


def _written(schema: Any, base: str) -> Any:
    """`schema` without annotations, `#` in its references meaning `base`."""
    if not isinstance(schema, Mapping):
        return schema

    def below(_place: SchemaPath, member: Any) -> Any:
        return _written(member, base)

    kept: dict[str, Any] = {key: held for key, held in map_subschemas(schema, below).items() if key in _KEPT}
    reference = kept.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        kept["$ref"] = base + reference[1:]
    return kept


def _choices(offered: Mapping[str, Any], arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The arguments, once for each way to give one property of every `requires_one_of` group."""
    required = list(arguments.get("required", ()))
    groups = [group for group in offered.get("requires_one_of", ()) if not set(group) & set(required)]
    ways = list(itertools.islice(itertools.product(*groups), _MOST_BRANCHES + 1))
    if len(ways) > _MOST_BRANCHES:
        demands = [{"anyOf": [{"required": [name]} for name in group]} for group in groups]
        yield {**arguments, "allOf": [*arguments.get("allOf", ()), *demands]}
        return
    for way in ways:
        wanted = list(dict.fromkeys([*required, *way]))
        yield {**arguments, "required": wanted} if wanted else arguments


def _branch(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
