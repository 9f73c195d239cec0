"""Property tests for your own manifests and schemas, with Hypothesis.

    from gbnf import compile_pool, load_manifests
    from gbnf.testing import assert_complete, assert_sound

    def test_my_tools() -> None:
        executors = load_manifests("my-tools")
        grammar = compile_pool(executors)
        assert_sound(grammar, executors)       # nothing invalid is accepted, or the report says why
        assert_complete(grammar, executors)    # every valid call is accepted

`derivations`, `calls`, `values` and `near_misses` are strategies for tests of your own. The laws judge texts
by gbnf's own matcher, or by `accepts`, any function from a text to a verdict: `gbnf_server.inference.grammar_checker` has
llama.cpp's own engine, and `gbnf test` uses it. What must stay true: what is valid is jsonschema's to say,
and nothing here looks at how the compiler reads a schema, so that a fault of the compiler can't hide itself.
"""

from importlib.util import find_spec

if find_spec("hypothesis") is None:
    raise ImportError(
        "gbnf.testing needs Hypothesis, which is not installed: pip install 'gbnf-toolkit[test]'",
        name="hypothesis",
    )

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
    "values",
]
