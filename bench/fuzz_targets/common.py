"""What the targets share: their shape, the engine as judge, and how texts are spoiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from support.oracle import engine


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to fuzz: the strategy of its cases, and the check of one."""

    name: str
    cases: st.SearchStrategy[Any]
    check: Callable[[Any], str]


SEEDS = st.integers(0, 2**32 - 1)
ORDERS = st.sampled_from(["declared", "any"])


def accepts(grammar: Any, text: str) -> bool:
    """Whether the text is in the grammar's language, by the engine's judgement."""
    return engine().match(grammar, text).complete


def edits(pieces: Any) -> st.SearchStrategy[list[list[Any]]]:
    """Positions in a text (in thousandths), how many characters to remove there, and their replacement."""
    edit = st.tuples(st.integers(0, 1000), st.integers(0, 12), st.just("") | st.sampled_from(pieces))
    return st.lists(edit.map(list), max_size=3)


def edited(text: str, edits: list[list[Any]]) -> str:
    """Return a text after edits, as `edits` draws them."""
    for place, gone, new in edits:
        position = place * len(text) // 1000
        text = text[:position] + new + text[position + gone :]
    return text
