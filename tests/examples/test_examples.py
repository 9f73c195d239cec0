"""The examples that need no gateway. The others: `tests/gbnf_server/gateway/clients`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.examples import EXAMPLES, run_example
from support.smollm2 import requires_smollm2

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        pytest.param(
            "own_tools.py", r"'count_words'.*\nanswered \{\"result\": 3\}\n", marks=requires_smollm2
        ),
        ("mcp_tools.py", r"'create_dirs'.*\n(.*\n)*answered .*trips"),
        pytest.param("own_grammar.py", r"\[1-8\].*\n([a-h][1-8]-[a-h][1-8] ?){3}\n", marks=requires_smollm2),
        pytest.param("llama_cpp_python.py", r"\{'name': '.*', 'born': \d{4}\}\n", marks=requires_smollm2),
    ],
)
def test_a_program(name: str, printed: str, tmp_path: Path) -> None:
    if name == "mcp_tools.py":
        pytest.importorskip("mcp", reason="needs the extra mcp")
    assert re.search(printed, run_example(name, tmp_path))


def test_the_tests_of_tools(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null"]
    done = subprocess.run(
        [*command, str(EXAMPLES / "test_tools.py")], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_each_example_says_how_it_is_run() -> None:
    tested = Path(__file__).read_text("utf-8") + "".join(
        path.read_text("utf-8")
        for path in Path(__file__).parents[1].glob("gbnf_server/gateway/clients/test_*.py")
    )
    for path in EXAMPLES.glob("*.py"):
        text = path.read_text("utf-8")
        assert re.match(r'"""[^\n]+\?\n\n', text), f"{path.name} begins with no question"
        assert f"examples/{path.name}" in text
        assert f'"{path.name}"' in tested
