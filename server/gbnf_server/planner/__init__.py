"""The planner: a model calls tools step by step, until it answers or reaches a limit.

Public besides the names below:

options         the options of a planner
events          what a run reports
loop, drivers   a run as a generator without I/O, and its environment, blocking and in asyncio
tool_offer      the tools offered in a step, and their grammar
repeats         calls that are not made again
contracts       output contracts: one question, one answer in lines
salvage         an answer from the results of a run that has none
profiles        the best strategy for a model, in a file
fingerprints    what identifies a run and its model
recording       a run as a file; `run_files` reads it
batch           many requests, in runs that can be resumed
"""

from gbnf.exports import exported as _exported
from gbnf_server.executors import Context as Context
from gbnf_server.planner.drivers import Hook as Hook
from gbnf_server.planner.events import CallBlocked as CallBlocked
from gbnf_server.planner.events import Event as Event
from gbnf_server.planner.events import HistoryCompacted as HistoryCompacted
from gbnf_server.planner.events import ModelCalled as ModelCalled
from gbnf_server.planner.events import Outcome as Outcome
from gbnf_server.planner.events import Refusal as Refusal
from gbnf_server.planner.events import Run as Run
from gbnf_server.planner.events import RunFinished as RunFinished
from gbnf_server.planner.events import RunStarted as RunStarted
from gbnf_server.planner.events import SalvagedAnswer as SalvagedAnswer
from gbnf_server.planner.events import SalvageStarted as SalvageStarted
from gbnf_server.planner.events import Step as Step
from gbnf_server.planner.events import StepStarted as StepStarted
from gbnf_server.planner.events import TextWritten as TextWritten
from gbnf_server.planner.events import ToolCalled as ToolCalled
from gbnf_server.planner.events import ToolDone as ToolDone
from gbnf_server.planner.events import ToolFailed as ToolFailed
from gbnf_server.planner.events import ToolFault as ToolFault
from gbnf_server.planner.events import WarningRaised as WarningRaised
from gbnf_server.planner.options import CallFormat as CallFormat
from gbnf_server.planner.options import PlannerOptions as PlannerOptions
from gbnf_server.planner.planner import Exchange as Exchange
from gbnf_server.planner.planner import Planner as Planner

__all__ = _exported(globals())  # noqa: PLE0605  # the imports are the list
