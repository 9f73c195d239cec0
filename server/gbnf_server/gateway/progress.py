"""The turn of a small model after the results of its calls: whether the request is done, by its words.

A client executes calls and sends the whole conversation again, so all that is known of a run is in its
messages. The rules are the planner's (`gbnf_server.planner.small_models.progress`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self

from gbnf.calls import ToolCalls, parse_tool_calls
from gbnf.prompts.messages import Message
from gbnf.protocols.readers import looks_like_call
from gbnf.requests.coverage import uncovered_values
from gbnf.requests.ranking import file_tools, names_file
from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf.tools import Tool
from gbnf_server.backends.answer import Answered, ReadCall
from gbnf_server.backends.base import Completion, Request
from gbnf_server.gateway.chat import ChatRequest, is_error
from gbnf_server.planner import salvage
from gbnf_server.planner.events import Step
from gbnf_server.planner.guidance import GUIDED
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.planner.run_state import OrderedTools, RunState
from gbnf_server.planner.small_models.progress import next_tools, seems_done, useless

_MAX_TOKENS = 256
"""Of an answer from the results."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The state of the run that a conversation continues; its tools are those that may be called."""

    state: RunState

    @classmethod
    def of(cls, request: ChatRequest, tools: Sequence[Tool]) -> Self | None:
        """Return the turn of a small model; None if its last message is no result, or it may not choose."""
        is_free = request.tool_choice.mode == "auto" and request.output is None
        if not (is_free and tools and request.messages[-1]["role"] == "tool"):
            return None
        # a client does not say which of its tools change something
        tools = tuple(replace(tool, run=replace(tool.run, effect="read")) for tool in tools)
        state = _state(request.messages, tools)
        return cls(state) if salvage.with_results(state.steps) else None

    def is_done(self) -> bool:
        """Whether nothing of the request is left."""
        ready, _ = next_tools(self.state.order.tools, self.state, is_done=seems_done(self.state))
        return not ready

    def tools_left(self) -> tuple[Tool, ...]:
        """Return the uncalled tools that read a file, if the request names one that no call has.

        They have a name that says so, since a client does not tell, and take one value.
        """
        done = self.state.done_calls
        values, called = uncovered_values(self.state.query, done), {call["name"] for call in done}
        if not any(map(names_file, values)):
            return ()
        return tuple(
            tool
            for tool in file_tools(self.state.order.tools)
            if tool.name not in called and 0 < len(tool.model_args().get("required", ())) <= len(values)
        )

    def has_ended(self, answered: Answered) -> bool:
        """Return whether an answer shows that the model has nothing else to do, or no answer of its own."""
        if not answered.calls:
            text = answered.completion.text
            return looks_like_call(text) or isinstance(
                parse_tool_calls(text, self.state.order.tools), ToolCalls
            )
        return all(map(self._is_useless, answered.calls))

    def _is_useless(self, read: ReadCall) -> bool:
        call = {"name": read.name, "arguments": read.parsed()}
        if call["arguments"] is None:
            return False
        tool = next((tool for tool in self.state.order.tools if tool.name == read.name), None)
        return bool(useless(call, tool, self.state))

    def request(self, like: Request) -> Request:
        """Return what is asked for the answer, sampled like another request.

        It is from the results alone where the chat template declares the tools. Without, the model has
        learned the conversation with its results.
        """
        if like.tools:
            messages = salvage.answer_messages(self.state.query, salvage.with_results(self.state.steps))
            like = replace(like, messages=messages, tools=())
        tokens = min(like.max_tokens, _MAX_TOKENS)
        return replace(like, grammar=salvage.text_grammar(), evidence=None, max_tokens=tokens)

    def text(self, completion: Completion) -> str:
        """Return the model's answer, with what it does not say of the last result, or the results."""
        done = salvage.with_results(self.state.steps)
        answer = salvage.read(completion, self.state.query, done, may_restate=True)
        return (
            salvage.with_unread(answer.text, self.state.query, done) if answer.by == "model" else answer.text
        )


def _state(messages: Sequence[Message], tools: tuple[Tool, ...]) -> RunState:
    """Return the state after the last request of a conversation and the results of its calls."""
    last = max((index for index, message in enumerate(messages) if message["role"] == "user"), default=0)
    options, by_name = ResolvedOptions(guidance=GUIDED), {tool.name: tool for tool in tools}
    state = RunState(messages[last]["content"], "", datetime.now(UTC), options, OrderedTools(tools))
    calls: dict[str, Mapping[str, Any]] = {}
    for message in messages[last:]:
        calls |= {call["id"]: call["function"] for call in message.get("tool_calls", ())}
        function = calls.get(message.get("tool_call_id", ""))
        if function is None:
            continue
        call = {"name": function["name"], "arguments": function["arguments"]}
        step = Step(len(state.steps) + 1, "", call)
        if is_error(message["content"]):
            state.calls.add_failure(call, message["content"])
            state.steps.append(replace(step, error=message["content"], fault="error"))
            continue
        result = _result(message["content"])
        if call["name"] in by_name:
            state.calls.add_result(by_name[call["name"]], call, result)
        state.steps.append(replace(step, result=result))
    return state


def _result(content: str) -> Mapping[str, Any]:
    """Return the result in a message: its JSON object, or its text or values as entries."""
    try:
        value = parse_json(content)
    except InvalidJsonError:
        value = content
    if isinstance(value, dict):
        return value
    return {"entries": value if isinstance(value, list) else [content]}
