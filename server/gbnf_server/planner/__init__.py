"""The planner: a model calls tools step by step, until it answers or reaches a limit.

planner              the public class
options              its options
events, effects      what a run reports, and what it requests from its driver
loop, run_state      the planner loop: a generator without I/O
prerequisites        the order of a run's tools, and how the run may end
compaction           how a long history is shown, so that it fits the context
tool_offer           the tools offered in a step, and their grammar
calls, call_checks   from a model's text to a call that may be executed
reasoning            reasoning before a call
salvage              an answer from the results of a run that has none
drivers              the environment of a run; the loop run blocking and in asyncio
conversation         earlier requests, as messages before the present one
contracts            output contracts: one question, one answer in lines
profiles             the best strategy for a model, in a file
fingerprints         hashes of all that determines a run
"""

from gbnf_server.executors import Context
from gbnf_server.planner.conversation import Exchange
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
from gbnf_server.planner.planner import Planner

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
