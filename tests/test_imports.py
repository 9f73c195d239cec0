"""The tests of `gbnf` can be collected without the server: neither they nor what they import imports it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
ROOTS = (TESTS, TESTS.parent / "bench")  # where the modules are that tests share


def imported(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports when it is loaded."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def server_imports(path: Path, seen: set[Path]) -> Iterator[str]:
    """Yield the imports of the server of a file, and of the shared modules that it imports."""
    seen.add(path)
    for module in imported(path):
        if module.partition(".")[0] == "gbnf_server":
            yield f"{path.relative_to(TESTS.parent)}: {module}"
        for root in ROOTS:
            shared = root / f"{module.replace('.', '/')}.py"
            if shared.is_file() and shared not in seen:
                yield from server_imports(shared, seen)


def test_the_tests_of_gbnf_import_no_server() -> None:
    seen: set[Path] = set()
    tests = [*(TESTS / "gbnf").rglob("*.py"), TESTS / "conftest.py"]
    assert [line for path in tests for line in server_imports(path, seen)] == []
    assert len(seen) > len(tests)
