"""Cases generated from manifests, for tools without a suite.

For each tool there is a request that contains its description and a value for each required argument, and the
same request with a pool without that tool, which should be declined. The tools are not executed: these cases
test which call a model makes, and `stub_result` replaces its result.

Such requests are simple; they compare strategies, and do not measure the quality of a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gbnf.calls.validation import validate_call
from gbnf.requests.pool_filter import filter_pool
from gbnf.tools import Tool
from gbnf.tools.providers import PROVIDERS, Provider
from gbnf.tools.tool import supported_language
from gbnf_bench.cases import Suite
from gbnf_bench.dsl import Table, suite
from gbnf_server.executors import Context
from gbnf_server.system.errors import SetupError

_WORDS = ("amber", "cedar", "delta", "maple", "onyx", "quartz", "river", "violet")
_ASKED = {
    "en": ("{description}", "Use these values: {values}."),
    "it": ("{description}", "Usa questi valori: {values}."),
}


def generate_suite(
    tools: Sequence[Tool], *, language: str = "en", providers: Mapping[str, Provider] = PROVIDERS
) -> tuple[Suite, tuple[str, ...]]:
    """Return a suite, and the names of tools that no case could be generated for.

    `providers`: of tool variants, as for `filter_pool`. Raises SetupError if no case could be generated.
    """
    cases: list[Table] = []
    left_out: list[str] = []
    for tool in tools:
        generated = _cases(tool, tools, language, providers)
        cases += generated
        if not generated:
            left_out.append(tool.name)
    if not cases:
        raise SetupError(
            "no cases can be generated from these manifests. Use --suite with a suite of your own."
        )
    made_of = suite("manifests", *cases, tools=list(tools))
    return made_of, tuple(left_out)


def stub_result(tool: Tool, _arguments: Mapping[str, Any], _context: Context) -> dict[str, Any]:
    """Return the result of a tool without running it."""
    return {"entries": ["done"], "tool": tool.name}


def _cases(
    tool: Tool, tools: Sequence[Tool], language: str, providers: Mapping[str, Provider]
) -> list[Table]:
    try:
        arguments = _arguments(tool)
    except LookupError:
        return []
    call = {"name": tool.name, "arguments": arguments}
    query = _query(tool, arguments, language)
    offered = filter_pool(tools, query, providers=providers).kept
    if not validate_call(call, [tool]).ok or tool not in offered:
        return []
    expected = {
        "name": tool.name,
        "arguments": {name: {"const": value} for name, value in arguments.items()},
    }
    slug = tool.name.lower().replace("_", "-").replace(".", "-")
    asked: Table = {"query": query, "language": language}
    cases = [{**asked, "id": f"call-{slug}", "calls": [expected]}]
    others = [other.name for other in tools if other.name != tool.name]
    if others:
        cases.append({**asked, "id": f"decline-{slug}", "abstain": True, "pool": others})
    return cases


def _query(tool: Tool, arguments: Mapping[str, Any], language: str) -> str:
    plain, with_values = _ASKED[supported_language(language, _ASKED)]
    sentences = [plain.format(description=" ".join(tool.description(language).split()))]
    if tool.offer.markers:
        sentences.append(f"({tool.offer.markers[0]})")
    if arguments:
        values = ", ".join(f"{name} = {_shown(value)}" for name, value in arguments.items())
        sentences.append(with_values.format(values=values))
    return " ".join(sentences)


def _shown(value: Any) -> str:
    return " and ".join(map(_shown, value)) if isinstance(value, list) else str(value)


def _arguments(tool: Tool) -> dict[str, Any]:
    """Return a value for each required argument.

    Raises LookupError if no value is known for one.
    """
    args = tool.model_args()
    references = set(tool.step_references)
    needed = list(args.get("required", ()))
    for group in args.get("requires_one_of", ()):
        if not set(group) & set(needed):
            needed.append(next(name for name in group if name not in references))
    if references & set(needed):
        raise LookupError("it needs an earlier step")
    properties = args.get("properties", {})
    return {name: _value(properties[name], number) for number, name in enumerate(needed)}


def _value(schema: Any, number: int) -> Any:
    match schema:
        case {"enum": [first, *_]}:
            return first
        case {"const": value}:
            return value
        case {"type": "string"}:  # `_cases` drops a call whose pattern or format refuses the word
            return _WORDS[number % len(_WORDS)]
        case {"type": "integer" | "number"}:
            return max(schema.get("minimum", 3), min(schema.get("maximum", 3), 3))
        case {"type": "boolean"}:
            return True
        case {"type": "array", "items": items}:
            return [_value(items, number + offset) for offset in range(max(1, schema.get("minItems", 1)))]
        case _:
            raise LookupError("no value is known for this schema")
