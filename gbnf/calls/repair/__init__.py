"""Argument repair: correct the arguments of an invalid call by its schema, and list each change.

    call = {"name": "find_files", "arguments": {"base_path": ".", "patterns": "*.md"}}
    repaired = repair_call(call, tools)
    repaired.call["arguments"]   # {"base_path": ".", "patterns": ["*.md"]}
    repaired.coercions           # (patterns: wrapped '*.md' as ['*.md'],)
    repaired.validation          # of the repaired call

Invariants: a valid call is never changed; nothing is guessed that the schema does not determine.
"""

from gbnf.calls.repair.arguments import Coercion, CoercionKind, UnknownKeys
from gbnf.calls.repair.repairing import RepairedCall, repair_call

__all__ = ["Coercion", "CoercionKind", "RepairedCall", "UnknownKeys", "repair_call"]
