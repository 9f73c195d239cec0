"""Comments that switch a check off say why, and docstrings describe parameters and fields that exist."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import pytest

from support.oracle import CHECKOUT

_WITHOUT_REASON = re.compile(r"#\s*(?:noqa|type:\s*ignore)\b[^#\n]*$", re.MULTILINE)
_FOLDERS = ("gbnf", "server", "bench", "manifests")
_NAME = r"`[^`\s]+`"
_LABELS = re.compile(rf"(?:\A|\n\n|\n *- |[.;:?!)]\s+)((?:{_NAME}(?:,| and| or)\s+)*{_NAME}):(?=\s)")
"""The names before a colon where a sentence begins: "`a`: …", "`a` and `b`: …"."""

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_Classes: TypeAlias = Mapping[str, Sequence[ast.ClassDef]]


@pytest.mark.parametrize("folder", _FOLDERS)
def test_each_check_that_is_switched_off_has_its_reason(folder: str) -> None:
    unexplained = [
        f"{path.relative_to(CHECKOUT)}: {match[0]}"
        for path in (CHECKOUT / folder).rglob("*.py")
        for match in _WITHOUT_REASON.finditer(path.read_text())
    ]
    assert unexplained == []


def test_what_has_no_reason_is_found() -> None:
    assert _WITHOUT_REASON.search("x = 1  # noqa: E501\n")
    assert _WITHOUT_REASON.search("x = 1  # type: ignore[misc]")
    assert not _WITHOUT_REASON.search("x = 1  # noqa: E501  # a table\n")


def _parameters(function: _Function) -> set[str]:
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return {each.arg for each in every if each}


def _keys(function: _Function) -> set[str]:
    keys = [key for node in ast.walk(function) if isinstance(node, ast.Dict) for key in node.keys]
    return {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def _members(node: ast.ClassDef, classes: _Classes) -> set[str]:
    """The fields, attributes, methods and constructor parameters of a class and of its bases."""
    names, lineage = set[str](), [node]
    for each in lineage:  # it grows
        bases = (ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in each.bases)
        lineage += [other for base in bases for other in classes.get(base, ()) if other not in lineage]
    for part in (part for each in lineage for part in each.body):
        if isinstance(part, ast.Assign | ast.AnnAssign):
            targets = part.targets if isinstance(part, ast.Assign) else [part.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
        elif isinstance(part, _Function):
            names |= {part.name, *(_parameters(part) if part.name == "__init__" else ())}
            attributes = (each for each in ast.walk(part) if isinstance(each, ast.Attribute))
            names |= {each.attr for each in attributes if isinstance(each.ctx, ast.Store)}
    return names


def _unknown(tree: ast.Module, classes: _Classes) -> Iterator[str]:
    """The names that a docstring of this module describes, and that do not exist there."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, _Function | ast.ClassDef)]
    for node in nodes:
        for label in _LABELS.findall(ast.get_docstring(node) or ""):
            if isinstance(node, ast.ClassDef):
                known = _members(node, classes)
            else:  # overloads list what a general signature does not
                alike = [each for each in nodes if isinstance(each, _Function) and each.name == node.name]
                known = set[str]().union(*map(_parameters, alike), *map(_keys, alike))
            names = re.findall(r"`(.+?)`", label)
            yield from (f"{node.name}: {name}" for name in names if name not in known)


def _classes(trees: Sequence[ast.Module]) -> _Classes:
    classes: dict[str, list[ast.ClassDef]] = defaultdict(list)
    for node in (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        classes[node.name].append(node)
    return classes


@pytest.mark.slow
def test_what_a_docstring_describes_exists() -> None:
    paths = [path for folder in _FOLDERS for path in (CHECKOUT / folder).rglob("*.py")]
    trees = {path: ast.parse(path.read_text()) for path in paths}
    classes = _classes([*trees.values()])
    assert [f"{path}: {name}" for path, tree in trees.items() for name in _unknown(tree, classes)] == []


@pytest.mark.parametrize(
    ("docstring", "unknown"),
    [
        ("Read it. `path`: a file.", []),
        ("Read `that`: it is a file.", []),
        ("Read it. `folder`: of the file.", ["folder"]),
        (
            "Read it.\n\n    `path`, `at` and\n    `to`: parts of it; `key`: a part of the result.",
            ["to"],
        ),
    ],
)
def test_what_does_not_exist_is_found(docstring: str, unknown: list[str]) -> None:
    function = f'def read(path, *, at):\n    """{docstring}"""\n    return {{"key": 1}}'
    assert [*_unknown(ast.parse(function), {})] == [f"read: {name}" for name in unknown]


def test_a_class_has_the_members_of_its_bases() -> None:
    base = "class A:\n    a = 1\n    def m(self): self.b = 1\n"
    tree = ast.parse(f'{base}class B(A):\n    """It.\n\n    `a`, `b`, `m` and `c`: parts."""')
    assert [*_unknown(tree, _classes([tree]))] == ["B: c"]
