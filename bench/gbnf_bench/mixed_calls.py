"""The baseline of comparisons: a grammar of calls in which any name goes with any tool's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from gbnf import Grammar
from gbnf.compiler.grammar import CompiledRules
from gbnf.compiler.layout import LAYOUTS, CompileOptions
from gbnf.compiler.literals import factor_prefixes, json_string
from gbnf.compiler.pool import MAX_DEPTH, compile_tools, pool_tools
from gbnf.grammar.ir import Literal, Rules, literal, seq
from gbnf.tools import Tool


def compile_name_and_arguments(
    tools: Sequence[Tool], *, final_answer: bool = False, ask_user: bool = False, steps: Sequence[int] = ()
) -> Grammar:
    """Compile the grammar in which any name goes with any tool's arguments."""
    return _compile(pool_tools(tools, final_answer, ask_user), tuple(steps))


@lru_cache(maxsize=512)
def _compile(tools: tuple[Tool, ...], steps: tuple[int, ...]) -> Grammar:
    layout, options = LAYOUTS["default"], CompileOptions("default", MAX_DEPTH, closed=True)
    pool = compile_tools(tools, options, bool(steps), strict=False)
    opening = seq(layout.begin_object, Literal('"name"'), layout.colon)
    middle = seq(layout.comma, Literal('"arguments"'), layout.colon)
    names = factor_prefixes([literal(json_string(tool.name)) for tool in pool.tools])
    arguments = factor_prefixes([tool.arguments for tool in pool.tools])
    root = seq(opening, names, middle, arguments, layout.end_object)
    return pool.link([CompiledRules.of(Rules({"root": root}))], steps, options)
