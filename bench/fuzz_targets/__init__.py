"""What `fuzz` tries: for each target the strategy of its cases, and the property that each case must have.

A case is a plain Python value, so that it can be pasted. A check returns one word for what came of the case,
or raises: an AssertionError if a property is broken, anything else where something raised that must not.
Judges are llama.cpp's engine, jsonschema and Python's `re`, never our own code, except where two parts of it
must agree (a stream and the whole text). What only a report or a documented departure allows is let pass.
"""

from fuzz_targets.calls import CALL_TEXT
from fuzz_targets.common import Target
from fuzz_targets.grammars import GBNF
from fuzz_targets.hostile import HOSTILE_SCHEMA
from fuzz_targets.jumps import JUMPS
from fuzz_targets.manifests import MANIFEST
from fuzz_targets.schemas import PATTERN, SCHEMA
from fuzz_targets.servers import SERVER
from fuzz_targets.stacks import ALIKE, CLIENT_GRAMMAR
from fuzz_targets.tools import POOL, REPAIR

TARGETS = {
    target.name: target
    for target in (
        SCHEMA,
        PATTERN,
        HOSTILE_SCHEMA,
        POOL,
        CALL_TEXT,
        REPAIR,
        MANIFEST,
        GBNF,
        SERVER,
        JUMPS,
        ALIKE,
        CLIENT_GRAMMAR,
    )
}

__all__ = ["TARGETS", "Target"]
