"""Does the grammar of my tools accept each valid call, and no invalid one?

pip install 'gbnf-toolkit[local]' pytest && python -m pytest examples/test_tools.py

llama.cpp's engine judges texts, jsonschema judges calls, and Hypothesis searches for a counterexample.
"""

from pathlib import Path

from gbnf import compile_pool, load_manifests
from gbnf.testing import assert_complete, assert_sound

TOOLS = load_manifests(Path(__file__).parent / "tools")


def test_the_grammar_of_the_tools() -> None:
    grammar = compile_pool(TOOLS)
    assert grammar.report == ()  # it enforces each keyword
    assert_sound(grammar, TOOLS)
    assert_complete(grammar, TOOLS)
