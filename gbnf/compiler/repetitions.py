"""Bounded repetitions in a form that llama.cpp accepts.

llama.cpp rejects more than 2,000 repetitions, silently drops a greater upper bound, and multiplies the bound
by the rules that the repeated group creates. So only terminals and rules are repeated, and greater bounds are
split into blocks. Source: `parse_sequence` in llama.cpp's `src/llama-grammar.cpp`.
"""

from __future__ import annotations

from gbnf.compiler.rules import Scope
from gbnf.grammar.ir import CharClass, Expr, Ref, alt, repeat, seq

#: The greatest number of repetitions in one piece.
BLOCK_LENGTH = 1000

#: The greatest bound that is enforced: the engine unrolls every repetition, of blocks too, into rules.
MAX_BOUND = BLOCK_LENGTH * BLOCK_LENGTH


#: Why a greater one is not.
BEYOND = f"bounds above {MAX_BOUND} are not enforced"


def bounded_repetition(item: Expr, minimum: int, maximum: int | None, scope: Scope) -> Expr:
    """Return `item` at least `minimum` and at most `maximum` times; a bound above `MAX_BOUND` is left out."""
    minimum = min(minimum, MAX_BOUND)
    maximum = None if maximum is None or maximum > MAX_BOUND else maximum
    if (minimum > 1 or (maximum or 0) > 1) and not isinstance(item, Ref | CharClass):
        item = scope.add("Part", item)
    if minimum <= BLOCK_LENGTH and (maximum is None or maximum <= BLOCK_LENGTH):
        return repeat(item, minimum, maximum)
    block = scope.add("Block", repeat(item, BLOCK_LENGTH, BLOCK_LENGTH))
    blocks, rest = divmod(minimum, BLOCK_LENGTH)
    head = seq(repeat(block, blocks, blocks), repeat(item, rest, rest))
    tail = repeat(item) if maximum is None else _at_most(item, block, maximum - minimum, scope)
    return seq(head, tail)


def _at_most(item: Expr, block: Ref, count: int, scope: Scope) -> Expr:
    # x{0,2500} -> block{0,1} x{0,999} | block{2} x{0,500}
    blocks, rest = divmod(count, BLOCK_LENGTH)
    if not blocks:
        return repeat(item, 0, count)
    fewer = scope.add("Fewer", repeat(item, 0, BLOCK_LENGTH - 1))
    return alt(
        seq(repeat(block, 0, blocks - 1), fewer), seq(repeat(block, blocks, blocks), repeat(item, 0, rest))
    )
