"""The effects that the planner loop requests: a closed union, and the reply to each.

The loop yields an effect, a driver performs it and sends the reply. A `GbnfError` is thrown into the loop;
any other exception ends the run.

    CallModel     -> Completion
    ExecuteTool   -> the result, a JSON object
    AskPerson     -> the answer, a string
    AskApproval   -> bool
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gbnf.prompts.messages import Message
from gbnf.protocols.readers import AnswerReader, Unread
from gbnf.tools import Tool
from gbnf_server.backends.base import AnswerFormat
from gbnf_server.planner.events import Purpose


@dataclass(frozen=True, slots=True)
class CallModel:
    """Generate text: the conversation, and the grammar that constrains it (None: unconstrained).

    `timeout_s`: seconds until the generation is an error (None: the backend's own limit).
    `tools`: tools that the chat template declares. `reasoning`: the template is asked for reasoning.
    `reader`: makes the reader of the text, for the part of it that belongs to the final answer.
    """

    messages: tuple[Message, ...]
    grammar: AnswerFormat | None
    max_tokens: int
    temperature: float
    seed: int
    step: int = 0
    purpose: Purpose = "call"
    tools: tuple[Mapping[str, Any], ...] = ()
    reasoning: bool = False
    reader: Callable[[], AnswerReader] = field(default=Unread, compare=False, repr=False)
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class ExecuteTool:
    """Run a tool with these arguments; step references are filled in. `on_output`: see `Context`."""

    tool: Tool
    arguments: Mapping[str, Any]
    on_output: Callable[[str], None] = field(default=lambda _: None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AskPerson:
    """Ask the person a question; without options the answer is free text."""

    question: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AskApproval:
    """Ask the person to approve a call; step references are filled in."""

    call: Mapping[str, Any]


Effect: TypeAlias = CallModel | ExecuteTool | AskPerson | AskApproval
