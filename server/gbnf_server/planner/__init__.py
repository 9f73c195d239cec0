"""The planner: a model calls tools step by step, until it answers or reaches a limit.

Public besides the names below:

options         the options of a planner
events          what a run reports
loop, drivers   a run as a generator without I/O, and its environment, blocking and in asyncio
guidance        the rules that lead small models
tool_offer      the tools offered in a step, and their grammar
repeats         calls that are not made again
salvage         an answer from the results of a run that has none
profiles        the best strategy for a model, in a file
fingerprints    what identifies a run and its model
recording       a run as a file; `run_files` reads it
grammar_lines   grammars that keep each line once
run_log         runs that are logged and resumed: those of a batch, of an extraction, of a bench
batch           many requests, in runs that can be resumed
extraction      typed answers: values of a type from texts
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
