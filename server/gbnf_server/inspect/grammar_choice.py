"""Which grammar of tools, or of a schema, `gbnf compile` prints, and `gbnf inspect` shows and uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gbnf import Grammar, compile_pool, compile_schema
from gbnf.compiler.layout import PropertyOrder, Whitespace
from gbnf.compiler.pool import MAX_DEPTH
from gbnf.tools import Tool

if TYPE_CHECKING:
    from gbnf.tool_formats import ToolFormat


@dataclass(frozen=True, slots=True)
class GrammarChoice:
    """How tools, or a schema, are compiled; see `gbnf.compile_schema`.

    `max_depth`: None for no limit in a schema, and `MAX_DEPTH` in tools. `closed`: the objects of a schema
    are; those in calls always are. `tool_format`: that of a model's chat template, in which calls are
    written; None: as JSON. It has a whitespace of its own, and properties in any order.
    """

    whitespace: Whitespace = "default"
    property_order: PropertyOrder = "any"
    max_depth: int | None = None
    closed: bool = True
    tool_format: ToolFormat | None = None

    @property
    def max_depth_of_calls(self) -> int:
        """The depth below which arguments may be any JSON."""
        return MAX_DEPTH if self.max_depth is None else self.max_depth

    def of_tools(self, tools: Sequence[Tool], *, steps: Sequence[int] = (), **built_in: bool) -> Grammar:
        """Return the grammar of the calls of tools. `built_in`: more of `compile_pool`, for calls as JSON.

        Raises PoolError and SchemaError.
        """
        if self.tool_format is not None:
            return self.tool_format.grammar(tools, steps=steps, max_depth=self.max_depth_of_calls)
        return compile_pool(
            tools,
            steps=steps,
            whitespace=self.whitespace,
            property_order=self.property_order,
            max_depth=self.max_depth_of_calls,
            **built_in,
        )

    def of_schema(self, schema: Mapping[str, Any] | bool) -> Grammar:
        """Return the grammar of a schema. Raises SchemaError."""
        return compile_schema(
            schema,
            whitespace=self.whitespace,
            property_order=self.property_order,
            max_depth=self.max_depth,
            closed=self.closed,
        )


PLAIN = GrammarChoice()
"""Calls as JSON, with the defaults of `gbnf compile`."""
