"""What the planner loop asks of the world: a closed union of effects, and the reply that each one gets.

The loop yields an effect and receives its reply. A driver performs it; an error below `GbnfError` is thrown
into the loop at that place, and any other exception ends the run by passing through.

    CallModel   -> Completion
    Execute     -> the result, a JSON object
    AskPerson   -> the answer, a string
    Approve     -> bool
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from gbnf.prompts.messages import Message
from gbnf.tools import Tool
from gbnf_server.backends.base import AnswerFormat
from gbnf_server.planner.events import Purpose


@dataclass(frozen=True, slots=True)
class CallModel:
    """Let the model write: the conversation, and the grammar that holds it (None: free)."""

    messages: tuple[Message, ...]
    grammar: AnswerFormat | None
    max_tokens: int
    temperature: float
    seed: int
    step: int = 0
    purpose: Purpose = "call"


@dataclass(frozen=True, slots=True)
class ExecuteTool:
    """Run one tool with these arguments, references to earlier steps filled in."""

    tool: Tool
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AskPerson:
    """Put a question to the person; without options the answer is free text."""

    question: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AskApproval:
    """Let the person decide whether this call, references filled in, is executed."""

    call: Mapping[str, Any]


Effect: TypeAlias = CallModel | ExecuteTool | AskPerson | AskApproval
