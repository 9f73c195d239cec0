"""gbnf: tool manifests to GBNF grammars that llama.cpp can hold a model to.

    executors = load_manifests("manifests")
    selection = filter_pool(executors, "what time is it?")
    grammar = compile_pool(selection.kept, final_answer=True)
    print(grammar)            # the GBNF text
    print(grammar.report)     # what it does not enforce
    verdict = validate_call({"name": "get_now", "arguments": {}}, executors)

Everything here is pure: the only files read are manifests that a caller names. Names are imported when they
are first asked for, so that a program pays for what it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gbnf.calls.validation import ValidationResult, validate_call
    from gbnf.compiler.grammar import Grammar
    from gbnf.compiler.pool import compile_pool
    from gbnf.compiler.report import Finding
    from gbnf.compiler.schema import compile_schema
    from gbnf.errors import (
        GbnfError,
        GrammarSyntaxError,
        ManifestError,
        ManifestErrors,
        PoolError,
        SchemaError,
    )
    from gbnf.grammar.match import Matcher
    from gbnf.grammar.parse import parse_gbnf
    from gbnf.tools import Tool, load_manifests
    from gbnf.tools.complexity import args_complexity, is_complex
    from gbnf.tools.pool_filter import Selection, filter_pool

_MODULES = {
    "Tool": "gbnf.tools",
    "Finding": "gbnf.compiler.report",
    "GbnfError": "gbnf.errors",
    "Grammar": "gbnf.compiler.grammar",
    "GrammarSyntaxError": "gbnf.errors",
    "ManifestError": "gbnf.errors",
    "ManifestErrors": "gbnf.errors",
    "Matcher": "gbnf.grammar.match",
    "PoolError": "gbnf.errors",
    "SchemaError": "gbnf.errors",
    "Selection": "gbnf.tools.pool_filter",
    "ValidationResult": "gbnf.calls.validation",
    "args_complexity": "gbnf.tools.complexity",
    "compile_pool": "gbnf.compiler.pool",
    "compile_schema": "gbnf.compiler.schema",
    "filter_pool": "gbnf.tools.pool_filter",
    "is_complex": "gbnf.tools.complexity",
    "load_manifests": "gbnf.tools",
    "parse_gbnf": "gbnf.grammar.parse",
    "validate_call": "gbnf.calls.validation",
}

__all__ = [
    "Finding",
    "GbnfError",
    "Grammar",
    "GrammarSyntaxError",
    "ManifestError",
    "ManifestErrors",
    "Matcher",
    "PoolError",
    "SchemaError",
    "Selection",
    "Tool",
    "ValidationResult",
    "args_complexity",
    "compile_pool",
    "compile_schema",
    "filter_pool",
    "is_complex",
    "load_manifests",
    "parse_gbnf",
    "validate_call",
]


def __getattr__(name: str) -> object:
    home = _MODULES.get(name)
    if home is None:
        raise AttributeError(f"module 'gbnf' has no attribute {name!r}")
    found: object = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
