"""What the page shows of a pool: which tools a request keeps, and what each tool costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gbnf import SchemaError, args_complexity, compile_pool, filter_pool
from gbnf.compiler.layout import CompileOptions
from gbnf.compiler.pool import MAX_DEPTH, CompiledTool, compile_tool
from gbnf.errors import PoolError
from gbnf.prompts.descriptions import describe_tool
from gbnf.requests.phrases import PhraseMatcher
from gbnf.requests.pool_filter import Selection, best_first, heeds_only_asked
from gbnf.requests.ranking import common_words
from gbnf.requests.values import without_told
from gbnf.tools import Tool
from gbnf.tools.providers import PROVIDERS, Provider
from gbnf_server.inspect.grammar_view import STEPS

DEFAULT_LIMIT = 16
_OPTIONS = CompileOptions("default", MAX_DEPTH, closed=True)


@dataclass(frozen=True, slots=True)
class ToolCost:
    """A tool in a pool. `rank`: its place for the request, from 1; 0 without a request.

    `words`: those of the request that it is ranked by. `grammar_bytes` and `rules` are those of its own
    rules. `prompt`: of its description, in the unit of the view. `reason`: why it is kept or dropped.
    """

    name: str
    kept: bool
    reason: str
    rank: int
    words: tuple[str, ...]
    grammar_bytes: int
    rules: int
    prompt: int
    complexity: int
    unenforced: int


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool for a request. `unit` of the prompt: "tokens" or "characters".

    `tools`: without a request in their order; for one those that are kept first, each part by rank.
    `grammar_bytes` and `rules` are those of the linked grammar of the tools that are kept.
    """

    request: str
    limit: int
    unit: str
    tools: tuple[ToolCost, ...]
    grammar_bytes: int
    rules: int
    prompt: int
    notice: str = ""

    @property
    def kept(self) -> int:
        """How many tools are kept."""
        return sum(tool.kept for tool in self.tools)


class PoolMeter:
    """Measures one pool.

    `count_tokens`: None where no tokenizer is at hand. `providers`: for `gbnf.filter_pool`.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        count_tokens: Callable[[str], int] | None = None,
        providers: Mapping[str, Provider] = PROVIDERS,
    ) -> None:
        self._tools, self._providers = tuple(tools), providers
        self._unit = "characters" if count_tokens is None else "tokens"
        self._count = lru_cache(maxsize=None)(len if count_tokens is None else count_tokens)

    def view(self, request: str = "", limit: int = DEFAULT_LIMIT) -> PoolView:
        """Return the pool for a request; without one, all of it."""
        if request.strip():
            selection = filter_pool(self._tools, request, limit=max(limit, 1), providers=self._providers)
            ranks = {tool: rank for rank, tool in enumerate(best_first(self._tools, request), 1)}
        else:
            selection, ranks = Selection(self._tools), {}
        needed = {name: tool.name for tool in selection.kept for name in tool.offer.after}
        offered = set(selection.kept)
        costs = tuple(
            self._cost(
                tool,
                kept=tool in offered,
                reason=_why(tool, request, selection, needed),
                rank=ranks.get(tool, 0),
                words=common_words(request, tool),
            )
            for tool in self._tools
        )
        if ranks:
            costs = tuple(sorted(costs, key=lambda cost: (not cost.kept, cost.rank)))
        try:
            grammar = compile_pool(selection.kept, steps=STEPS)
            size, rules = len(str(grammar).encode()), len(grammar.rules.productions)
        except (PoolError, SchemaError):
            size = rules = 0
        return PoolView(
            request,
            limit,
            self._unit,
            costs,
            size,
            rules,
            sum(cost.prompt for cost in costs if cost.kept),
            selection.notice,
        )

    def _cost(self, tool: Tool, *, kept: bool, reason: str, rank: int, words: tuple[str, ...]) -> ToolCost:
        compiled = compile_tool(tool, _OPTIONS, has_steps=True)
        part = compiled.part if isinstance(compiled, CompiledTool) else None
        findings = compiled.findings if isinstance(compiled, CompiledTool) else ()
        return ToolCost(
            tool.name,
            kept,
            reason,
            rank,
            words,
            0 if part is None else len(part.text.encode()),
            0 if part is None else len(part.names),
            self._count(describe_tool(tool, "default", "en")),
            args_complexity(tool.model_args()).score,
            sum(finding.kind == "unenforced" for finding in findings),
        )


def _why(tool: Tool, request: str, selection: Selection, needed: dict[str, str]) -> str:
    """Return why a tool is kept or dropped."""
    if tool in selection.dropped:
        return selection.dropped[tool]
    if not request.strip():
        return ""
    if selection.notice:
        return "the filter keeps all tools"
    offer = tool.offer
    if offer.always:
        return "it is always offered"
    if offer.markers:
        matcher = PhraseMatcher(offer.markers, offer.not_in)
        text = without_told(request) if heeds_only_asked(tool) else request
        phrases = matcher.find_longest(text) & set(offer.markers)
        if phrases:
            return f"the request contains {', '.join(map(repr, sorted(phrases)))}"
    if tool.name in needed:
        return f"{needed[tool.name]} may only be called after it"
    if selection.outranked:
        return "it is one of those that fit the request best"
    return "no rule drops it, and the limit is not reached"
