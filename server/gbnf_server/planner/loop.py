"""The planner loop, without I/O: a generator that yields effects and events.

A driver (`gbnf_server.planner.drivers`) performs each effect and sends its reply back, or throws the
`GbnfError` that it raised; its reply to an event is the messages of hooks that raised. The clock and the
turn's id are arguments; the loop reads nothing else.

Invariants, whatever the model generates:

- only a call that passes every check of `gbnf_server.planner.call_checks` is executed, and once;
- no tool is called before its prerequisites have succeeded (`gbnf_server.planner.prerequisites`);
- every step adds one assistant and one tool message to the history, except the one that answers;
- the system message is the same in the whole run, whatever the grammar allows;
- the run ends within `max_steps` steps, soon after `max_seconds`, and `RunFinished` is its last event;
- no call that failed, or that has effect "write" and succeeded, is repeated without need
  (`gbnf_server.planner.repeats`);
- a salvaged answer is requested once, without tools, and its outcome is never `answered`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import takewhile
from math import inf
from typing import Any, TypeAlias

from gbnf.errors import GbnfError, clip
from gbnf.prompts.messages import Image, Message, call_text, error_text
from gbnf.protocols.field_lines import fits_lines
from gbnf.protocols.protocol import SHOWN_CHARACTERS
from gbnf.requests.parts import parts_of
from gbnf.requests.ranking import is_about, request_language
from gbnf.schema.keywords import pointer_key
from gbnf.tools import ASK_USER, FINAL_ANSWER, FIND_TOOLS, Tool
from gbnf.tools.prerequisites import missing_prerequisites
from gbnf.tools.tool import offered_args
from gbnf_server.backends.base import Completion
from gbnf_server.llama.token_values import ValueProbability
from gbnf_server.planner import salvage
from gbnf_server.planner.answer_checks import (
    proposed_calls,
    proposed_tool,
    proposes_call,
    words,
)
from gbnf_server.planner.call_checks import AcceptedCall, CallRefusedError, check_call, check_completion
from gbnf_server.planner.events import AskPerson, CallBlocked, Run, RunFinished, RunStarted, Step, StepStarted
from gbnf_server.planner.model_calls import LEAST_SECONDS, Clock, Part
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.planner.prerequisites import answer_of, named, order_tools
from gbnf_server.planner.run_state import OfferedTools, Parts, RunState
from gbnf_server.planner.small_models.preference import LIKELY, SURE
from gbnf_server.planner.small_models.progress import has_nothing_new, tools_for_what_is_left
from gbnf_server.planner.small_models.requested_arguments import narrowed
from gbnf_server.planner.small_models.requested_tools import (
    all_due_tools,
    due_tools,
    fits_alone,
    most_preferred_tools,
)
from gbnf_server.planner.tool_calls import ToolCalls
from gbnf_server.planner.tool_offer import offer_tools, select
from gbnf_server.system.errors import (
    BackendUnreachableError,
    ExecutorError,
    MalformedTextError,
    RequestNotSupportedError,
)

_CALL_BEGINNING = re.compile(r"\s*(?:[\[{<]|`{3,}\w*\s*[\[{<]|\w+\(|\w+:)")
"""Of what may be a call that was truncated, rather than a text."""
_MOST_WITHOUT_RESULT = 4
"""Steps in a row: a small model repeats a call that fails, and refused ones in between, to the last step."""

Planning: TypeAlias = Part[Run]
"""A run in progress: yields effects and events, returns the finished run."""


def plan(
    query: str,
    tools: tuple[Tool, ...],
    options: ResolvedOptions,
    *,
    turn: str,
    clock: Clock,
    images: tuple[Image, ...] = (),
    history: tuple[Message, ...] = (),
) -> Planning:
    """Plan and execute `query`, with its images, until an answer or a limit.

    `history`: the messages of earlier exchanges; their requests count for the pool filter.

    Raises ValueError at once if the query is blank, or contains a lone surrogate, and PoolError if the order
    of the tools allows no run.
    """
    check_request(query)
    texts = [message["content"] for message in history if message["role"] == "user"]
    if options.language == "auto":  # that of the first request, since the system message stays the same
        options = replace(options, language=request_language((*texts, query)[0], tools))
    state = RunState(query, turn, clock(), options, images=images, history=[*history], earlier_texts=texts)
    if options.guidance.declares_needed and options.filter:
        state.lead.takes_entries = {
            tool.name: target for tool in tools for target in tool.step_references.values() if target
        }
        tools = tuple(narrowed(tool, state.request) for tool in tools)
    state.order = order = order_tools(tools, options)
    if (
        order.final_answer is None
        and len(order.tools) == 1
        and fits_lines(order.tools[0])
        and not options.ask_user
    ):
        state.options = replace(options, only_tool=order.tools[0])
    is_whole = options.required or images or any(tool.offer.terminal for tool in order.tools)
    if options.guidance.divides and order.final_answer and not is_whole:
        state.query, *left = parts_of(query, order.tools)
        state.parts = Parts(tuple(left), messages_before=len(history))
    return _Loop(clock, state).run()


def check_request(query: str) -> None:
    """Raise ValueError if a request is blank, or contains a lone surrogate."""
    if not query.strip():
        raise ValueError("the request is empty")
    try:
        query.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the request contains a lone surrogate at index {error.start}") from None


class _Loop(ToolCalls):
    def run(self) -> Planning:
        state, options = self.state, self.options
        asked: Message = {"role": "user", "content": state.query}
        state.history.append({**asked, "images": state.images} if state.images else asked)
        selection = select(state)
        dropped = {**state.order.unreachable, **selection.dropped}
        yield from self.emit(
            RunStarted(
                state.started_at,
                state.whole_query,
                state.turn,
                options.backend,
                options.protocol.is_constrained,
                tuple(tool.name for tool in selection.kept),
                {tool.name: reason for tool, reason in dropped.items()},
            )
        )
        if selection.notice:
            yield from self.warn(selection.notice)
        for tool, reason in state.order.unreachable.items():
            yield from self.warn(f"the tool {tool.name} is never offered: {reason}")
        for tool in selection.kept:
            for finding in tool.findings:
                yield from self.warn(str(finding))
        lost = False
        try:
            run = None
            while run is None:
                try:
                    run = yield from self._step()
                except RequestNotSupportedError as error:
                    if self.options.call_format != "server" or error.field != "tools":
                        raise
                    yield from self._ask_in_text(error)
        except GbnfError as error:
            if (cut := state.unfinished) is not None:
                step = Step(cut.step, cut.text, model_s=cut.duration_s, reasoning=cut.reasoning)
                state.steps.append(replace(step, error=str(error)))
            if self.seconds_left() > LEAST_SECONDS:
                run = state.finish("failed", self.clock(), error=str(error))
                lost = isinstance(error, BackendUnreachableError)
            else:
                run = self._exhausted(f"{options.max_seconds:g} seconds")
        if options.salvage and run.outcome != "answered":
            run = yield from self.salvage(run, ask=not lost)
        hook_errors = yield RunFinished(self.clock(), run)
        return replace(run, warnings=(*run.warnings, *(hook_errors or ())))

    def _step(self) -> Part[Run | None]:
        """Do one step; return the finished run if it was the last."""
        state = self.state
        if (ended := self._at_limit()) is not None:
            return ended
        state.number += 1
        if state.lead.only_repeats:
            yield from self.emit(StepStarted(self.clock(), state.number, (FINAL_ANSWER.name,), (), 0.0))
            return (yield from self._answer_done())
        whole, offer = yield from self._offer()
        started_at = self.clock()
        names = tuple(tool.name for tool in offer.callable if offered_args(tool, offer.refers_to) is not None)
        evidence = None if offer.evidence is None else offer.evidence.summary()
        facts = names, offer.refers_to, offer.seconds, offer.excluded, evidence
        yield from self.emit(StepStarted(started_at, state.number, *facts))
        if not names:
            error = "every call that is left would repeat an earlier one"
            if not offer.resting:
                error = "no tool can be called before an earlier step has entries"
            return state.finish("blocked", started_at, error=f"{error}{self._still_required()}")
        if offer.only_answers:
            return (yield from self._answer_done())
        try:
            completion, step = yield from self.decode(offer)
            if offer is not whole and not state.lead.without_tools:
                offer = self._after_draft(completion.text, offer, whole)
                if state.lead.without_tools or offer is whole:
                    completion, step = yield from self.decode(offer)
        except MalformedTextError as error:
            step = Step(state.number, "", model_s=(self.clock() - started_at).total_seconds())
            return (yield from self._block(step, CallRefusedError("unparsed", str(error)), offer))
        return (yield from self._check(completion, step, offer, whole))

    def _at_limit(self) -> Run | None:
        """Return the run, finished without another step, if it has reached a limit."""
        state, options = self.state, self.options
        if state.number == options.max_steps:
            return self._exhausted(f"{options.max_steps} steps")
        if self.seconds_left() <= LEAST_SECONDS:
            return self._exhausted(f"{options.max_seconds:g} seconds")
        without_result = list(takewhile(lambda step: step.result is None, reversed(state.steps)))
        is_stuck = options.guidance.follows_request and len(without_result) >= _MOST_WITHOUT_RESULT
        if not is_stuck or state.lead.only_repeats:
            return None
        error = f"{len(without_result)} steps in a row had no result; the last: {without_result[0].error}"
        return state.finish("blocked", self.clock(), error=error)

    def _offer(self) -> Part[tuple[OfferedTools, OfferedTools]]:
        """Return what a step may offer, and what it offers: less if the model means to answer in prose."""
        state, options = self.state, self.options
        yield from self.choose_tool()
        begun = self.clock()
        offer = whole = offer_tools(state)
        offer = whole = replace(offer, seconds=(self.clock() - begun).total_seconds())
        if (yield from self.only_prose(offer)):
            ending = tuple(tool for tool in offer.callable if tool.name == FINAL_ANSWER.name)
            described = () if state.lead.without_tools else offer.described
            is_again = state.lead.without_tools and state.blocked_in_a_row > 0  # it has written a call
            grammar = salvage.text_grammar() if is_again else options.protocol.prose()
            offer = replace(offer, callable=ending, grammar=grammar, described=described)
        for reason in sorted(state.uncompilable_reasons):
            yield from self.warn(f"a tool cannot be compiled, and is not offered: {reason}")
        return whole, offer

    def _check(
        self, completion: Completion, step: Step, offer: OfferedTools, whole: OfferedTools
    ) -> Part[Run | None]:
        """Execute the call in a text, or refuse it; return the finished run if it was the last."""
        state, options = self.state, self.options
        try:
            accepted = check_completion(completion, offer, state)
        except CallRefusedError as refused:
            is_answer = refused.tool == FINAL_ANSWER and refused.refusal == "invalid"
            may_be_done = is_answer and options.guidance.follows_request and state.succeeded
            if may_be_done and (state.blocked_in_a_row or not tools_for_what_is_left(state)):
                return (yield from self._answer_done())
            is_call = refused.refusal in {"invalid", "unparsed"} and not is_answer
            if options.asks_first and is_call and not (whole.own or state.succeeded or state.calls.failures):
                state.lead.without_tools = (
                    True  # where only the answer is left, it writes the same call again
                )
            return (yield from self._block(step, refused, offer))
        unsure = [value for value in step.probabilities if value.probability < options.confirm_below]
        if accepted.tool.name in {ASK_USER.name, FIND_TOOLS.name, FINAL_ANSWER.name}:
            unsure = []
        if unsure and options.ask_user:
            try:
                accepted, unsure = yield from self._ask_values(accepted, unsure, offer)
            except CallRefusedError as refused:
                return (yield from self._block(step, refused, offer))
        parsed, call = accepted.parsed, accepted.parsed.call
        is_answer = call["name"] == FINAL_ANSWER.name
        if is_answer and (instead := self._calls_instead(call["arguments"]["message"], whole)) is not None:
            if not instead:
                return (yield from self._answer_done())
            return (yield from self._call_instead(step, instead, offer if state.succeeded else whole))
        state.blocked_in_a_row = 0
        message = options.protocol.call_message(call, state.number)
        if parsed.preface and not is_answer:
            preface = clip(parsed.preface, SHOWN_CHARACTERS)
            message = {**message, "content": f"{preface}\n\n{message['content']}".rstrip()}
        state.history.append(message)
        reasoning = parsed.reasoning or step.reasoning
        step = replace(step, call=call, repairs=parsed.repairs, reasoning=reasoning)
        if is_answer:
            state.steps.append(step)
            answer = call["arguments"]["message"]
            if state.is_divided and not state.done_calls and all_due_tools(state.order.tools, state):
                return state.finish("blocked", self.clock(), error=f"nothing was called for {state.query!r}")
            if options.guidance.adds_unread:
                answer = self.with_unread(answer, least=0.0)
            return None if state.next_part(answer) else state.finish("answered", self.clock(), answer=answer)
        yield from self.execute(accepted, step, offer, unsure)
        result = state.steps[-1].result
        if result is not None and accepted.tool.offer.terminal:
            return state.finish("answered", self.clock(), answer=answer_of(result))
        return None

    def _calls_instead(self, answer: str, whole: OfferedTools) -> tuple[Tool, ...] | None:
        """Return the tools of which a small model has to call one instead of its answer; None for none.

        () if its answer proposes a call, and nothing is left to call: then it answers from the results.
        """
        state = self.state
        if state.succeeded:
            corrects = self.options.guidance.corrects_answers
            if not (corrects and proposes_call(answer, state.order.tools)):
                return None
            return () if state.blocked_in_a_row else tools_for_what_is_left(state)
        if not state.lead.choice or state.blocked_in_a_row:
            return None
        asked = due_tools(state.order.tools, state)
        sure = (tool for tool in whole.own if state.lead.choice.get(tool.name, -inf) > SURE or tool in asked)
        tool = proposed_tool(answer, tuple(sure), state.order.tools)
        return (tool,) if tool and (tool.run.effect == "read" or tool in asked) else None

    def _ask_in_text(self, error: RequestNotSupportedError) -> Part[None]:
        """Go on with a run whose server refuses tools: the prompt describes them instead."""
        state = self.state
        guidance = state.options.guidance.in_prompt()
        state.options = replace(state.options, call_format="text", guidance=guidance)
        yield from self.warn(f"{error}. The prompt describes the tools instead (call format text)")
        state.number -= 1
        state.in_system_message = state.described = ()
        for index, message in enumerate(state.history):
            calls = [call_text(call["function"]) for call in message.get("tool_calls", ())]
            plain: Message = {
                "role": message["role"],
                "content": "\n".join(filter(None, [message["content"], *calls])),
            }
            state.history[index] = {**plain, "images": message["images"]} if "images" in message else plain

    def _after_draft(self, draft: str, offer: OfferedTools, whole: OfferedTools) -> OfferedTools:
        """Return what is offered after the draft of an answer: all tools if it calls one of them.

        None is even described if the request is about none: a small model calls, or recommends, anything that
        it reads of.
        """
        choice = self.state.lead.choice
        proposed = proposed_calls(draft, whole.described)
        named = None if proposed else proposed_tool(draft, self.state.order.tools, self.state.order.tools)
        is_chosen = bool(proposed) and proposed[0] == max(choice, key=choice.__getitem__, default="")
        is_chosen = is_chosen or (named is not None and choice.get(named.name, -inf) > SURE)
        unrelated = is_about(self.state.request, whole.own) is False and not is_chosen
        draft_words = words(draft)
        descriptions = (words(tool.description(self.options.language)) for tool in whole.described)
        if unrelated and (
            proposed or named or any(salvage.copies_words(draft_words, text) for text in descriptions)
        ):
            self.state.lead.without_tools = True
            return replace(offer, described=())
        return whole if proposed else offer

    def _call_instead(self, step: Step, tools: tuple[Tool, ...], offer: OfferedTools) -> Part[Run | None]:
        """Refuse a text that is no answer, since one of these tools has to be called."""
        self.state.lead.calls_next = frozenset(tool.name for tool in tools)
        names = " or ".join(tool.name for tool in tools)
        refused = CallRefusedError("unparsed", f"this is no answer; call {names}")
        return (yield from self._block(step, refused, offer))

    def _answer_done(self) -> Part[Run | None]:
        """Finish a run, or a part of its request, for which all is done with an answer from the results."""
        state = self.state
        begun = self.clock()
        completion, answer = yield from self.answer_done()
        step = Step(state.number, completion.text, model_s=(self.clock() - begun).total_seconds())
        if answer.by != "model" and state.parts.left:
            state.steps.append(replace(step, error=answer.error, refusal="invalid"))
            state.next_part(self.with_unread("", least=0.0).strip())
            return None
        if answer.by != "model":
            state.steps.append(replace(step, error=answer.error, refusal="invalid"))
            return state.finish("blocked", self.clock(), error=f"all is done, but {answer.error}")
        state.steps.append(
            replace(step, call={"name": FINAL_ANSWER.name, "arguments": {"message": answer.text}})
        )
        if state.next_part(answer.text):
            return None
        return state.finish("answered", self.clock(), answer=answer.text)

    def _may_answer(self) -> bool:
        """Return whether a text may end the run: no required tool is missing, and no tool ends it instead."""
        answer = self.state.order.final_answer
        return answer is not None and not missing_prerequisites((answer,), self.state.prerequisites)

    def _exhausted(self, limit: str) -> Run:
        error = f"no final answer within {limit}{self._still_required()}; allow more, or ask for less"
        return self.state.finish("exhausted", self.clock(), error=error)

    def _still_required(self) -> str:
        """Return the required tools that have not succeeded, for an error message; "" if there is none."""
        missing = set(self.options.required) - self.state.prerequisites
        names = ", ".join(named(sorted(missing), "any"))
        return names and f", and these required tools have not succeeded: {names}"

    def _block(self, step: Step, refused: CallRefusedError, offer: OfferedTools) -> Part[Run | None]:
        """Add the refusal to the history; return the finished run if it was one too many in a row.

        A model that reaches the token limit with the same text again will not write a shorter one.
        """
        state = self.state
        state.blocked_in_a_row += 1
        if refused.refusal == "repeated" and refused.call is not None:
            is_done = self.options.guidance.follows_request and state.calls.is_done(refused.call)
            repetitions = [earlier.text for earlier in state.steps if earlier.refusal == "repeated"]
            state.lead.only_repeats = is_done and step.text in repetitions and self._may_answer()
            state.lead.answers_next = is_done or has_nothing_new(refused.call, state)
        is_answer = refused.refusal == "invalid" and refused.tool == FINAL_ANSWER
        if state.lead.preference and is_answer and offer.own and not state.succeeded:
            # it has nothing to say that it has not read
            likely = most_preferred_tools(state.order.tools, state, LIKELY)
            state.lead.calls_next = frozenset(tool.name for tool in likely if tool.run.effect == "read")
        # a song that does not end becomes no calculation
        is_text = refused.refusal == "truncated" and not _CALL_BEGINNING.match(step.text)
        is_text = is_text or (is_answer and not offer.own)
        if is_text and state.lead.choice and not state.succeeded:
            state.lead.without_tools = is_about(state.request, state.order.tools) is False
        last = state.steps[-1] if state.steps else None
        is_stuck = (
            last is not None and refused.refusal == last.refusal == "truncated" and last.text == step.text
        )
        told, tool = refused.error, refused.tool
        is_again = refused.refusal == "repeated" or any(step.text == earlier.text for earlier in state.steps)
        may_stay = refused.refusal == "invalid" and not is_again
        # the tool that the request needs stays, since its call can be corrected
        if not (may_stay and tool and fits_alone(tool, offer.own, state)):
            told = self.counted(told, tool, offer, is_again)
        error = error_text(state.number, told)
        state.history += self.options.protocol.refused_messages(step.text, refused.call, error, step.number)
        state.steps.append(replace(step, error=refused.error, refusal=refused.refusal))
        count = state.blocked_in_a_row
        yield from self.emit(
            CallBlocked(self.clock(), step.number, refused.refusal, step.text, refused.error, count)
        )
        if state.lead.only_repeats or (state.blocked_in_a_row < self.options.max_blocked and not is_stuck):
            return None
        return state.finish(
            "blocked",
            self.clock(),
            error=f"{state.blocked_in_a_row} calls in a row were refused; the last: {refused.error}",
        )

    def _ask_values(
        self, accepted: AcceptedCall, unsure: list[ValueProbability], offer: OfferedTools
    ) -> Part[tuple[AcceptedCall, list[ValueProbability]]]:
        """Ask the person which values are meant; return the call, and the values that are still uncertain.

        Raises `CallRefusedError` if the call would be a repetition with these values.
        """
        uncertain = []
        for value in unsure:
            _, field, *path = value.pointer.split("/")
            if field != "arguments" or not path or not value.alternatives:
                uncertain.append(value)
                continue
            parsed = {text: json.loads(text) for text, _ in value.alternatives}
            choices = {choice if isinstance(choice, str) else text: choice for text, choice in parsed.items()}
            question = f"{accepted.tool.name}: which {'/'.join(path)}?"
            try:
                answer = yield from self.waiting(AskPerson(question, tuple(choices)))
            except ExecutorError:  # there is nobody to ask
                uncertain.append(value)
                continue
            call = deepcopy(accepted.parsed.call)
            set_value(call["arguments"], path, choices.get(answer, answer))
            try:
                accepted = check_call(replace(accepted.parsed, call=call), offer, self.state)
            except CallRefusedError as refused:
                if refused.refusal == "repeated":
                    refused.call, refused.tool = call, accepted.tool
                    raise
                uncertain.append(value)
        return accepted, uncertain


def set_value(container: Any, path: Sequence[str], value: Any) -> None:
    """Set the value at a path, the steps of a JSON Pointer, in a JSON object or array."""
    *outer, last = map(pointer_key, path)
    for step in outer:
        container = container[int(step) if isinstance(container, list) else step]
    container[int(last) if isinstance(container, list) else last] = value
