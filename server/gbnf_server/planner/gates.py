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

from gbnf.manifests import FINAL_ANSWER, Executor
from gbnf.validation import validate_call
from gbnf_server.backends.base import Completion
from gbnf_server.executors.results import DEPTH, depth_of
from gbnf_server.planner import calls
from gbnf_server.planner.events import Refusal
from gbnf_server.planner.reasoning import LEFT_OUT, take_thought, thought_in
from gbnf_server.planner.state import Settings, State


class Refused(Exception):  # noqa: N818 - a verdict that travels, not a fault of the program
    """A gate's verdict on the model's text, with the sentence that the model reads."""

    def __init__(self, refusal: Refusal, error: str) -> None:
        self.refusal, self.error = refusal, error
        super().__init__(error)


@dataclass(frozen=True, slots=True)
class Judged:
    """A call that passed every gate, its tool, and its arguments with the entries that they refer to.

    `repairs`: what reading it took; `thought`: what the model thought in it.
    """

    call: dict[str, Any]
    executor: Executor
    arguments: dict[str, Any]
    repairs: tuple[str, ...] = ()
    thought: str = ""


@dataclass(frozen=True, slots=True)
class Offer:
    """What the model may do in a step.

    `shown`: the tools that the system message tells of, those of the pool as the filter left it when the run
    began and the built-in ones; `told`: those and what later messages told of; `callable`: of those, what may
    be called; `refers_to`: the earlier steps that have entries.
    """

    shown: tuple[Executor, ...]

    told: tuple[Executor, ...]
    callable: tuple[Executor, ...]
    refers_to: tuple[int, ...]
    grammar: str | None


def judge(completion: Completion, offer: Offer, state: State, settings: Settings) -> Judged:
    """The call in the model's text. Raises `Refused` at the first gate that the text does not pass."""
    call, repairs = _read(completion, offer, settings)
    if depth_of(call, DEPTH) > DEPTH:  # what comes after walks through it, and JSON has no limit of its own
        raise Refused(
            "invalid", f"the call is nested deeper than {DEPTH} arrays and objects; write a flatter one"
        )
    thought = ""
    if settings.reasoning == "field":
        thought, call = take_thought(call)
        left_out = [repair for repair in repairs if LEFT_OUT in repair]
        if left_out:
            thought = thought_in(completion.text)
            repairs = tuple(repair for repair in repairs if repair not in left_out)
    verdict = validate_call(call, offer.callable, steps=offer.refers_to)
    if not verdict.ok:
        early = isinstance(call, dict) and call.get("name") == FINAL_ANSWER.name
        if early and FINAL_ANSWER not in offer.callable:
            first = settings.final_answer_from
            raise Refused("invalid", f"final_answer is possible from step {first} on; call a tool first")
        raise Refused("invalid", "; ".join(verdict.errors))
    if state.made[calls.canonical(call)] >= calls.REPEATS:
        raise Refused(
            "repeated",
            f"{call['name']} was already called {calls.REPEATS} times with these arguments; "
            "use what it returned, or call something else",
        )
    executor = next(tool for tool in offer.callable if tool.name == call["name"])
    try:
        arguments = calls.fill_references(executor, call["arguments"], state.entries)
    except ValueError as error:
        raise Refused("invalid", str(error)) from None
    return Judged(call, executor, arguments, repairs, thought)


def _read(completion: Completion, offer: Offer, settings: Settings) -> tuple[Any, tuple[str, ...]]:
    """The JSON value in the text, not yet validated. Raises `Refused` where there is none."""
    cut = completion.finish == "length"
    if not completion.text.strip() and completion.reasoning:
        raise Refused(
            "cut" if cut else "unparsed",
            "all of the text is thoughts, and no call came after them; think less, and write the call",
        )
    if settings.soft and not settings.grammar:
        try:
            return calls.read_softly(completion.text, offer.told, steps=offer.refers_to, cut=cut)
        except ValueError as error:
            raise Refused("cut" if cut else "unparsed", str(error)) from None
    if cut:
        raise Refused(
            "cut",
            f"the call was cut after {completion.completion_tokens} tokens and not executed; "
            "write a shorter one",
        )
    if completion.grammar_violation is not None:
        raise Refused("ungrammatical", f"the call does not fit the format: {completion.grammar_violation}")
    try:
        return calls.parse(completion.text), ()
    except ValueError as error:
        raise Refused(
            "unparsed", f'the text is not one JSON call {{"name": …, "arguments": {{…}}}}: {error}'
        ) from None
