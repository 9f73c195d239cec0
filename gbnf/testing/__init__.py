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

from gbnf.exports import exported as _exported
from gbnf.testing.derivations import derivations as derivations
from gbnf.testing.mutations import BrokenConstraint as BrokenConstraint
from gbnf.testing.mutations import NearMiss as NearMiss
from gbnf.testing.mutations import near_misses as near_misses
from gbnf.testing.properties import Accepts as Accepts
from gbnf.testing.properties import Counterexample as Counterexample
from gbnf.testing.properties import Law as Law
from gbnf.testing.properties import LawBrokenError as LawBrokenError
from gbnf.testing.properties import NoExampleError as NoExampleError
from gbnf.testing.properties import assert_complete as assert_complete
from gbnf.testing.properties import assert_sound as assert_sound
from gbnf.testing.properties import find_incomplete as find_incomplete
from gbnf.testing.properties import find_unsound as find_unsound
from gbnf.testing.subjects import PoolSubject as PoolSubject
from gbnf.testing.subjects import SchemaSubject as SchemaSubject
from gbnf.testing.subjects import Subject as Subject
from gbnf.testing.subjects import calls as calls
from gbnf.testing.subjects import values as values

__all__ = _exported(globals())  # noqa: PLE0605  # the imports are the list
