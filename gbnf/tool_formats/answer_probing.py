"""The answers of a chat template: which texts end them, and its reasoning.

Of reasoning are derived its tags, what a prompt opens and what ends it. Templates that only remove reasoning
do not show its tags: for these `<think>` and `[THINK]` are known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Final

from gbnf.compiler.notations import Part
from gbnf.tool_formats.format import Reasoning
from gbnf.tool_formats.pieces import CONTROL_TEXT, Pieces, common_prefix, common_suffix, split_pieces, text_of
from gbnf.tool_formats.probing import (
    KEYS,
    NAMES,
    QUERY,
    REASON,
    RESULT,
    TEXT,
    USER,
    Call,
    Message,
    Prober,
    call_id,
    first_of,
    without_reasoning,
)
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
        texts = []
        endings = [text for text in self._eos if self.reasoning is None or text not in self.reasoning.end]
        for after in (self._after_call, self.after_text):
            start = first_of(after, endings)
            if start is not None:
                texts.append(next(text for text in endings if after.startswith(text, start)))
        return tuple(dict.fromkeys(texts)) or tuple(filter(None, [self._shared_end()]))

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
        text = text_of(after)
        answer = self._without_epilogue(text)
        end = first_of(answer, self.ends)
        limit = len(answer) if end is None else end
        pieces: list[Part] = []
        length = 0
        for piece in after:
            length += len(text_of([piece]))
            if length > limit:
                break
            pieces.append(piece)
        return tuple(pieces), text[limit:]


_KNOWN_REASONING = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))


def detect_reasoning(prober: Prober) -> Reasoning | None:
    """Return how the template writes reasoning, None if it has none."""
    openings = [prober.opening(reasoning=reasoning) for reasoning in (True, False)]
    header = past_text(prober)[0]
    written, closing = _written_reasoning(prober, openings[0], header)
    if written is None:
        rests = [opening.removeprefix(_beginning_in(opening, header)) for opening in openings]
        written = _tags_in(rests) or next(
            (tags for tags in _KNOWN_REASONING if all(tag in prober.renderer.source for tag in tags)), None
        )
    if written is None:
        return None
    begin, end = written
    ends = [prober.prompt(reasoning=reasoning).rpartition(QUERY)[2] for reasoning in (True, False)]
    reasoned, direct = (
        opening or (text if begin in text else "") for opening, text in zip(openings, ends, strict=True)
    )
    is_open = begin in reasoned and end not in reasoned
    common = ends[0].rstrip().removesuffix(begin)
    omitted = ends[1].removeprefix(common).strip() if ends[1].startswith(common) else ""
    is_named = begin in direct or end in direct
    return Reasoning(
        begin,
        end,
        prompt="open" if is_open else "none",
        closing=closing or f"\n{end}\n\n",
        repeats=bool(openings[1].strip()) and end.endswith(openings[1].strip()),
        omitted=omitted if is_open and not is_named and closing.endswith(omitted) else "",
    )


def past_text(prober: Prober) -> tuple[str, str]:
    """Return what stands around a past answer's text: most templates leave out its reasoning."""
    answer = prober.assistant(text=TEXT)
    try:
        full = prober.render([USER, answer, {"role": "user", "content": RESULT}])
    except RefusedError:
        return "", ""
    before, _, after = full.rpartition(TEXT)
    return before.rpartition(QUERY)[2], after.partition(RESULT)[0]


def _written_reasoning(prober: Prober, opening: str, header: str) -> tuple[tuple[str, str] | None, str]:
    """Return the tags of reasoning that the template writes itself, and exactly what ends it."""
    call = Call(NAMES[0], {KEYS[0]: TEXT})
    for reasoning, before, after in _around_reasoning(prober, prober.assistant([call], reasoning=REASON)):
        begin = _begin_of_reasoning(before.rpartition(QUERY)[2], opening, header)
        alone = prober.answer(prober.assistant([call]), [NAMES[0]], reasoning=reasoning)
        closing = after.removesuffix(alone) if after.endswith(alone) else ""
        if not closing.strip():
            closing = _exact_closing(prober, after)
        if begin and closing.strip():
            return (begin, closing.strip()), closing
    return None, ""


def _around_reasoning(prober: Prober, message: Message) -> Iterator[tuple[bool, str, str]]:
    """Yield what stands before and after the reasoning of an answer where it is shown.

    First of a template that is asked for reasoning, then of one that is not.
    """
    for reasoning in (True, False):
        with suppress(RefusedError):
            before, shown, after = prober.render([USER, message], reasoning=reasoning).partition(REASON)
            if shown:
                yield reasoning, before, after


def _exact_closing(prober: Prober, after: str) -> str:
    """Return what stands between reasoning and the answer, be it text or calls.

    `after`: what follows a reasoning before a call.
    """
    for _, _, rest in _around_reasoning(prober, prober.assistant(text=TEXT, reasoning=REASON)):
        pieces, text = split_pieces(after), split_pieces(rest.partition(TEXT)[0])
        return "".join(map(str, pieces[: common_prefix(pieces, text)]))
    tag = CONTROL_TEXT.search(after)
    return after[: tag.end()] if tag else ""


def _beginning_in(text: str, *others: str) -> str:
    """Return the longest beginning of a text, in whole pieces, that occurs in all of the others."""
    beginning = ""
    for piece in split_pieces(text):
        if any(beginning + str(piece) not in other for other in others):
            break
        beginning += str(piece)
    return beginning


def _begin_of_reasoning(before: str, opening: str, header: str) -> str:
    """Return the tag with which reasoning begins, from all that stands before it in an answer.

    `opening`: that of a prompt; `header`: what stands before an answer without reasoning.
    """
    prefix = _beginning_in(opening, before, header)
    if prefix.endswith(">") and not prefix.isspace():  # a tag that other texts begin with, too
        rest = before[before.rfind(prefix) + len(prefix) :]
        if rest[:1].isalnum():
            prefix = prefix[: -len(str(split_pieces(prefix)[-1]))]
    reasoning_begin = opening.removeprefix(_beginning_in(opening, before)).strip()
    begin = reasoning_begin or (before[before.rfind(prefix) + len(prefix) :].strip() if prefix else "")
    if begin:
        return begin
    last = before.rstrip().rpartition("\n")[2]  # the past shows its tags of reasoning, too
    tags = CONTROL_TEXT.findall(last)
    return str(tags[-1]) if tags and last.endswith(tags[-1]) else last


def _tags_in(prompts: Sequence[str]) -> tuple[str, str] | None:
    """Return the reasoning tags with which a prompt ends."""
    for prompt in prompts:
        tag = re.search(r"<(/?)([^<>/\s]+)>|\[(/?)([A-Z]+)\]", prompt)
        if tag:
            name = tag[2] or tag[4]
            return (f"<{name}>", f"</{name}>") if tag[2] else (f"[{name}]", f"[/{name}]")
    return None
