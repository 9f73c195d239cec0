"""The planner: a model decides step by step, tools are executed, until there is an answer or a limit.

events, effects   what a run tells, and what it asks of the world
calls, gates      from a model's text to a call, and whether it may be executed
reasoning         thoughts before a call, and how they are kept apart from it
salvaging         from the results of a run without an answer to one
offering          the tools that a step offers, and their grammar
state, loop       the loop itself: a generator without I/O
partial           the answer in a call that is still being written
writing           where a run takes place, and text that comes piece by piece
drivers           the same loop, blocking and in asyncio
planner           all of it put together
"""

from gbnf_server.planner.drivers import Hook
from gbnf_server.planner.events import (
    CallBlocked,
    Event,
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
    "Event",
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
