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

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from math import inf
from typing import Any, TypeAlias, TypeVar

from gbnf.errors import GbnfError
from gbnf.prompts.messages import Image, Message, error_text, result_text
from gbnf.protocols.protocol import AnswerFormat
from gbnf.protocols.readers import AnswerReader, SpokenText, Unread
from gbnf.tools import ASK_USER, FINAL_ANSWER, FIND_TOOLS, Tool
from gbnf.tools.evidence import Evidence, gather_evidence
from gbnf.tools.tool import offered_args
from gbnf_server.backends.base import Completion, Request
from gbnf_server.backends.reasoning import reasoning_grammar
from gbnf_server.executors.results import MAX_DEPTH, nesting_depth, too_deep
from gbnf_server.planner import calls, salvage
from gbnf_server.planner.call_checks import CallRefusedError, OfferedTools, check_completion
from gbnf_server.planner.compaction import compacted, next_compaction
from gbnf_server.planner.contracts import messages as contract_messages
from gbnf_server.planner.effects import AskApproval, AskPerson, CallModel, Effect, ExecuteTool
from gbnf_server.planner.events import (
    CallBlocked,
    Event,
    HistoryCompacted,
    ModelCalled,
    Purpose,
    Run,
    RunFinished,
    RunStarted,
    SalvageStarted,
    Step,
    StepStarted,
    ToolCalled,
    ToolDone,
    ToolFailed,
    ToolFault,
    WarningRaised,
)
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.planner.prerequisites import OrderedTools, answer_of, named, order_tools, succeeded
from gbnf_server.planner.reasoning import call_messages, reasoning_messages, reasoning_text
from gbnf_server.planner.repeats import canonical
from gbnf_server.planner.run_state import RunState
from gbnf_server.planner.tool_offer import declared_tools, find_tools, offer_tools, select, system_message
from gbnf_server.system.errors import (
    BackendUnreachableError,
    ContextOverflowError,
    ExecutorError,
    ExecutorTimeoutError,
    MalformedTextError,
)

Clock: TypeAlias = Callable[[], datetime]
Planning: TypeAlias = Generator[Effect | Event, Any, Run]
"""A run in progress: yields effects and events, returns the finished run."""

_SALVAGE_SHARE = 0.1
"""The part of `max_seconds` that is added for a salvaged answer."""
_LEAST_SECONDS = 0.05
"""Less than this is not worth a generation, and timers are less exact."""

_Value = TypeVar("_Value")
_Part: TypeAlias = Generator[Effect | Event, Any, _Value]


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
    said = [message["content"] for message in history if message["role"] == "user"]
    state = RunState(query, turn, clock(), images, history=list(history), said=said)
    state.calls.repeats_all = options.repeat_calls
    return _Loop(order_tools(tools, options), options, clock, state).run()


def check_request(query: str) -> None:
    """Raise ValueError if a request is blank, or contains a lone surrogate."""
    if not query.strip():
        raise ValueError("the request is empty")
    try:
        query.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the request contains a lone surrogate at index {error.start}") from None


