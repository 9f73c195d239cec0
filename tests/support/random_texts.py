"""Generate texts of a grammar's language: random ones, and the shortest.

Invariants:

- Randomness is passed in: the same `Random` gives the same text.
- Every derivation ends: past its budget it takes the cheapest alternatives (`gbnf.grammar.analysis`).
- No text contains NUL or a surrogate, since no grammar can match them.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from gbnf.errors import GrammarError
from gbnf.grammar.analysis import MAX_BYTES, cheapest_costs, cost_of
from gbnf.grammar.code_points import Ranges, matchable
from gbnf.grammar.ir import Alt, CharClass, Expr, Literal, Ref, Repeat, Rules, Seq, TokenTerminal

_ASCII_SHARE = 0.7
_ANY = CharClass((), negated=True)
_PRINTABLE_ASCII = (0x20, 0x7E)
_LARGEST_COUNT = 2_000  # of a repetition's bound that is taken whole, now and then


def generate(rules: Rules, random: Random, *, budget: int = 400) -> str:
    """Return a random text of the language. Each of its texts is possible, short ones are more likely.

    After `budget` terminals and rules, the rest of the derivation is the cheapest. Raises GrammarError if the
    grammar derives no finite text, or none of at most `MAX_BYTES`.
    """
    return _Derivation(rules, random, budget).text()


def shortest_text(rules: Rules) -> str:
    """Return the first of the shortest texts of the language. Raises GrammarError as `generate` does."""
    return generate(rules, Random(0), budget=0)  # nothing is drawn but the one character of a class


class _Derivation:
    def __init__(self, rules: Rules, random: Random, budget: int) -> None:
        self._rules, self._random, self._budget = rules, random, budget
        self._costs: Mapping[str, int] = cheapest_costs(rules)
        if rules.root not in self._costs:
            raise GrammarError(
                f"the rule {rules.root} derives no finite text, or none of at most {MAX_BYTES:,} "
                "bytes: give its recursion an alternative that ends"
            )

    def text(self) -> str:
        parts: list[str] = []
        todo: list[Expr] = [Ref(self._rules.root)]
        while todo:
            match todo.pop():
                case Literal(text):
                    self._budget -= 1
                    parts.append(text)
                case TokenTerminal() as terminal:
                    todo.append(Literal(terminal.text) if terminal.text else Repeat(_ANY, 1, None))
                case CharClass() as of:
                    self._budget -= 1
                    parts.append(self._character(matchable(of)))
                case Seq(items):
                    todo.extend(reversed(items))
                case Alt(items):
                    todo.append(self._alternative(items))
                case Repeat() as repetition:
                    todo.extend([repetition.item] * self._count(repetition))
                case Ref(name):
                    self._budget -= 1
                    todo.append(self._rules.productions[name])
        return "".join(parts)

    def _alternative(self, items: tuple[Expr, ...]) -> Expr:
        possible = [(cost, item) for item in items if (cost := cost_of(item, self._costs)) is not None]
        if self._budget > 0:
            return self._random.choice(possible)[1]
        return min(possible, key=lambda pair: pair[0])[1]

    def _count(self, repetition: Repeat) -> int:
        """Most often near the lower bound; now and then the upper one, which is where counting goes wrong."""
        low, high = repetition.minimum, repetition.maximum
        if self._budget <= 0 or cost_of(repetition.item, self._costs) is None:
            return low
        if high is not None and high <= min(_LARGEST_COUNT, self._budget) and self._random.random() < 0.1:
            return high
        count = low
        while (high is None or count < high) and count - low < self._budget and self._random.random() < 0.6:
            count += 1
        return count

    def _character(self, ranges: Ranges) -> str:
        low, high = _PRINTABLE_ASCII
        ascii_ranges = [(max(a, low), min(b, high)) for a, b in ranges if a <= high and b >= low]
        if self._budget < 0:
            return chr((ascii_ranges or ranges)[0][0])
        if ascii_ranges and self._random.random() < _ASCII_SHARE:
            sizes = [b - a + 1 for a, b in ascii_ranges]
            return chr(self._random.randint(*self._random.choices(ascii_ranges, sizes)[0]))
        # By range and then by plane: uniform code points would nearly all be unassigned astral ones.
        first, last = self._random.choice(ranges)
        planes = [(max(first, a), min(last, b)) for a, b in _PLANES if first <= b and last >= a]
        return chr(self._random.randint(*self._random.choice(planes)))


_PLANES = (
    (0x01, 0x7F),
    (0x80, 0x7FF),
    (0x800, 0xD7FF),
    (0xE000, 0xFFFF),
    (0x10000, 0x1FFFF),
    (0x20000, 0x10FFFF),
)
