"""Property tests for your own manifests and schemas, with Hypothesis.

    from gbnf import compile_pool, load_manifests
    from gbnf.testing import assert_complete, assert_sound

    def test_my_tools() -> None:
        tools = load_manifests("my-tools")
        grammar = compile_pool(tools)
        assert_sound(grammar, tools)       # no invalid call is accepted, unless the report says so
        assert_complete(grammar, tools)    # every valid call is accepted

`derivations`, `calls`, `values` and `near_misses` are strategies for your own tests. Texts are matched by
gbnf's own matcher, or by `accepts`, a function from a text to whether the grammar accepts it:
`gbnf_server.llama.grammar_checker` has llama.cpp's engine, and `gbnf test` uses it.

Invariants: validity is decided by jsonschema, and nothing here uses the compiler's interpretation of a
schema, so that an error of the compiler cannot hide itself. One exception: patterns of tools are judged by
`gbnf.schema.pattern_matching`, with the automata that the compiler uses; those of schemas by Python's `re`.
"""

from gbnf.testing.derivations import derivations
from gbnf.testing.mutations import BrokenConstraint, NearMiss, near_misses
from gbnf.testing.properties import (
    Accepts,
    Counterexample,
    Law,
    LawBrokenError,
    NoExampleError,
    assert_complete,
    assert_sound,
    find_incomplete,
    find_unsound,
    sample,
)
from gbnf.testing.subjects import PoolSubject, SchemaSubject, Subject, calls, values

__all__ = [
    "Accepts",
    "BrokenConstraint",
    "Counterexample",
    "Law",
    "LawBrokenError",
    "NearMiss",
    "NoExampleError",
    "PoolSubject",
    "SchemaSubject",
    "Subject",
    "assert_complete",
    "assert_sound",
    "calls",
    "derivations",
    "find_incomplete",
    "find_unsound",
    "near_misses",
    "sample",
    "values",
]
