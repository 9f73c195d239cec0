"""Readers of answers that are not in a tool-call format, or in one of two formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from gbnf import Grammar
from gbnf.grammar.ir import Ref, Rules, alt
from gbnf.grammar.match import MatchState
from gbnf.grammar.passes import renamed
from gbnf.prompts.messages import call_text
from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf.tool_formats import ArgumentsDelta, CallEnded, CallStarted, Delta, TextDelta
from gbnf.tools import FINAL_ANSWER


class DeltaStream(Protocol):
    """Reads an answer piece by piece."""

    def feed(self, chunk: str) -> list[Delta]:
        """Add the next characters; return what they tell."""
        ...

    def close(self, *, truncated: bool = False) -> list[Delta]:
        """End the answer; return the rest. `truncated`: a limit of tokens ended it."""
        ...


class PlainText:
    """An answer that is text, whatever it says."""

    def feed(self, chunk: str) -> list[Delta]:
        """Return the characters as text."""
        return [TextDelta(chunk)] if chunk else []

    def close(self, *, truncated: bool = False) -> list[Delta]:  # noqa: ARG002 - see DeltaStream
        """Return nothing: there is no rest."""
        return []


class WholeJsonCall:
    """One call as JSON in any layout, from servers that take a schema instead of a grammar."""

    def __init__(self) -> None:
        self._text: list[str] = []

    def feed(self, chunk: str) -> list[Delta]:
        """Keep the characters: only the whole call can be read."""
        self._text.append(chunk)
        return []

    def close(self, *, truncated: bool = False) -> list[Delta]:  # noqa: ARG002 - see DeltaStream
        """Return the call, or the message of a final answer. A truncated call is left out."""
        try:
            call = parse_json("".join(self._text))
            name, arguments = call["name"], call["arguments"]
            if name == FINAL_ANSWER.name:
                return [TextDelta(arguments["message"])]
        except (InvalidJsonError, LookupError, TypeError):
            return []
        return [CallStarted(0, "call_1", name), ArgumentsDelta(0, call_text(arguments)), CallEnded(0)]


class EitherStream:
    """An answer in the language of one of several grammars, each with its reader.

    The answer is read when only one of them is left, or at its end: then by the first whose language has it.
    """

    def __init__(self, ways: Iterable[tuple[Grammar, Callable[[], DeltaStream]]]) -> None:
        self._open: list[tuple[MatchState, Callable[[], DeltaStream]]] = [
            (grammar.matcher.start(), stream) for grammar, stream in ways
        ]
        self._pending: list[str] = []
        self._chosen: DeltaStream | None = None

    def feed(self, chunk: str) -> list[Delta]:
        """Add the next characters; return what they tell."""
        if self._chosen is not None:
            return self._chosen.feed(chunk)
        self._pending.append(chunk)
        advanced = ((state.advance(chunk), stream) for state, stream in self._open)
        left = [(state, stream) for state, stream in advanced if state is not None]
        self._open = left or self._open
        return self._choose(self._open[0][1]) if len(self._open) == 1 else []

    def close(self, *, truncated: bool = False) -> list[Delta]:
        """End the answer; return the rest."""
        if self._chosen is not None:
            return self._chosen.close(truncated=truncated)
        ended = [stream for state, stream in self._open if state.can_end]
        found = self._choose((ended or [stream for _, stream in self._open])[0])
        assert self._chosen is not None
        return found + self._chosen.close(truncated=truncated)

    def _choose(self, stream: Callable[[], DeltaStream]) -> list[Delta]:
        self._chosen = stream()
        return self._chosen.feed("".join(self._pending))


def union(first: Grammar, second: Grammar) -> Grammar:
    """Return the grammar of the texts in either language. The first does not refer to its own root."""
    one, other = first.rules.productions, second.rules.productions
    names = {name: Ref(f"second-{name}") for name in other}
    rules = {
        "root": alt(Ref("first-root"), names["root"]),
        "first-root": one["root"],
        **{name: expr for name, expr in one.items() if name != "root"},
        **{names[name].name: renamed(expr, names) for name, expr in other.items()},
    }
    return Grammar(Rules(rules), (*first.report, *second.report))
