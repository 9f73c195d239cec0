"""Correct the calls in a model's text: a grammar holds those at the beginning of an answer only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TypeAlias

from gbnf import Tool
from gbnf.calls.repair import repair_call
from gbnf.prompts.messages import call_text
from gbnf.requests.coverage import argument_values
from gbnf.requests.ranking import common_words
from gbnf.tool_formats import CallStarted, Delta, ReasoningDelta, TextDelta
from gbnf.tool_formats.deltas import call_deltas
from gbnf_server.backends.answer import Answered, AnswerEvent, AnswerPiece, AnswerSource, Asked, ReadCall
from gbnf_server.planner.answer_checks import proposed_tool

AskAgain: TypeAlias = Callable[[Asked, Sequence[ReadCall]], Awaitable[Answered | None]]
"""Asks for an answer that has to call the tools of these calls; None if no grammar makes it valid."""


async def answer_corrected(
    source: AnswerSource, tools: Sequence[Tool], ask_again: AskAgain, user_text: str, asked: Asked
) -> AsyncGenerator[AnswerEvent, None]:
    """Yield the events of an answer. Invalid calls are corrected if nothing of them has left.

    They are repaired by their schemas, or else those of `ask_again` take their place, if it returns any. A
    text of a small model that only proposes a tool, "you can use `list_files`", is followed by its call if
    `user_text` has a word of the tool, and the values of the call.
    """
    held: AnswerPiece | None = None  # it has calls: those of a text come with its end
    async with aclosing(source(asked)) as events:
        async for event in events:
            end = event if isinstance(event, Answered) else None
            if held is not None:
                is_invalid = end is not None and end.invalid and len(end.calls) == _begun(held)
                if end is not None and is_invalid and all(call.ended for call in end.calls):
                    end = await asyncio.to_thread(_repaired, end, tools) or await again(
                        end, ask_again, asked, end.calls
                    )
                    texts = [delta for delta in held.deltas if isinstance(delta, TextDelta | ReasoningDelta)]
                    held = replace(held, deltas=(*texts, *deltas_of(end.calls)))
                yield held
            held = event if isinstance(event, AnswerPiece) and _begun(event) else None
            if held is None and end is not None and user_text and not end.calls:
                tool = proposed_tool(end.completion.text, tuple(tools), tuple(tools))
                if tool is not None and common_words(user_text, tool):
                    end = await again(end, ask_again, asked, [ReadCall(tool.name)])
                    if not all(is_said(call, user_text) for call in end.calls):
                        end = replace(end, calls=())
                    if end.calls:
                        yield AnswerPiece("", tuple(deltas_of(end.calls)))
            if held is None:
                yield end or event


def _begun(piece: AnswerPiece) -> int:
    return sum(isinstance(delta, CallStarted) for delta in piece.deltas)


def _repaired(answered: Answered, tools: Sequence[Tool]) -> Answered | None:
    """Return an answer with repaired calls, None if one remains invalid."""
    calls: list[ReadCall] = []
    for call in answered.calls:
        repaired = repair_call({"name": call.name, "arguments": call.arguments}, tools)
        if not repaired.ok:
            return None
        calls.append(ReadCall(call.name, [call_text(repaired.call["arguments"])], ended=True))
    return replace(answered, calls=tuple(calls), invalid=())


async def again(answered: Answered, ask_again: AskAgain, asked: Asked, calls: Sequence[ReadCall]) -> Answered:
    """Return an answer with the calls of another; unchanged without any, and if they are invalid."""
    required = await ask_again(asked, calls)
    if required is None or required.completion.grammar_violation is not None or required.invalid:
        return answered
    if not required.calls or not all(call.ended for call in required.calls):
        return answered
    return replace(answered, calls=required.calls, invalid=(), retries=answered.retries + 1)


def is_said(call: ReadCall, query: str) -> bool:
    """Return whether each value of a call is in what a user has said."""
    args, text = call.parsed(), query.casefold()
    return args is not None and all(value.casefold() in text for value in argument_values(args))


def deltas_of(calls: Sequence[ReadCall]) -> list[Delta]:
    """Return the deltas of whole calls."""
    written = (
        call_deltas(index, f"call_{index + 1}", call.name, call.arguments) for index, call in enumerate(calls)
    )
    return [delta for deltas in written for delta in deltas]
