"""Match texts against a grammar; for a text outside its language, find where it fails and what was expected.

All derivations of a text advance through the network of the rules at once. A *top* is a state of one
derivation: a terminal, an offset into it, and a linked stack of frames to return to after the current rule or
counted repetition.

Invariants:

- Equal stacks are one object (hash-consing), and the stacks of one terminal are merged, as in a
  graph-structured stack (Tomita 1985): derivations that meet again are one, however ambiguous the grammar.
- The closure of a stack and each step from a set of tops are computed once and cached: inside a string, a
  step is a lookup. Memory is bounded: above `_MAX_CACHED` members of their entries, the caches are cleared,
  the steps of states that a caller keeps included.
- Repetitions are counted, never unrolled. An iteration without a character is not followed: if the item is
  nullable, the lower bound is zero, and fewer iterations match all that more can.
- Left recursion is an error: it would grow the stack for ever, here as in llama.cpp.

The language is that of llama.cpp's engine on decoded text, where neither NUL nor a surrogate ever matches.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from os.path import commonprefix

from gbnf.errors import AmbiguousGrammarError, line_and_column
from gbnf.grammar.analysis import BYTE
from gbnf.grammar.code_points import matchable
from gbnf.grammar.emit import emit_expr, emit_literal
from gbnf.grammar.ir import CharClass, Rules, char_class
from gbnf.grammar.network import (
    RETURN,
    CallNode,
    CharsNode,
    ChoiceNode,
    Cost,
    Network,
    Node,
    RepeatNode,
    ReturnNode,
    TextNode,
)
from gbnf.grammar.states import (
    Frame,
    Frames,
    Stack,
    Top,
    Tops,
    ending_cost,
    first_characters,
    next_characters,
    stack_count,
)

END_OF_TEXT = "end of text"

_MAX_CACHED = 200_000
_MAX_VISITS = 20_000


@dataclass(frozen=True, slots=True)
class Match:
    """The result of matching a text against a grammar.

    `accepted`: the whole text is a prefix of the language. `complete`: it is in the language. `position` is
    the index of the first character that does not match, or the text's length; `line` and `column` are its
    location, from 1. `expected` lists the terminals that are possible at `position`, as GBNF, in the
    grammar's order, and `END_OF_TEXT` last if the text may end there.
    """

    accepted: bool
    complete: bool
    position: int
    line: int
    column: int
    expected: tuple[str, ...]


class Matcher:
    """Matches texts against one grammar, and caches the steps for the next text.

    May be used by several threads at once. All methods raise AmbiguousGrammarError if the text so far has
    more than `_MAX_VISITS` derivations that continue differently.
    """

    def __init__(self, rules: Rules, *, with_costs: bool = True) -> None:
        """Raise GrammarError for rules that are undefined or left-recursive.

        Without costs, endings are not found; `Network` takes half as long.
        """
        self._root, self._network = rules.root, Network(rules, with_costs=with_costs)
        self._frames: dict[tuple[Node, int, Stack], Frame] = {}
        self._merged: dict[frozenset[Frame | None], Frames] = {}
        self._closures: dict[tuple[Node, Stack], Tops] = {}
        self._states: dict[Tops, MatchState] = {}
        self._stepped: list[MatchState] = []  # those that cache steps
        self._lock = threading.RLock()
        self._visits = 0  # of nodes and members, for one character
        self._cached = 0  # members of what is cached
        self.visits = 0  # for all characters so far

    def match(self, text: str) -> Match:
        """Match `text` from the start symbol, as far as it fits."""
        position, state = self.start().furthest(text)
        accepted = position == len(text)
        line, column = line_and_column(text, position)
        return Match(accepted, accepted and state.can_end, position, line, column, state.expected())

    def start(self, rule: str | None = None) -> MatchState:
        """Return the state before the first character, of texts of `rule` (default: the start symbol)."""
        with self._lock:
            self._visits = 0
            first = self._network.rule(self._root if rule is None else rule)
            tops, can_end = self._closure(first, None)
            return self._state((self._merge_stacks(dict.fromkeys(tops)), can_end))

    def step(self, state: MatchState, text: str) -> MatchState | None:
        """Return the state after a step, and cache it: see `MatchState.step`."""
        with self._lock:
            if len(self._frames) + self._cached > _MAX_CACHED:
                self._clear()
            following = self._compute_step(state, text)
            if not state.steps:
                self._stepped.append(state)
            state.steps[state.step_key(text)] = following
            self._cached += 1
            return following

    def _clear(self) -> None:
        self._cached = 0
        for state in self._stepped:
            state.steps.clear()
        for cache in (self._frames, self._merged, self._closures, self._states, self._stepped):
            cache.clear()

    def _compute_step(self, state: MatchState, text: str) -> MatchState | None:
        reached: dict[Top, None] = {}
        can_end = False
        self._visits = 0
        for node, offset, frame in state.tops:
            if isinstance(node, TextNode):
                if not node.text.startswith(text, offset):
                    continue
                after = offset + len(text)
                if after < len(node.text):
                    reached[node, after, frame] = None
                    continue
            elif not bisect_right(node.bounds, ord(text)) & 1:
                continue
            tops, ends = self._closure(node.next, frame)
            reached.update(dict.fromkeys(tops))
            can_end = can_end or ends
        return self._state((self._merge_stacks(reached), can_end)) if reached or can_end else None

    def _state(self, tops: Tops) -> MatchState:
        state = self._states.get(tops)
        if state is None:
            state = self._states.setdefault(tops, MatchState(*tops, self))
            self._cached += 1 + len(state.tops)
        return state

    def _merge_stacks(self, reached: dict[Top, None]) -> tuple[Top, ...]:
        """Return the tops with one stack for each terminal: the only one, or the union of several."""
        stacks: dict[tuple[TextNode | CharsNode, int], dict[Frame | None, None]] = {}
        count = 0
        for node, offset, stack in reached:
            members = stack.members if isinstance(stack, Frames) else (stack,)
            count += len(members)
            stacks.setdefault((node, offset), {}).update(dict.fromkeys(members))
        self._visit(count)
        return tuple((node, offset, self._merge(members)) for (node, offset), members in stacks.items())

    def union_of(self, states: Sequence[MatchState]) -> MatchState:
        """Return the state of all derivations of some states."""
        with self._lock:
            self._visits = 0
            tops = self._merge_stacks(dict.fromkeys(chain.from_iterable(state.tops for state in states)))
            return self._state((tops, any(state.can_end for state in states)))

    def _visit(self, count: int) -> None:
        self._visits += count
        self.visits += count
        if self._visits > _MAX_VISITS:
            raise AmbiguousGrammarError(_MAX_VISITS)

    def _merge(self, members: dict[Frame | None, None]) -> Stack:
        if len(members) == 1:
            return next(iter(members))
        key = frozenset(members)
        merged = self._merged.get(key)
        if merged is None:
            merged = self._merged.setdefault(key, Frames(tuple(members)))
            self._cached += len(members)
        return merged

    def _frame(self, node: Node, count: int, parent: Stack) -> Frame:
        key = (node, count, parent)
        frame = self._frames.get(key)
        return frame if frame is not None else self._frames.setdefault(key, Frame(node, count, parent))

    def _closure(self, node: Node, frame: Stack) -> Tops:
        """Return the tops that `node` reaches without a character, in the grammar's order."""
        cached = self._closures.get((node, frame))
        if cached is not None:
            return cached
        tops: dict[Top, None] = {}
        can_end = False
        seen: set[tuple[Node, Stack]] = set()
        begun: set[Frame] = set()  # iterations, of items that can be empty, without a character yet
        pending: list[tuple[Node, Stack]] = [(node, frame)]
        while pending:
            visit = pending.pop()
            if visit in seen:
                continue
            seen.add(visit)
            if self._visits + len(seen) > _MAX_VISITS:
                raise AmbiguousGrammarError(_MAX_VISITS)
            node_now, stack = visit
            match node_now:
                case TextNode() | CharsNode():
                    tops[node_now, 0, stack] = None
                case ChoiceNode(nexts):
                    pending.extend((following, stack) for following in reversed(nexts))
                case CallNode(name, following):
                    # A rule called last needs no frame: what follows its caller follows it.
                    inner = stack if following is RETURN else self._frame(following, 0, stack)
                    pending.append((self._network.rule(name), inner))
                case RepeatNode():
                    if node_now.minimum == 0:
                        pending.append((node_now.next, stack))
                    inner = self._frame(node_now, 1, stack)
                    if node_now.nullable:
                        begun.add(inner)
                    pending.append((node_now.item, inner))
                case ReturnNode():
                    if stack is None:
                        can_end = True
                    elif isinstance(stack, Frames):
                        pending.extend((RETURN, member) for member in stack.members)
                    elif not isinstance(stack.node, RepeatNode) or not stack.count:
                        pending.append((stack.node, stack.parent))
                    elif stack not in begun:
                        loop, count = stack.node, stack.count
                        if count >= loop.minimum:
                            pending.append((loop.next, stack.parent))
                        if loop.maximum is None or count < loop.maximum:
                            # Without an upper bound, counts past the lower one are all the same.
                            inner = self._frame(
                                loop, min(count + 1, loop.maximum or max(loop.minimum, 1)), stack.parent
                            )
                            if loop.nullable:
                                begun.add(inner)
                            pending.append((loop.item, inner))
        self._visit(len(seen))
        closure = (tuple(tops), can_end)
        self._closures[node, frame] = closure
        self._cached += 1 + len(tops)
        return closure


