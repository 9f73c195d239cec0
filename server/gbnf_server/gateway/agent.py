"""The planner as a model: the last message is its request, its steps are reasoning, its answer is the text.

Invariants: tools run in the server's workspace, and those that require approval are refused unless its owner
approved them in advance; a run ends when its client leaves. Once a tool has run, the outcome is an answer and
no HTTP error, after which clients would send the request, and so make the changes, again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import fields
from functools import partial
from itertools import pairwise

from gbnf.errors import clip
from gbnf.prompts.messages import Message
from gbnf.tool_formats import ReasoningDelta, TextDelta
from gbnf.tools import Tool
from gbnf_server import planner
from gbnf_server.backends.base import Backend, Usage
from gbnf_server.gateway.answers import Enforcement, Finished, ReplyEvent, Started
from gbnf_server.gateway.chat import ChatRequest
from gbnf_server.gateway.gateway import Answers
from gbnf_server.web.errors import HttpError, invalid_request

MODEL_NAME = "planner"
_SHOWN_CHARACTERS = 500  # of a result, as reasoning


class PlannerAgent(Answers):
    """Answers requests by runs of a planner with these tools. `context`: where they run, and who approves."""

    def __init__(
        self,
        tools: Iterable[Tool] | Callable[[], Iterable[Tool]],
        options: planner.PlannerOptions,
        context: planner.Context,
    ) -> None:
        self._tools, self._options, self._context = tools, options, context

    async def answer(self, request: ChatRequest, backend: Backend) -> AsyncGenerator[ReplyEvent, None]:
        """Yield the events of one answer. Raises HttpError."""
        _check(request)
        query, history = _conversation(request.messages)
        images = request.messages[-1].get("images", ())
        make = partial(planner.Planner, self._tools, backend, self._options, context=self._context)
        await backend.facts()  # so that no thread has to ask the server, which may not answer
        opened = await asyncio.to_thread(make)
        try:
            run = await asyncio.to_thread(opened.astream, query, images=images, history=history, text=False)
        except ValueError as error:
            raise invalid_request(f"{error}.", "messages") from None
        enforcement = Enforcement(ignored=_ignored(request, reasons=self._options.reasoning != "off"))
        yield Started(0, enforcement)
        async with aclosing(run) as events:
            async for event in events:
                if isinstance(event, planner.RunFinished):
                    yield TextDelta(_answer(event.run))
                    usage = Usage(
                        event.run.prompt_tokens, event.run.completion_tokens, event.run.cached_tokens
                    )
                    yield Finished("stop", usage, enforcement)
                elif shown := _shown(event):
                    yield ReasoningDelta(f"{shown}\n")


def _check(request: ChatRequest) -> None:
    """Raise HttpError for what the planner cannot do."""
    refused = {
        "tools": request.tools,
        "response_format": request.output is not None,
        "n": request.count > 1,
        "stop": request.stop,
        "logprobs": request.sampling.logprobs is not None,
    }
    for param, is_given in refused.items():
        if is_given:
            problem = f"the model {MODEL_NAME!r} does not take '{param}': it runs the server's own tools."
            raise HttpError(400, problem, "unsupported_parameter", param)
    if request.messages[-1]["role"] != "user":
        raise invalid_request("the last message must be the user's.", "messages")


def _ignored(request: ChatRequest, *, reasons: bool) -> tuple[str, ...]:
    """Return what of a request has no effect: how the planner samples and calls is the server's choice.

    `reasons`: whether its model does.
    """
    sampling, earlier = request.sampling, request.messages[:-1]
    are_given = {
        "reasoning": request.reasoning not in {None, reasons},
        "parallel_tool_calls": request.parallel is not None,
        "max_tool_calls": request.max_calls is not None,
        "tool_choice": request.tool_choice.mode != "auto",
        "images of earlier messages": any(turn.get("images") for turn in earlier),
        "earlier calls and results": any(turn["role"] == "tool" or "tool_calls" in turn for turn in earlier),
    }
    return (
        *(field.name for field in fields(sampling) if getattr(sampling, field.name) != field.default),
        *(name for name, is_given in are_given.items() if is_given),
        *(f"chat_template_kwargs.{name}" for name in request.template_variables),
    )


def _conversation(messages: Sequence[Message]) -> tuple[str, list[planner.Exchange]]:
    """Return the request, after the instructions of the client, and the earlier exchanges."""
    instructions = [turn["content"] for turn in messages if turn["role"] in {"system", "developer"}]
    turns = [turn for turn in messages if turn["role"] in {"user", "assistant"} and turn["content"].strip()]
    history = [
        planner.Exchange(question["content"], answer["content"])
        for question, answer in pairwise(turns)
        if (question["role"], answer["role"]) == ("user", "assistant")
    ]
    return "\n\n".join([*instructions, messages[-1]["content"]]), history


def _shown(event: planner.Event) -> str:
    """Return what a client sees of a step, "" for nothing."""
    match event:
        case planner.ToolCalled():
            return f"{event.name} {clip(json.dumps(event.arguments, ensure_ascii=False), _SHOWN_CHARACTERS)}"
        case planner.ToolDone():
            return f"→ {clip(json.dumps(event.result, ensure_ascii=False), _SHOWN_CHARACTERS)}"
        case planner.ToolFailed() | planner.CallBlocked():
            return f"→ {clip(event.error, _SHOWN_CHARACTERS)}"
        case _:
            return ""


def _answer(run: planner.Run) -> str:
    """Return the answer, or why there is none. Raises HttpError if no tool was called."""
    if run.answer is not None:
        return run.answer
    if run.outcome == "failed" and not any(step.result is not None or step.fault for step in run.steps):
        raise HttpError(502, f"the planner has no answer: {run.error}", "planner_failed")
    return f"There is no answer: {run.error}"
