"""The project's own format of calls, for models whose chat template has none.

    {"name": "tool", "arguments": {…}}      one call; further ones on lines of their own
    any text that does not begin like one   the answer

A text that begins with `{"name":` is a call, so that its first characters decide. Models that are trained to
answer with a tool may also write `{"name": "final_answer", "arguments": {"message": "…"}}`, whose message is
the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Literal

from gbnf import Grammar, compile_pool
from gbnf.compiler.layout import PropertyOrder
from gbnf.grammar.ir import EMPTY_LANGUAGE, EPSILON, Expr, Ref, Rules, alt, char_class, literal, repeat, seq
from gbnf.protocols.readers import FinalAnswerText
from gbnf.tool_formats import ArgumentsDelta, CallEnded, CallStarted, Delta, TextDelta
from gbnf.tools import FINAL_ANSWER, Tool

_BEGIN = '{"name":'
_HEAD = re.compile(r'\{"name": ?("(?:[^"\\]|\\.)*"), ?"arguments": ?(?=\{)')
# no rule of a pool has one of these names: those of its tools begin with "args"
_CALL, _TEXT, _REST = Ref("oneCall"), Ref("plainText"), Ref("restOfText")


def json_grammar(
    tools: Sequence[Tool],
    *,
    tool_choice: Literal["auto", "required"],
    parallel: bool,
    final_answer: bool,
    property_order: PropertyOrder = "any",
) -> Grammar:
    """Compile the grammar of an answer with calls of these tools, or a text if `tool_choice` is "auto".

    `parallel`: there may be several calls. `final_answer`: a text may also be a call of that built-in tool.
    """
    answers = final_answer and tool_choice == "auto" and all(tool.name != FINAL_ANSWER.name for tool in tools)
    pool = compile_pool(tools, final_answer=answers, property_order=property_order)
    productions = dict(pool.rules.productions)
    call = productions.pop("root")
    root: Expr = seq(_CALL, repeat(seq(literal("\n"), _CALL))) if parallel else _CALL
    if tool_choice == "auto":
        root = alt(root, _TEXT)
        # the rules of texts that neither are nor begin with the beginning of a call, or with a space
        text: Expr = EMPTY_LANGUAGE
        for index, expected in reversed(list(enumerate(_BEGIN))):
            others = char_class(expected, "" if index else " \t\r\n", negated=True)
            text = alt(seq(literal(expected), text), seq(others, _REST), EPSILON)
        productions |= {_TEXT.name: text, _REST.name: repeat(char_class(negated=True))}
    return Grammar(Rules({"root": root, _CALL.name: call, **productions}), pool.report)


class JsonCallStream:
    """Reads an answer of `json_grammar` piece by piece. The text has been matched against the grammar."""

    def __init__(self, *, final_answer: bool) -> None:
        self._final_answer = final_answer
        self._pending = ""
        self._mode: Literal["start", "text", "head", "arguments", "tail", "message"] = "start"
        self._index = -1
        self._object = _ObjectEnd()
        self._message = FinalAnswerText()

    def feed(self, chunk: str) -> list[Delta]:
        """Add the next characters; return what they tell."""
        self._pending += chunk
        return list(self._deltas())

    def close(self, *, truncated: bool = False) -> list[Delta]:  # noqa: ARG002 - see AnswerReader
        """End the answer; return the rest of its text."""
        if self._mode == "start" and self._pending:
            return [TextDelta(self._pending)]
        return []

    def _deltas(self) -> Iterator[Delta]:
        while self._pending:
            if self._mode == "start":
                if self._pending.startswith(_BEGIN):
                    self._mode = "head"
                elif _BEGIN.startswith(self._pending):
                    return
                else:
                    self._mode = "text"
            elif self._mode == "text":
                yield TextDelta(self._take(len(self._pending)))
            elif self._mode == "head":
                found = _HEAD.search(self._pending)
                if found is None:
                    return
                name = json.loads(found[1])
                if self._final_answer and name == FINAL_ANSWER.name:
                    self._mode = "message"
                else:
                    self._take(found.end())
                    self._index += 1
                    self._mode, self._object = "arguments", _ObjectEnd()
                    yield CallStarted(self._index, f"call_{self._index + 1}", name)
            elif self._mode == "message":
                yield from self._message.feed(self._take(len(self._pending)))
            elif self._mode == "arguments":
                end = self._object.find(self._pending)
                yield ArgumentsDelta(self._index, self._take(len(self._pending) if end is None else end))
                if end is not None:
                    self._mode = "tail"
            else:
                self._take(1)  # the brace after the arguments
                yield CallEnded(self._index)
                self._mode = "head"

    def _take(self, count: int) -> str:
        taken, self._pending = self._pending[:count], self._pending[count:]
        return taken


class _ObjectEnd:
    """Finds the end of a JSON object that arrives in pieces."""

    def __init__(self) -> None:
        self._depth, self._in_string, self._escaped = 0, False, False

    def find(self, piece: str) -> int | None:
        """Return the index after the object's last character, None if it is not in the piece."""
        at = 0
        if self._escaped and piece:
            at, self._escaped = 1, False
        for found in _STRUCTURE.finditer(piece, at):
            sign = found[0]
            if sign == '"':
                self._in_string = not self._in_string
            elif sign[0] == "\\":
                self._escaped = len(sign) == 1
            elif not self._in_string:
                self._depth += 1 if sign == "{" else -1
                if not self._depth:
                    return found.end()
        return None


_STRUCTURE = re.compile(r'["{}]|\\.?', re.DOTALL)
