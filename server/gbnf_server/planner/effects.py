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

from gbnf.protocols.readers import AnswerReader
from gbnf.tools import Tool
from gbnf_server.backends.base import Request
from gbnf_server.planner.events import Purpose


@dataclass(frozen=True, slots=True)
class CallModel:
    """Generate text. `reader`: makes the reader of it, for the part that belongs to the final answer."""

    request: Request
    reader: Callable[[], AnswerReader] = field(compare=False, repr=False)
    step: int
    purpose: Purpose


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
