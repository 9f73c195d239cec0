"""The public names and the error tree of `gbnf`."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import gbnf
from gbnf import Grammar, calls
from gbnf.errors import GbnfError


def test_the_lazy_table_and_what_type_checkers_see_are_the_same() -> None:
    tree = ast.parse(Path(gbnf.__file__).read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.name: str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert gbnf.__all__ == sorted(seen) == dir(gbnf)
    for name, module in seen.items():
        assert gbnf.__getattr__(name) is getattr(importlib.import_module(module), name)
    for name in calls.__all__:
        assert calls.__getattr__(name) is getattr(calls, name)


def test_every_exception_derives_from_the_root() -> None:
    modules = [importlib.import_module(found.name) for found in pkgutil.walk_packages(gbnf.__path__, "gbnf.")]
    found = {
        value
        for module in modules
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Exception) and value.__module__.startswith("gbnf.")
    }
    assert len(found) > 10
    assert {error for error in found if not issubclass(error, GbnfError)} == set()


@pytest.mark.slow
def test_no_builtin_exception_is_raised() -> None:
    raising = {
        path.name
        for path in Path(gbnf.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
        if getattr(node.exc.func, "id", "") in {"ValueError", "TypeError", "RuntimeError", "Exception"}
    }
    assert raising == set()


def test_grammars_with_the_same_text_are_equal() -> None:
    grammar = Grammar.parse('root ::= "a" b # a comment\nb ::= "x" | ("y")')
    assert str(grammar) == 'root ::= "a" b\nb ::= "x" | "y"\n'
    assert Grammar.parse(str(grammar)) == grammar
    assert len({grammar, Grammar.parse(str(grammar)), Grammar.parse('root ::= "a"')}) == 2
    assert grammar.matcher is Grammar.parse(str(grammar)).matcher
    assert grammar.match("ax").complete
    assert (grammar.exact, grammar.report) == (True, ())
