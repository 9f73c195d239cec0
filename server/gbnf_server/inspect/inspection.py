"""What a page is about, a pool of tools or one JSON Schema, and its parts as HTML."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from gbnf.calls import ToolCall
from gbnf.errors import clip
from gbnf.findings import Finding
from gbnf.prompts.descriptions import call_skeleton
from gbnf.tools import Tool
from gbnf.tools.providers import PROVIDERS, Provider
from gbnf_server.inspect import rendering
from gbnf_server.inspect.grammar_choice import PLAIN, GrammarChoice
from gbnf_server.inspect.grammar_view import GrammarView, view_schema, view_tool
from gbnf_server.inspect.pool_view import DEFAULT_LIMIT, PoolMeter
from gbnf_server.inspect.text_view import MOST_CHARACTERS, TextChecker
from gbnf_server.web.errors import HttpError

if TYPE_CHECKING:
    from gbnf_server.inspect.live_decoding import DecodingOptions, LiveDecoder
    from gbnf_server.planner.runs.run_files import RecordedRun

_MOST_REQUEST = 2000
"""Characters of a request."""
_SUMMARY = 90
"""Characters of a description in the list of tools."""


@dataclass(frozen=True, slots=True)
class InspectedSchema:
    """A JSON Schema with the mistakes that were found in it, such as misspelt keywords."""

    name: str
    schema: Mapping[str, Any] | bool
    findings: tuple[Finding, ...] = ()


class Inspection:
    """A pool of tools, or a schema, and recorded runs. May be used by several threads.

    `count_tokens`: of a text, with the tokenizer of a model. `decoder` decodes requests while the page is
    open. `choice`: how the grammars are compiled. `providers`: for `gbnf.filter_pool`. Raises SchemaError for
    a schema that cannot be compiled.
    """

    def __init__(
        self,
        title: str,
        tools: Sequence[Tool] = (),
        schema: InspectedSchema | None = None,
        count_tokens: Callable[[str], int] | None = None,
        runs: Sequence[RecordedRun] = (),
        decoder: LiveDecoder | None = None,
        choice: GrammarChoice = PLAIN,
        providers: Mapping[str, Provider] = PROVIDERS,
    ) -> None:
        self.title = title
        self.tools = tuple(tools)
        self.decoder = decoder
        self.schema = schema
        self._choice = choice
        self._runs = tuple(runs)
        self._checker = TextChecker(self.tools, None if schema is None else schema.schema, choice)
        self._meter = PoolMeter(self.tools, count_tokens, providers)
        self.grammar = lru_cache(maxsize=64)(
            lambda index: rendering.render_grammar(self._latest_view(index), live=True)
        )
        self._latest_view = lru_cache(maxsize=2)(self._view)
        if schema is not None:
            self.grammar(0)

    def __len__(self) -> int:
        return 1 if self.schema is not None else len(self.tools)

    def diagram(self, index: int, name: str) -> Markup:
        """Return the diagram of one rule of a grammar. Raises HttpError (404) for another name."""
        view = self._latest_view(index)
        rule = next((rule for rule in view.rules if rule.name == name), None)
        if rule is None:
            raise HttpError(404, f"the grammar has no rule {name[:80]!r}.", "not_found")
        return rendering.render_diagram(view, rule)

    def text(self, text: str) -> Markup:
        """Return what the grammar says of a text."""
        return rendering.render_template("text.html.j2", view=self._checker.view(text))

    def pool(self, request: str = "", limit: int = DEFAULT_LIMIT) -> Markup:
        """Return the tools for a request."""
        view = self._meter.view(request[:_MOST_REQUEST], limit)
        return rendering.render_template("pool.html.j2", view=view)

    def page(self, token: str) -> str:
        """Return the page, whose other parts the browser asks for with the token."""
        tabs = self._run_tabs
        if len(self):
            tabs += [self._grammar_tab(self.grammar(0)), self._text_tab]
        if self.decoder is not None:
            from gbnf_server.inspect.step_rendering import decoding_tab  # noqa: PLC0415  # see `_run_tabs`

            strategies = self.decoder.strategies
            live = decoding_tab(self._runs, strategies=strategies, model=self.decoder.name)
            tabs = [*(tab for tab in tabs if tab.key != live.key), live]
        if self.tools:
            tabs.append(_pool_tab("", token))
        return rendering.render_page(self.title, tabs, token=token)

    def file(self) -> str:
        """Return the page as one file, without the parts that are live."""
        tabs = self._run_tabs
        views = [self._view(index) for index in range(len(self))]
        is_pool = len(views) > 1
        templates = [rendering.render_grammar(view, common=is_pool) for view in views]
        if templates:
            tabs.append(self._grammar_tab(templates[0]))
        if self.tools:
            tabs.append(_pool_tab(self.pool()))
        return rendering.render_page(
            self.title,
            tabs,
            templates=templates if is_pool else (),
            shared=rendering.render_shared_rules(views) if is_pool else None,
        )

    @property
    def _run_tabs(self) -> list[rendering.Tab]:
        if not self._runs:
            return []
        from gbnf_server.inspect.step_rendering import decoding_tab, run_tab  # noqa: PLC0415  # the planner

        shown = frozenset(tool.name for tool in self.tools) if len(self.tools) > 1 else frozenset()
        return [run_tab(self._runs, shown, self.tools), decoding_tab(self._runs)]

    async def decode(self, options: DecodingOptions) -> Markup:
        """Return a request as the model decodes it. Raises HttpError."""
        from gbnf_server.inspect.step_rendering import render_decodings  # noqa: PLC0415  # see `_run_tabs`

        if self.decoder is None:
            raise HttpError(404, "the page has no model.", "not_found")
        decodings = await self.decoder.decode(options)
        labels = [self.decoder.strategies[strategy] for strategy in options.strategies]
        return render_decodings(labels, decodings)

    def _view(self, index: int) -> GrammarView:
        if self.schema is not None:
            return view_schema(self.schema.name, self.schema.schema, self.schema.findings, self._choice)
        return view_tool(self.tools[index], self._choice)

    def _grammar_tab(self, first: Markup) -> rendering.Tab:
        names = [(tool.name, clip(" ".join(tool.description().split()), _SUMMARY)) for tool in self.tools]
        html = rendering.render_template("grammar_tab.html.j2", names=names, first=first)
        return rendering.Tab("grammar", "Grammar", html)

    @property
    def _text_tab(self) -> rendering.Tab:
        label, example = "A JSON text", "{…}"
        if self.tools:
            label, example = "A call, as JSON", call_skeleton(self.tools[0])
            if (tool_format := self._choice.tool_format) is not None:
                label = "An answer, as the model's chat template writes calls"
                call = json.loads(example)
                example = tool_format.render([ToolCall("call00001", call["name"], call["arguments"])])
        html = rendering.render_template(
            "text_tab.html.j2", label=label, example=example, most=MOST_CHARACTERS
        )
        return rendering.Tab("text", "A text", html)


def _pool_tab(result: str, token: str = "") -> rendering.Tab:
    """Return the tab of the pool; without a token, only its table."""
    html = rendering.render_template(
        "pool_tab.html.j2", token=token, limit=DEFAULT_LIMIT, most=_MOST_REQUEST, result=result
    )
    return rendering.Tab("pool", "A pool", html)