@dataclass(eq=False, slots=True, repr=False)
class MatchState:
    """The state of a grammar after a text: `advance` returns another one. Treat it as immutable.

    `tops`: the terminals that may come next, each with its offset, and where to return to after it.
    `can_end`: whether the text so far is in the language. `stacks`: how many llama.cpp's engine keeps for it,
    at most. `steps`: those that are cached, of a literal that is the only top by their lengths: the texts
    would take far more memory than is counted.
    """

    tops: tuple[Top, ...]
    can_end: bool
    _matcher: Matcher
    stacks: int = field(init=False)
    steps: dict[str | int, MatchState | None] = field(init=False, default_factory=dict)
    _literal: str = field(init=False, default="")
    _offset: int = field(init=False, default=0)
    _allowed: CharClass | None = field(init=False, default=None)
    _cost: Cost | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.stacks = sum(stack_count(stack) for _, _, stack in self.tops)
        if len(self.tops) == 1 and isinstance(self.tops[0][0], TextNode):
            self._literal, self._offset = self.tops[0][0].text, self.tops[0][1]

    @property
    def only_literal(self) -> str:
        """The rest of the literal, if it is the only top."""
        return self._literal[self._offset :]

    @property
    def must_end(self) -> bool:
        """Whether the text so far is in the language, and nothing can follow it."""
        return self.can_end and not self.allowed().ranges

    def advance(self, text: str) -> MatchState | None:
        """Return the state after `text`, None if it does not match."""
        position, state = self.furthest(text)
        return state if position == len(text) else None

    def furthest(self, text: str) -> tuple[int, MatchState]:
        """Return how many characters of `text` match, and the state after them."""
        state, position, end = self, 0, len(text)
        while position < end:
            if state._literal:
                step = text[position : position + len(state._literal) - state._offset]
                if not state._literal.startswith(step, state._offset):
                    step = commonprefix([step, state._literal[state._offset : state._offset + len(step)]])  # noqa: RUF071  # these are no paths
                    return position + len(step), (state.step(step) if step else None) or state
                position += len(step)
            else:
                step, position = text[position], position + 1
            following = state.steps.get(state.step_key(step))
            if following is None:
                following = state.step(step)
                if following is None:
                    return position - 1, state
            state = following
        return position, state

    def step(self, text: str) -> MatchState | None:
        """Return the state after a character, or several of the only literal; None if they do not match."""
        if self._literal and not self._literal.startswith(text, self._offset):
            return None
        key = self.step_key(text)
        return self.steps[key] if key in self.steps else self._matcher.step(self, text)

    def step_key(self, text: str) -> str | int:
        """Return the key of a step in `steps`."""
        return len(text) if self._literal else text

    def after_any(self, texts: Iterable[str]) -> MatchState | None:
        """Return the state after one of several texts, whichever it was; None if none matches."""
        states = [state for text in texts if (state := self.advance(text)) is not None]
        return self._matcher.union_of(states) if states else None

    def followers(self) -> Iterator[tuple[str, MatchState]]:
        """Yield the states after a character, or the rest of the only literal, with one such text of each."""
        for text in [self.only_literal] if self.only_literal else next_characters(self.tops):
            following = self.step(text)
            if following is not None:
                yield text, following

    def allowed(self) -> CharClass:
        """Return the characters that may come next; the class has no `ranges` if only the end may."""
        if self._allowed is None:
            self._allowed = char_class(*chain.from_iterable(map(first_characters, self.tops)))
        return self._allowed

    def expected(self) -> tuple[str, ...]:
        """Return the terminals that may come next, as GBNF, and `END_OF_TEXT` last if the text may end."""
        shown = [
            emit_literal(node.text[offset:]) if isinstance(node, TextNode) else emit_expr(node.chars)
            for node, offset, _ in self.tops
        ]
        return tuple(dict.fromkeys([*shown, *[END_OF_TEXT] * self.can_end]))

    @property
    def cost(self) -> Cost:
        """The cost of the shortest ending."""
        if self._cost is None:
            self._cost = 0 if self.can_end else min(map(ending_cost, self.tops), default=math.inf)
        return self._cost

    @property
    def ending_length(self) -> float:
        """The bytes of the shortest ending in UTF-8; infinity if there is none."""
        return self.cost if self.cost == math.inf else int(self.cost) // BYTE

    def shortest_ending(self) -> str:
        """Return a text of `ending_length` that ends the text so far, "" if there is none.

        Where several do, it is the first alternative's. Of each class it takes the first character.
        """
        state, parts = self, list[str]()
        while state.cost not in {0, math.inf}:
            node, offset, _ = min(state.tops, key=ending_cost)
            text = node.text[offset:] if isinstance(node, TextNode) else chr(matchable(node.chars)[0][0])
            parts.append(text)
            _, state = state.furthest(text)
        return "".join(parts)

    def forced(self, limit: int = 4096) -> str:
        """Return the text that must come next; "" if there is a choice, the end included.

        It has at most about `limit` characters, since a grammar may force an infinite text.
        """
        state, parts, length = self, list[str](), 0
        while length < limit and not state.can_end and (text := state._only_text()):
            following = state.step(text)
            if following is None:
                break
            parts.append(text)
            length += len(text)
            state = following
        return "".join(parts)

    def _only_text(self) -> str:
        """Return the rest of the only literal, or the only character that all tops accept, else ""."""
        if self.only_literal:
            return self.only_literal
        ranges = {pair for top in self.tops for pair in first_characters(top)}
        if len(ranges) != 1:
            return ""
        ((low, high),) = ranges
        return chr(low) if low == high else ""
