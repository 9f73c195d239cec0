"""Which grammar a page shows: how it is compiled, and the syntax of its calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gbnf import Grammar, compile_pool, compile_schema
from gbnf.compiler.layout import PropertyOrder, Whitespace
from gbnf.grammar.ir import Expr
from gbnf.tool_formats import ToolFormat
from gbnf.tools import Tool

STEPS = (1,)
"""The earlier steps that arguments may refer to, so that all arguments are shown."""


@dataclass(frozen=True, slots=True)
class GrammarChoice:
    """How tools, or a schema, are compiled; see `gbnf.compile_schema`.

    `tool_format`: that of a model's chat template, in which calls are written; None: as JSON. It has a
    whitespace of its own, and properties in any order.
    """

    whitespace: Whitespace = "default"
    property_order: PropertyOrder = "any"
    tool_format: ToolFormat | None = None

    def of_tools(self, tools: Sequence[Tool]) -> Grammar:
        """Return the grammar of the calls of tools. Raises PoolError and SchemaError."""
        if self.tool_format is not None:
            return self.tool_format.grammar(tools, steps=STEPS)
        return compile_pool(
            tools, steps=STEPS, whitespace=self.whitespace, property_order=self.property_order
        )

    def of_schema(self, schema: Mapping[str, Any] | bool) -> Grammar:
        """Return the grammar of a schema. Raises SchemaError."""
        return compile_schema(schema, whitespace=self.whitespace, property_order=self.property_order)

    @property
    def shared_rules(self) -> Mapping[str, Expr]:
        """The rules that any tool has, besides `RESERVED`: those of the text and of what surrounds a call."""
        return {} if self.tool_format is None else self.of_tools((Tool(name="x"),)).rules.productions


PLAIN = GrammarChoice()
"""Calls as JSON, with the defaults of the compiler."""
