"""Argument repair: a call that its schema refuses, brought to what the schema declares, step by listed step.

    call = {"name": "find_files", "arguments": {"base_path": ".", "patterns": "*.md"}}
    repaired = repair_call(call, executors)
    repaired.call["arguments"]   # {"base_path": ".", "patterns": ["*.md"]}
    repaired.coercions           # (patterns: wrapped '*.md' as ['*.md'],)
    repaired.verdict             # judged like any call

A valid call is never changed. Nothing is guessed that the schema doesn't say.
"""

from gbnf.calls.repair.arguments import UnknownKeys
from gbnf.calls.repair.coercions import Coercion, CoercionKind
from gbnf.calls.repair.repairing import RepairedCall, repair_call

__all__ = ["Coercion", "CoercionKind", "RepairedCall", "UnknownKeys", "repair_call"]
