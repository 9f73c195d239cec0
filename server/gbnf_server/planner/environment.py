"""The environment of a run: where its effects are performed, and its hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from gbnf.tool_formats import TextDelta
from gbnf.tools import Tool
from gbnf_server.backends.answer import AnswerPiece, AnswerSource, Asked
from gbnf_server.backends.base import Request
from gbnf_server.executors import Context, run_executor
from gbnf_server.planner.effects import CallModel
from gbnf_server.planner.events import Event, TextWritten
from gbnf_server.planner.loop import Clock

Hook: TypeAlias = Callable[[Event], object]


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """Where effects are performed, and the hooks.

    `answers` asks the model; `execute` runs a tool, and may be called in any thread. `clock` is the run's
    clock, for `TextWritten`, the event that is not the loop's.
    """

    answers: AnswerSource
    context: Context
    hooks: Sequence[Hook] = ()
    execute: Callable[[Tool, Mapping[str, Any], Context], dict[str, Any]] = run_executor
    clock: Clock = lambda: datetime.now(UTC)

    def call_hooks(self, event: Event) -> tuple[str, ...]:
        """Call every hook with the event, and return the messages of their exceptions."""
        hook_errors = []
        for hook in self.hooks:
            try:
                hook(event)
            except Exception as error:  # noqa: BLE001 - no exception of a hook ends the run
                name = getattr(hook, "__qualname__", type(hook).__qualname__)
                hook_errors.append(f"the hook {name} raised {type(error).__name__}: {error}")
        return tuple(hook_errors)

    def written(self, effect: CallModel, piece: AnswerPiece, hook_errors: list[str]) -> TextWritten:
        """Return the event of a piece of the model's text, after its hooks, whose errors are added."""
        said = "".join(delta.text for delta in piece.deltas if isinstance(delta, TextDelta))
        event = TextWritten(self.clock(), effect.step, effect.purpose, piece.text, said)
        hook_errors += self.call_hooks(event)
        return event


def asked_by(effect: CallModel) -> Asked:
    """Return what the model is asked by an effect."""
    return Asked(
        Request(
            effect.messages,
            effect.grammar,
            tools=effect.tools,
            reasoning=effect.reasoning,
            max_tokens=effect.max_tokens,
            temperature=effect.temperature,
            seed=effect.seed,
            timeout_s=effect.timeout_s,
        ),
        effect.reader,
    )