@dataclass(frozen=True, slots=True)
class _Loop:
    order: OrderedTools
    options: ResolvedOptions
    clock: Clock
    state: RunState

    def run(self) -> Planning:
        state, options = self.state, self.options
        asked: Message = {"role": "user", "content": state.query}
        state.history.append({**asked, "images": state.images} if state.images else asked)
        selection = select(self.order.tools, state, options)
        dropped = {**self.order.unreachable, **selection.dropped}
        yield from self._emit(
            RunStarted(
                state.started_at,
                state.query,
                state.turn,
                options.backend,
                options.protocol.is_constrained,
                tuple(tool.name for tool in selection.kept),
                {tool.name: reason for tool, reason in dropped.items()},
            )
        )
        if selection.notice:
            yield from self._warn(selection.notice)
        for tool, reason in self.order.unreachable.items():
            yield from self._warn(f"the tool {tool.name} is never offered: {reason}")
        for tool in selection.kept:
            for finding in tool.findings:
                yield from self._warn(str(finding))
        lost = False
        try:
            run = None
            while run is None:
                run = yield from self._step()
        except GbnfError as error:
            if self._seconds_left() > _LEAST_SECONDS:
                run = state.finish("failed", self.clock(), error=str(error))
                lost = isinstance(error, BackendUnreachableError)
            else:
                run = self._exhausted(f"{options.max_seconds:g} seconds")
        if options.salvage and run.outcome != "answered":
            run = yield from self._salvage(run, ask=not lost)
        hook_errors = yield RunFinished(self.clock(), run)
        return replace(run, warnings=(*run.warnings, *(hook_errors or ())))

    def _step(self) -> _Part[Run | None]:
        """Do one step; return the finished run if it was the last."""
        state, options = self.state, self.options
        if state.number == options.max_steps:
            return self._exhausted(f"{options.max_steps} steps")
        if self._seconds_left() <= _LEAST_SECONDS:
            return self._exhausted(f"{options.max_seconds:g} seconds")
        state.number += 1
        begun = self.clock()
        offer = offer_tools(self.order, state, options)
        for reason in sorted(state.left_out):
            yield from self._warn(f"a tool cannot be compiled, and is not offered: {reason}")
        at = self.clock()
        names = tuple(tool.name for tool in offer.callable if offered_args(tool, offer.refers_to) is not None)
        seconds = (at - begun).total_seconds()
        yield from self._emit(StepStarted(at, state.number, names, offer.refers_to, seconds, offer.excluded))
        if not names:
            error = "every call that is left would repeat an earlier one"
            if not offer.left_out:
                error = "no tool can be called before an earlier step has entries"
            return state.finish("blocked", at, error=f"{error}{self._still_required()}")
        try:
            completion, step = yield from self._decode(offer)
        except MalformedTextError as error:
            step = Step(state.number, "", model_s=(self.clock() - at).total_seconds())
            return (yield from self._block(step, CallRefusedError("unparsed", str(error)), offer))
        try:
            accepted = check_completion(completion, offer, state, options)
        except CallRefusedError as refused:
            return (yield from self._block(step, refused, offer))
        call = accepted.call
        state.blocked_in_a_row = 0
        state.history.append(options.protocol.call_message(call, state.number))
        reasoning = accepted.reasoning or step.reasoning
        step = replace(step, call=call, repairs=accepted.repairs, reasoning=reasoning)
        if call["name"] == FINAL_ANSWER.name:
            answer = call["arguments"]["message"]
            state.steps.append(step)
            return state.finish("answered", self.clock(), answer=answer)
        yield from self._execute(accepted.tool, step, accepted.arguments, offer)
        result = state.steps[-1].result
        if result is not None and accepted.tool.offer.terminal:
            return state.finish("answered", self.clock(), answer=answer_of(result))
        return None

    def _exhausted(self, limit: str) -> Run:
        error = f"no final answer within {limit}{self._still_required()}; allow more, or ask for less"
        return self.state.finish("exhausted", self.clock(), error=error)

    def _seconds_left(self) -> float:
        """Return the seconds that are left for the run; infinity without a limit."""
        limit = inf if self.options.max_seconds is None else self.options.max_seconds
        return limit + self.state.waited_s - (self.clock() - self.state.started_at).total_seconds()

    def _still_required(self) -> str:
        """Return the required tools that have not succeeded, for an error message; "" if there is none."""
        missing = set(self.options.required) - succeeded(self.state.steps)
        return (
            f", and these required tools have not succeeded: {', '.join(named(sorted(missing), 'any'))}"
            if missing
            else ""
        )

    def _decode(self, offer: OfferedTools) -> _Part[tuple[Completion, Step]]:
        """Generate the next call; return the completion, and the step as far as it is known.

        If the history nears the context, or a prompt did not fit, it is compacted first: once for each tier.
        """
        state, system = self.state, system_message(offer, self.options)
        yield from self._compact(system)
        while True:
            try:
                return (yield from self._generate(offer, system))
            except ContextOverflowError as error:
                state.meter = state.meter.overflowed(error, self._prompt(system))
                if not (yield from self._compact(system, overflowed=True)):
                    raise

    def _prompt(self, system: Message) -> tuple[Message, ...]:
        state = self.state
        return (
            *([system] if system["content"] else ()),
            *compacted(state.history, state.steps, state.compaction, self.options.language),
        )

    def _compact(self, system: Message, *, overflowed: bool = False) -> _Part[bool]:
        """Show less of the history, if that is needed; return whether it was, and is possible."""
        state, options = self.state, self.options
        change = options.compact and next_compaction(
            system, state.history, state.steps, state.compaction, state.meter, options, overflowed=overflowed
        )
        if not change:
            return False
        state.compaction = found = change.compaction
        tokens = change.tokens_before, change.tokens_after
        yield from self._emit(HistoryCompacted(self.clock(), state.number, found.tier, found.steps, *tokens))
        return True

    def _generate(self, offer: OfferedTools, system: Message) -> _Part[tuple[Completion, Step]]:
        state, options = self.state, self.options
        messages, tools = self._prompt(system), declared_tools(offer, options)
        reasoning, thinking_s = "", 0.0
        if options.reasoning == "free" and not options.protocol.reasons_first:
            reasoning_tags, language = options.reasoning_tags, options.language
            thinking, thinking_s = yield from self._ask(
                reasoning_messages(messages, reasoning_tags, language),
                None if reasoning_tags is None else reasoning_grammar(reasoning_tags.closing),
                "reasoning",
                tools,
            )
            reasoning = reasoning_text(thinking, reasoning_tags)
            messages = call_messages(messages, reasoning, reasoning_tags, language)
        evidence = None
        if offer.grammar is not None:
            said = "\n".join([*state.said, state.query])
            built_in = {FINAL_ANSWER, ASK_USER, FIND_TOOLS}
            callable_tools = (tool for tool in offer.callable if tool not in built_in)
            evidence = gather_evidence(said, callable_tools, options.evidence)
        completion, seconds = yield from self._ask(messages, offer.grammar, "call", tools, evidence)
        if completion.reclaimed:
            yield from self._warn(
                f"step {state.number}: the server returned the call as reasoning, and it was moved back; "
                "disable the server's reasoning parser"
            )
        if completion.grammar_violation is not None:
            yield from self._warn(
                f"step {state.number}: the backend did not enforce the grammar "
                f"({completion.grammar_violation}); update it, or use the call format text"
            )
        reasoning = reasoning or completion.reasoning
        return completion, Step(
            state.number, completion.text, model_s=seconds + thinking_s, reasoning=reasoning
        )

    def _ask(
        self,
        messages: tuple[Message, ...],
        grammar: AnswerFormat | None,
        purpose: Purpose,
        tools: tuple[dict[str, Any], ...] = (),
        evidence: Evidence | None = None,
    ) -> _Part[tuple[Completion, float]]:
        """Call the model; return the completion, and its seconds."""
        state, options = self.state, self.options
        reasons = purpose == "call" and options.protocol.reasons_first
        max_tokens = options.reasoning_budget if purpose == "reasoning" else options.max_tokens
        seconds_left = self._seconds_left()
        if purpose == "salvage" and options.max_seconds is not None:
            seconds_left = max(seconds_left, 0) + options.max_seconds * _SALVAGE_SHARE
        begun = self.clock()
        request = Request(
            messages,
            grammar,
            tools=tools,
            reasoning=reasons,
            max_tokens=max_tokens + options.reasoning_budget if reasons else max_tokens,
            temperature=options.temperature,
            seed=options.seed,
            evidence=evidence,
            timeout_s=None if options.max_seconds is None else max(seconds_left, _LEAST_SECONDS),
        )
        completion = yield CallModel(request, _reader(purpose, options), state.number, purpose)
        assert isinstance(completion, Completion)
        at = self.clock()
        seconds = (at - begun).total_seconds()
        state.meter = state.meter.measured(completion, messages)
        state.tokens.update(
            prompt=completion.usage.prompt_tokens,
            completion=completion.usage.completion_tokens,
            cached=completion.usage.cached_tokens,
        )
        yield from self._emit(
            ModelCalled(
                at,
                state.number,
                completion.text,
                completion.finish_reason,
                completion.usage,
                completion.timings,
                seconds,
                completion.reasoning,
                purpose,
                completion.shortened_at,
                completion.repeated,
            )
        )
        return completion, seconds

    def _salvage(self, run: Run, *, ask: bool) -> _Part[Run]:
        """Build an answer from the results of a run that has none; return the run as it is without results.

        Not while a call waits for approval, since the request is not finished.
        """
        state, options = self.state, self.options
        done = salvage.found(state.steps)
        if run.outcome in {"answered", "salvaged"} or not done or state.pending:
            return run
        assert run.error is not None
        numbers = tuple(step.number for step in done)
        yield from self._emit(
            SalvageStarted(self.clock(), state.number, run.outcome, run.error, numbers)  # type: ignore[arg-type]  # an outcome without an answer
        )
        if ask:
            constrained = options.protocol.is_constrained and options.dialect == "gbnf"
            question = salvage.question(state.query, done, options.language)
            messages = contract_messages(salvage.CONTRACT, question, language=options.language)
            try:
                completion, _ = yield from self._ask(
                    tuple(messages), salvage.CONTRACT.grammar if constrained else None, "salvage"
                )
                found = salvage.read(completion, state.query, done, options.language)
            except GbnfError as error:
                found = salvage.answer_from_results(done, options.language, f"error: {error}")
        else:
            found = salvage.answer_from_results(done, options.language, "error: the server is gone")
        return state.finish("salvaged", self.clock(), answer=found.text, error=run.error, salvage=found)

    def _block(self, step: Step, refused: CallRefusedError, offer: OfferedTools) -> _Part[Run | None]:
        """Add the refusal to the history; return the finished run if it was one too many in a row."""
        state = self.state
        state.blocked_in_a_row += 1
        error = error_text(
            state.number, self._counted(refused.error, refused.tool, offer, refused.refusal == "repeated")
        )
        state.history += self.options.protocol.refused_messages(step.text, refused.call, error, step.number)
        state.steps.append(replace(step, error=refused.error, refusal=refused.refusal))
        count = state.blocked_in_a_row
        yield from self._emit(
            CallBlocked(self.clock(), step.number, refused.refusal, step.text, refused.error, count)
        )
        if state.blocked_in_a_row < self.options.max_blocked:
            return None
        return state.finish(
            "blocked",
            self.clock(),
            error=f"{state.blocked_in_a_row} calls in a row were refused; the last: {refused.error}",
        )

    def _execute(self, tool: Tool, done: Step, arguments: dict[str, Any], offer: OfferedTools) -> _Part[None]:
        """Execute a valid call, with approval if required, and add its result to the history."""
        assert done.call is not None
        state, number = self.state, self.state.number
        begun = self.clock()
        yield from self._emit(
            ToolCalled(begun, number, tool.name, arguments, tool.run.effect, asks=tool.run.confirm)
        )
        printed: list[str] = []
        try:
            result = yield from self._perform(tool, arguments, printed.append)
        except GbnfError as error:
            at = self.clock()
            seconds = (at - begun).total_seconds()
            fault = _fault(error)
            output = "\n".join([*printed, *getattr(error, "__notes__", ())])
            state.calls.add_failure(done.call, str(error))
            self._tell(error_text(number, self._counted(str(error), tool, offer)), tool)
            yield from self._emit(ToolFailed(at, number, tool.name, fault, str(error), seconds, output))
            state.steps.append(replace(done, error=str(error), fault=fault, tool_s=seconds, output=output))
            if not isinstance(error, ExecutorError):
                raise  # not the tool's error but the machine's: the model can't handle it
            return
        at = self.clock()
        seconds = (at - begun).total_seconds()
        state.calls.add_result(tool, done.call, result)
        if entries := calls.result_entries(result):
            state.entries[number] = entries
        self._tell(result_text(number, result), tool)
        output = "\n".join(printed)
        yield from self._emit(ToolDone(at, number, tool.name, result, seconds, output))
        state.steps.append(replace(done, result=result, tool_s=seconds, output=output))

    def _counted(
        self, error: str, tool: Tool | None, offer: OfferedTools, is_repetition: bool = False
    ) -> str:
        """Count a failed or refused call; return the error, and why the next step leaves its tool out."""
        others = any(tool is None or other.name != tool.name for other in offer.callable)
        if tool is None or not others or tool.name in (FINAL_ANSWER.name, ASK_USER.name):
            return error
        reason = self.state.calls.count_failure(tool, is_repetition=is_repetition)
        return f"{error.rstrip('.')}. {reason}" if reason else error

    def _tell(self, outcome: str, tool: Tool) -> None:
        """Add the outcome of a call to the history."""
        state = self.state
        state.history.append(self.options.protocol.outcome_message(outcome, tool.name, state.number))

    def _perform(
        self, tool: Tool, arguments: Mapping[str, Any], on_output: Callable[[str], None]
    ) -> _Part[dict[str, Any]]:
        if tool == ASK_USER:
            answer = yield from self._waiting(
                AskPerson(arguments["question"], tuple(arguments.get("options", ())))
            )
            assert isinstance(answer, str)
            self.state.said.append(answer)
            return {"answer": answer, "entries": [answer]}
        if tool == FIND_TOOLS:
            return find_tools(arguments["query"], self.order.tools, self.state, self.options)
        if tool.run.confirm:
            call = {"name": tool.name, "arguments": arguments}
            asked = canonical(call)
            try:
                approved = yield from self._waiting(AskApproval(call))
            except ExecutorError as error:  # there is nobody to ask
                self.state.pending.add(asked)
                raise _DeniedError(str(error)) from None
            self.state.pending.discard(asked)
            if approved is not True:
                raise _DeniedError("the person did not approve this call; it was not executed")
        result = yield ExecuteTool(tool, arguments, on_output)
        assert isinstance(result, dict)
        if nesting_depth(result, MAX_DEPTH) > MAX_DEPTH:  # a run is stored as JSON
            raise too_deep(tool.name)
        return result

    def _waiting(self, question: AskPerson | AskApproval) -> _Part[Any]:
        """Ask a person; the time until the answer does not count."""
        begun = self.clock()
        try:
            return (yield question)
        finally:
            self.state.waited_s += (self.clock() - begun).total_seconds()

    def _emit(self, event: Event) -> _Part[None]:
        """Yield an event; errors of its hooks become warnings, each reported once."""
        for hook_error in (yield event) or ():
            yield from self._warn(hook_error)

    def _warn(self, message: str) -> _Part[None]:
        if message not in self.state.warnings:
            self.state.warnings.append(message)
            # not emitted again for a hook that raises at warnings, which would never end
            self.state.warnings.extend((yield WarningRaised(self.clock(), self.state.number, message)) or ())


def _reader(purpose: Purpose, options: ResolvedOptions) -> Callable[[], AnswerReader]:
    """Return what reads the part of a text that belongs to the final answer."""
    if purpose == "call":
        return options.protocol.answer_reader
    return SpokenText if purpose == "salvage" else Unread


class _DeniedError(ExecutorError):  # a person's decision, not a fault
    """The person did not approve the call."""


def _fault(error: GbnfError) -> ToolFault:
    match error:
        case _DeniedError():
            return "denied"
        case ExecutorTimeoutError():
            return "timeout"
        case _:
            return "error"
