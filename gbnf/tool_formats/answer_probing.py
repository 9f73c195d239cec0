"""The answers of a chat template, and which texts end them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

from gbnf.compiler.notations import Part
from gbnf.tool_formats.pieces import CONTROL_TEXT, Pieces, common_suffix, split_pieces
from gbnf.tool_formats.probing import (
    KEYS,
    NAMES,
    QUERY,
    TEXT,
    USER,
    Call,
    Message,
    Prober,
    call_id,
    without_reasoning,
)
from gbnf.tool_formats.reasoning_detection import detect_reasoning, past_text
from gbnf.tool_formats.sandbox import RefusedError

_END_OF_GENERATION: Final = """
<|im_end|> <|eot_id|> <|eom_id|> <|end|> <|return|> <|call|> <|calls|> <|flush|> <|end_of_text|> <|endoftext|>
<end_of_turn> <turn|> <|tool_response> <｜end▁of▁sentence｜> <end_of_utterance> <|END_OF_TURN_TOKEN|> </s>
"""  # llama.cpp, src/llama-vocab.cpp, special_eog_ids


class AnswerProber:
    """Renders answers after a prompt that asks for no reasoning."""

    def __init__(self, prober: Prober, eos_token: str) -> None:
        self.prober = prober
        self.reasoning = detect_reasoning(prober)
        self._eos = tuple(text for text in (eos_token, *_END_OF_GENERATION.split()) if text)
        try:
            answer = self.to(prober.assistant(text=TEXT), [TEXT])
        except RefusedError:
            answer = ""
        self.before_text, _, self.after_text = answer.partition(TEXT)

    def to(self, message: Message, marks: Sequence[str]) -> str:
        """Return an answer without the empty reasoning at its beginning; see `Prober.answer`."""
        return without_reasoning(self.prober.answer(message, marks), self.reasoning)

    def with_calls(self, calls: Sequence[Call]) -> str:
        """Return the text of an answer with calls."""
        return self.to(
            self.prober.assistant(calls), [mark for call in calls for mark in (call.name, call_id(0))]
        )

    @cached_property
    def ends(self) -> tuple[str, ...]:
        """The texts that end an answer."""
        found = []
        known = [text for text in self._eos if self.reasoning is None or text not in self.reasoning.end]
        for after in (self._after_call, self.after_text):
            at = first_of(after, known)
            if at is not None:
                found.append(next(text for text in known if after.startswith(text, at)))
        return tuple(dict.fromkeys(found)) or tuple(filter(None, [self._shared_end()]))

    @cached_property
    def _after_call(self) -> str:
        answer = self.with_calls([Call(NAMES[0], {KEYS[0]: TEXT})])
        after = answer.rpartition(TEXT)[2] if answer.count(TEXT) == 1 else answer.partition(TEXT)[2]
        return self._without_epilogue(after)

    def _shared_end(self) -> str:
        """Return what ends answers, and no other text, in a template that has no known token there."""
        after = split_pieces(self._after_call.rstrip())
        user = self.prober.render([USER]).rpartition(QUERY)[2]
        for other in (self.after_text, user):
            length = common_suffix(after, split_pieces(other.rstrip()))
            shared = after[len(after) - length :]
            tags = [piece for piece in shared if isinstance(piece, str) and CONTROL_TEXT.fullmatch(piece)]
            text = str(tags[-1]) if tags else "".join(map(str, shared)).strip()
            if text:
                return text
        past = CONTROL_TEXT.search(past_text(self.prober)[1])
        return past[0] if past and past[0] in self._after_call else ""

    def _without_epilogue(self, after: str) -> str:
        """Remove what a template adds after every conversation, not after every message."""
        ends = [end for end in self._eos if self.after_text.startswith(end)]
        if ends:
            epilogue = self.after_text[len(ends[0]) :]
            if epilogue.strip() and after.endswith(epilogue) and not after.endswith(self.after_text):
                return after[: len(after) - len(epilogue)]
        return after

    def cut(self, after: Pieces) -> tuple[Pieces, str]:
        """Split what follows the last call's arguments into what belongs to the answer, and the rest."""
        text = _plain(after)
        answer = self._without_epilogue(text)
        at = first_of(answer, self.ends)
        limit = len(answer) if at is None else at
        kept: list[Part] = []
        length = 0
        for piece in after:
            length += len(_plain([piece]))
            if length > limit:
                break
            kept.append(piece)
        return tuple(kept), text[limit:]


def _plain(pieces: Sequence[Part]) -> str:
    """Return pieces as text, with a character for each slot."""
    return "".join(piece if isinstance(piece, str) else "\0" for piece in pieces)


def first_of(text: str, ends: Sequence[str]) -> int | None:
    """Return where the first of these texts begins, None if there is none."""
    return min((at for end in ends if (at := text.find(end)) >= 0), default=None)
