"""What a page is about, a pool of tools or one JSON Schema, and its parts as HTML."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from markupsafe import Markup

from gbnf.findings import Finding
from gbnf.prompts.descriptions import call_skeleton
from gbnf.tools import Tool
from gbnf_server.errors import InputError
from gbnf_server.inspect import rendering
from gbnf_server.inspect.grammar_view import GrammarView, view_schema, view_tool
from gbnf_server.inspect.pool_view import DEFAULT_LIMIT, PoolMeter
from gbnf_server.inspect.text_view import TextChecker

_SUMMARY = 90
"""Characters of a description in the list of tools."""


@dataclass(frozen=True, slots=True)
class InspectedSchema:
    """A JSON Schema with the mistakes that were found in it, such as misspelt keywords."""

    name: str
    schema: Mapping[str, Any] | bool
    findings: tuple[Finding, ...] = ()


class Inspection:
    """A pool of tools, or a schema. May be used by several threads.

    `count_tokens`: of a text, with the tokenizer of a model. Raises InputError without tools or a schema,
    SchemaError for a schema that cannot be compiled.
    """

    def __init__(
        self,
        title: str,
        tools: Sequence[Tool] = (),
        schema: InspectedSchema | None = None,
        count_tokens: Callable[[str], int] | None = None,
    ) -> None:
        if schema is None and not tools:
            raise InputError(f"{title}: there is no tool in it to show.")
        self.title = title
        self.tools = tuple(tools)
        self._schema = schema
        self._checker = TextChecker(self.tools, None if schema is None else schema.schema)
        self._meter = PoolMeter(self.tools, count_tokens)
        self._grammar = lru_cache(maxsize=64)(self._render_grammar)
        if schema is not None:
            self.grammar(0)

    def __len__(self) -> int:
        return 1 if self._schema is not None else len(self.tools)

    def grammar(self, index: int) -> Markup:
        """Return the grammar of one tool, or of the schema."""
        return self._grammar(index)

    def text(self, text: str) -> Markup:
        """Return what the grammar says of a text."""
        return rendering.render_text(self._checker.view(text))

    def pool(self, request: str = "", limit: int = DEFAULT_LIMIT) -> Markup:
        """Return the tools for a request."""
        return rendering.render_pool(self._meter.view(request[: rendering.MOST_REQUEST], limit))

    def page(self, token: str) -> str:
        """Return the page, whose other parts the browser asks for with the token."""
        tabs = [
            self._grammar_tab(self.grammar(0)),
            rendering.text_tab(is_pool=bool(self.tools), example=self._example),
        ]
        if self.tools:
            tabs.append(rendering.pool_tab(Markup(), token=token))
        return rendering.render_page(self.title, tabs, token=token)

    def file(self) -> str:
        """Return the page as one file, without the parts that are live."""
        if len(self) == 1:
            tabs = [self._grammar_tab(self.grammar(0))]
            tabs += [rendering.pool_tab(self.pool())] if self.tools else []
            return rendering.render_page(self.title, tabs)
        views = [self._view(index) for index in range(len(self))]
        templates = [rendering.render_grammar(view, common=True) for view in views]
        return rendering.render_page(
            self.title,
            [self._grammar_tab(templates[0]), rendering.pool_tab(self.pool())],
            templates=templates,
            shared=rendering.render_shared_rules(views),
        )

    def _render_grammar(self, index: int) -> Markup:
        return rendering.render_grammar(self._view(index))

    def _view(self, index: int) -> GrammarView:
        if self._schema is not None:
            return view_schema(self._schema.name, self._schema.schema, self._schema.findings)
        return view_tool(self.tools[index])

    def _grammar_tab(self, first: Markup) -> rendering.Tab:
        names = [(tool.name, _summary(tool.description())) for tool in self.tools]
        return rendering.grammar_tab(names, first)

    @cached_property
    def _example(self) -> str:
        if not self.tools:
            return "{…}"
        return json.dumps(json.loads(call_skeleton(self.tools[0])), ensure_ascii=False)


def _summary(description: str) -> str:
    line = " ".join(description.split())
    return line if len(line) <= _SUMMARY else line[: _SUMMARY - 1] + "…"
