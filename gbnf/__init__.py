"""Compile JSON Schemas and tool manifests to GBNF grammars, which constrain what a model generates.

    tools = load_manifests("manifests")
    selection = filter_pool(tools, "what time is it?")
    grammar = compile_pool(selection.kept, final_answer=True)
    print(grammar)            # the GBNF text
    print(grammar.report)     # what it does not enforce
    print(grammar.match('{"name": "get_n').expected)
    result = validate_call({"name": "get_now", "arguments": {}}, tools)

Everything here is pure: the only files read are manifests and tools lists that a caller names. Names are
imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gbnf.lazy_names import lazy_names

if TYPE_CHECKING:
    from gbnf.calls.validation import ValidationResult as ValidationResult
    from gbnf.calls.validation import validate_call as validate_call
    from gbnf.compiler.grammar import Grammar as Grammar
    from gbnf.compiler.pool import compile_pool as compile_pool
    from gbnf.compiler.schema import compile_schema as compile_schema
    from gbnf.errors import AmbiguousGrammarError as AmbiguousGrammarError
    from gbnf.errors import BrokenManifestsError as BrokenManifestsError
    from gbnf.errors import GbnfError as GbnfError
    from gbnf.errors import GrammarError as GrammarError
    from gbnf.errors import GrammarSyntaxError as GrammarSyntaxError
    from gbnf.errors import InvalidArgumentError as InvalidArgumentError
    from gbnf.errors import ManifestError as ManifestError
    from gbnf.errors import PoolError as PoolError
    from gbnf.errors import SchemaError as SchemaError
    from gbnf.errors import ToolFormatError as ToolFormatError
    from gbnf.findings import Finding as Finding
    from gbnf.grammar.match import Match as Match
    from gbnf.requests.pool_filter import Selection as Selection
    from gbnf.requests.pool_filter import filter_pool as filter_pool
    from gbnf.requests.ranking import BM25 as BM25
    from gbnf.requests.ranking import Ranker as Ranker
    from gbnf.tools import ASK_USER as ASK_USER
    from gbnf.tools import FINAL_ANSWER as FINAL_ANSWER
    from gbnf.tools import FIND_TOOLS as FIND_TOOLS
    from gbnf.tools import Tool as Tool
    from gbnf.tools import load_manifests as load_manifests
    from gbnf.tools import load_tools as load_tools
    from gbnf.tools.complexity import args_complexity as args_complexity
    from gbnf.tools.complexity import is_complex as is_complex
    from gbnf.tools.functions import tool as tool

__all__, __getattr__, __dir__ = lazy_names(__name__, {
    "gbnf.calls.validation": ("ValidationResult", "validate_call"),
    "gbnf.compiler.grammar": ("Grammar",),
    "gbnf.compiler.pool": ("compile_pool",),
    "gbnf.findings": ("Finding",),
    "gbnf.compiler.schema": ("compile_schema",),
    "gbnf.errors": (
        "AmbiguousGrammarError", "GbnfError", "GrammarError", "GrammarSyntaxError", "InvalidArgumentError",
        "ManifestError", "BrokenManifestsError", "PoolError", "SchemaError",
        "ToolFormatError",
    ),
    "gbnf.grammar.match": ("Match",),
    "gbnf.tools": ("ASK_USER", "FINAL_ANSWER", "FIND_TOOLS", "Tool", "load_manifests", "load_tools"),
    "gbnf.tools.complexity": ("args_complexity", "is_complex"),
    "gbnf.tools.functions": ("tool",),
    "gbnf.requests.pool_filter": ("Selection", "filter_pool"),
    "gbnf.requests.ranking": ("BM25", "Ranker"),
})  # fmt: skip
