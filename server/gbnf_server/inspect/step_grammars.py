"""The grammars of steps whose run was recorded without them, from tools that are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gbnf.errors import GbnfError
from gbnf.tools import Tool
from gbnf_server.planner.events import RunStarted, StepOffer, StepStarted
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.planner.recorded_calls import grammar_text
from gbnf_server.planner.run_files import RecordedRun
from gbnf_server.planner.tool_offer import grammar_of_step


def with_compiled_grammars(
    run: RecordedRun, tools: Sequence[Tool], compiled: dict[StepOffer, str]
) -> RecordedRun:
    """Return a run with the grammars that `tools` give its steps, as JSON calls, unless it has grammars.

    `compiled` has those of earlier runs, and gets the new ones.
    """
    recorded = run.grammars or any(decoding.grammar for decoding in run.decodings)
    constrained = any(event.grammar for event in run.events if isinstance(event, RunStarted))
    if recorded or not constrained or not tools:
        return run
    pool = {tool.name: tool for tool in tools}
    for event in run.events:
        if isinstance(event, StepStarted) and event.offer not in compiled:
            compiled[event.offer] = _compiled(event, pool)
    return replace(run, grammars=compiled, are_compiled=True)


def _compiled(event: StepStarted, pool: dict[str, Tool]) -> str:
    try:
        grammar = grammar_of_step(event, pool, ResolvedOptions())
    except GbnfError:
        return ""
    return grammar_text(grammar)
