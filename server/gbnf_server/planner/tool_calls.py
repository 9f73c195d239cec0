"""What a run does with a valid call: it executes it, with approval if required, or asks a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gbnf.errors import GbnfError
from gbnf.prompts.messages import error_text, result_text
from gbnf.strict_json import nests_deeper
from gbnf.tools import ASK_USER, FINAL_ANSWER, FIND_TOOLS, Tool
from gbnf_server.executors import MAX_DEPTH, NOBODY_ANSWERS, too_deep
from gbnf_server.llama.token_values import ValueProbability
from gbnf_server.planner.call_checks import AcceptedCall
from gbnf_server.planner.events import (
    AskApproval,
    AskPerson,
    ExecuteTool,
    Step,
    ToolCalled,
    ToolDone,
    ToolFailed,
    ToolFault,
)
from gbnf_server.planner.model_calls import ModelCalls, Part
from gbnf_server.planner.repeats import canonical
from gbnf_server.planner.run_state import OfferedTools
from gbnf_server.planner.small_models.requested_arguments import invented_past
from gbnf_server.planner.step_references import result_entries
from gbnf_server.planner.tool_offer import find_tools
from gbnf_server.system.errors import ExecutorError, ExecutorTimeoutError


class ToolCalls(ModelCalls):
    """The tool calls of one run."""

    def execute(
        self, accepted: AcceptedCall, step: Step, offer: OfferedTools, unsure: Sequence[ValueProbability]
    ) -> Part[None]:
        """Execute a valid call, with approval if required, and add its result to the history."""
        call, tool, arguments = accepted.parsed.call, accepted.tool, accepted.arguments
        state, number = self.state, self.state.number
        today = state.started_at.date()
        changes = tool.run.effect == "write" and tool.affinity  # others may not say that they only read
        past = invented_past(arguments, state.request, today) if changes else ()
        asks = tool.run.confirm or bool(unsure) or bool(past)
        if past:
            yield from self.warn(f"step {number}: {', '.join(past)} is in the past, and not in the request")
        for value in unsure:
            shown = ", ".join(f"{text} {share:.0%}" for text, share in value.alternatives[:4])
            likely = shown or f"{value.probability:.0%}"
            yield from self.warn(f"step {number}: {value.pointer} is uncertain: {likely}")
        begun = self.clock()
        yield from self.emit(ToolCalled(begun, number, tool.name, arguments, tool.run.effect, asks=asks))
        printed: list[str] = []
        try:
            result = yield from self._perform(tool, arguments, printed.append, asks=asks)
        except GbnfError as error:
            ended_at = self.clock()
            seconds = (ended_at - begun).total_seconds()
            fault: ToolFault = "timeout" if isinstance(error, ExecutorTimeoutError) else "error"
            fault = "denied" if isinstance(error, _DeniedError) else fault
            output = "\n".join([*printed, *getattr(error, "__notes__", ())])
            state.calls.add_failure(call, str(error))
            if str(error).startswith(NOBODY_ANSWERS):
                state.calls.add_unapproved(tool, str(error))
            self._tell(error_text(number, self.counted(str(error), tool, offer)), tool)
            yield from self.emit(ToolFailed(ended_at, number, tool.name, fault, str(error), seconds, output))
            state.steps.append(replace(step, error=str(error), fault=fault, tool_s=seconds, output=output))
            if not isinstance(error, ExecutorError):
                raise  # not the tool's error but the machine's: the model can't handle it
            return
        ended_at = self.clock()
        seconds = (ended_at - begun).total_seconds()
        state.calls.add_result(tool, call, result)
        if entries := result_entries(result):
            state.entries[number] = entries
        self._tell(result_text(number, result), tool)
        output = "\n".join(printed)
        yield from self.emit(ToolDone(ended_at, number, tool.name, result, seconds, output))
        state.steps.append(replace(step, result=result, tool_s=seconds, output=output))

    def counted(self, error: str, tool: Tool | None, offer: OfferedTools, is_repetition: bool = False) -> str:
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
        self, tool: Tool, arguments: Mapping[str, Any], on_output: Callable[[str], None], *, asks: bool
    ) -> Part[dict[str, Any]]:
        if tool == ASK_USER:
            answer = yield from self.waiting(
                AskPerson(arguments["question"], tuple(arguments.get("options", ())))
            )
            assert isinstance(answer, str)
            self.state.earlier_texts.append(answer)
            return {"answer": answer, "entries": [answer]}
        if tool == FIND_TOOLS:
            return find_tools(arguments["query"], self.state)
        if asks:
            call = {"name": tool.name, "arguments": arguments}
            asked = canonical(call)
            try:
                approved = yield from self.waiting(AskApproval(call))
            except ExecutorError as error:  # there is nobody to ask
                self.state.pending.add(asked)
                if tool.run.confirm:
                    self.state.calls.add_unapproved(tool, str(error))
                raise _DeniedError(str(error)) from None
            self.state.pending.discard(asked)
            if approved is not True:
                raise _DeniedError("the person did not approve this call; it was not executed")
        result = yield ExecuteTool(tool, arguments, on_output)
        assert isinstance(result, dict)
        if nests_deeper(result, MAX_DEPTH):  # a run is stored as JSON
            raise too_deep(tool.name)
        return result

    def waiting(self, question: AskPerson | AskApproval) -> Part[Any]:
        """Ask a person; the time until the answer does not count."""
        begun = self.clock()
        try:
            return (yield question)
        finally:
            self.state.waited_s += (self.clock() - begun).total_seconds()


class _DeniedError(ExecutorError):  # a person's decision, not a fault
    """The person did not approve the call."""
