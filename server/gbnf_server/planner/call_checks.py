"""The gates between a model's text and a call that may be executed.

A text goes through them in order, and the first that refuses it is its `Refusal`:

    cut             the token limit ended it, so that what stands there is not what the model meant
    ungrammatical   it does not fit the grammar that the backend was given: the backend ignored it
    unparsed        it is no JSON text, or one with duplicate keys, half characters or endless numbers; or the
                    server sent what is no text at all (`MalformedText`), and there is none to judge
    invalid         it is JSON and no valid call of an offered tool
    repeated        it is a valid call that was already made `calls.REPEATS` times in this run

Only what passes them all is ever executed. Where calls are read softly, `calls.read_softly` stands in place
of the first three, and a call that was cut still passes none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gbnf.calls.validation import validate_call
from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf.tools import FINAL_ANSWER, Tool
from gbnf_server.backends.base import AnswerFormat, Completion
from gbnf_server.executors.results import MAX_DEPTH, nesting_depth
from gbnf_server.planner import calls
from gbnf_server.planner.events import Refusal
from gbnf_server.planner.reasoning import DROPPED_REASONING, find_reasoning, pop_reasoning
from gbnf_server.planner.run_state import RunState, Settings


class CallRefused(Exception):  # noqa: N818 - a verdict that travels, not a fault of the program
    """A gate's verdict on the model's text, with the sentence that the model reads."""

    def __init__(self, refusal: Refusal, error: str) -> None:
        self.refusal, self.error = refusal, error
        super().__init__(error)


@dataclass(frozen=True, slots=True)
class AcceptedCall:
    """A call that passed every gate, its tool, and its arguments with the entries that they refer to.

    `repairs`: what reading it took; `reasoning`: what the model thought in it.
    """

    call: dict[str, Any]
    tool: Tool
    arguments: dict[str, Any]
    repairs: tuple[str, ...] = ()
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """What the model may do in a step.

    `in_system_message`: the tools that the system message tells of, those of the pool as the filter left it when the run
    began and the built-in ones; `described`: those and what later messages told of; `callable`: of those, what may
    be called; `refers_to`: the earlier steps that have entries.
    """

    in_system_message: tuple[Tool, ...]

    described: tuple[Tool, ...]
    callable: tuple[Tool, ...]
    refers_to: tuple[int, ...]
    grammar: AnswerFormat | None


def check_completion(
    completion: Completion, offer: OfferedTools, state: RunState, settings: Settings
) -> AcceptedCall:
    """The call in the model's text. Raises `CallRefused` at the first gate that the text does not pass."""
    call, repairs = _read(completion, offer, settings)
    if (
        nesting_depth(call, MAX_DEPTH) > MAX_DEPTH
    ):  # what comes after walks through it, and JSON has no limit of its own
        raise CallRefused(
            "invalid", f"the call is nested deeper than {MAX_DEPTH} arrays and objects; write a flatter one"
        )
    reasoning = ""
    if settings.reasoning == "field":
        reasoning, call = pop_reasoning(call)
        left_out = [repair for repair in repairs if DROPPED_REASONING in repair]
        if left_out:
            reasoning = find_reasoning(completion.text)
            repairs = tuple(repair for repair in repairs if repair not in left_out)
    verdict = validate_call(call, offer.callable, steps=offer.refers_to)
    if not verdict.ok:
        early = isinstance(call, dict) and call.get("name") == FINAL_ANSWER.name
        if early and FINAL_ANSWER not in offer.callable:
            first = settings.final_answer_from
            raise CallRefused("invalid", f"final_answer is possible from step {first} on; call a tool first")
        raise CallRefused("invalid", "; ".join(verdict.errors))
    if state.call_counts[calls.canonical(call)] >= calls.MAX_REPEATS:
        raise CallRefused(
            "repeated",
            f"{call['name']} was already called {calls.MAX_REPEATS} times with these arguments; "
            "use what it returned, or call something else",
        )
    tool = next(tool for tool in offer.callable if tool.name == call["name"])
    try:
        arguments = calls.fill_references(tool, call["arguments"], state.entries)
    except ValueError as error:
        raise CallRefused("invalid", str(error)) from None
    return AcceptedCall(call, tool, arguments, repairs, reasoning)


def _read(completion: Completion, offer: OfferedTools, settings: Settings) -> tuple[Any, tuple[str, ...]]:
    """The JSON value in the text, not yet validated. Raises `CallRefused` where there is none."""
    truncated = completion.finish == "length"
    if not completion.text.strip() and completion.reasoning:
        raise CallRefused(
            "cut" if truncated else "unparsed",
            "all of the text is thoughts, and no call came after them; think less, and write the call",
        )
    if settings.soft and not settings.grammar:
        try:
            return calls.parse_text_call(
                completion.text, offer.described, steps=offer.refers_to, truncated=truncated
            )
        except ValueError as error:
            raise CallRefused("cut" if truncated else "unparsed", str(error)) from None
    if truncated:
        raise CallRefused(
            "cut",
            f"the call was cut after {completion.completion_tokens} tokens and not executed; "
            "write a shorter one",
        )
    if completion.grammar_violation is not None:
        raise CallRefused(
            "ungrammatical", f"the call does not fit the format: {completion.grammar_violation}"
        )
    try:
        return parse_json(completion.text), ()
    except InvalidJsonError as error:
        raise CallRefused(
            "unparsed", f'the text is not one JSON call {{"name": …, "arguments": {{…}}}}: {error}'
        ) from None
