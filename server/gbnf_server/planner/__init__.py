"""The planner: a model calls tools step by step, until it answers or reaches a limit.

Public besides the names below:

options         the options of a planner
guidance        the rules that lead small models; `small_models` follows them
events          what a run reports
loop, drivers   a run as a generator without I/O, and its environment, blocking and in asyncio
run_state       what changes during a run, and the tools of a step
tool_offer      the tools offered in a step, and their grammar
answer_checks   whether a text is an answer
repeats         calls that are not made again
salvage         an answer from the results of a run that has none
profiles        the best strategy for a model, in a file
runs            runs in files: `recording`, and `run_files`, which reads it; `run_log` (runs that are logged
                and resumed: those of a batch, of an extraction, of a bench), `grammar_lines` (grammars that
                keep each line once), `fingerprints` (what identifies a run and its model)
small_models    what a small model may call, by the words of a request: `requested_tools`, `progress`
batch           many requests, in runs that can be resumed
extraction      typed answers: values of a type from texts; `spans`: what a text has for them
"""

from gbnf_server.executors import Context
from gbnf_server.planner.drivers import Hook
from gbnf_server.planner.events import (
    CallBlocked,
    Event,
    HistoryCompacted,
    ModelCalled,
    Outcome,
    Refusal,
    Run,
    RunFinished,
    RunStarted,
    SalvagedAnswer,
    SalvageStarted,
    Step,
    StepStarted,
    TextWritten,
    ToolCalled,
    ToolDone,
    ToolFailed,
    ToolFault,
    WarningRaised,
)
from gbnf_server.planner.options import CallFormat, PlannerOptions
from gbnf_server.planner.planner import Exchange, Planner

__all__ = [
    "CallBlocked",
    "CallFormat",
    "Context",
    "Event",
    "Exchange",
    "HistoryCompacted",
    "Hook",
    "ModelCalled",
    "Outcome",
    "Planner",
    "PlannerOptions",
    "Refusal",
    "Run",
    "RunFinished",
    "RunStarted",
    "SalvageStarted",
    "SalvagedAnswer",
    "Step",
    "StepStarted",
    "TextWritten",
    "ToolCalled",
    "ToolDone",
    "ToolFailed",
    "ToolFault",
    "WarningRaised",
]
