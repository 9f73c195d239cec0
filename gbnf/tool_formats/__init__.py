"""Tool-call formats: how a model's chat template writes tools, calls, results and reasoning."""

from gbnf.compiler.notations import ElementArguments as ElementArguments
from gbnf.compiler.notations import NestedElements as NestedElements
from gbnf.compiler.notations import Part as Part
from gbnf.compiler.notations import Placeholder as Placeholder
from gbnf.compiler.notations import ValueForm as ValueForm
from gbnf.compiler.notations import ValueForms as ValueForms
from gbnf.exports import exported as _exported
from gbnf.tool_formats.deltas import ArgumentsDelta as ArgumentsDelta
from gbnf.tool_formats.deltas import CallEnded as CallEnded
from gbnf.tool_formats.deltas import CallStarted as CallStarted
from gbnf.tool_formats.deltas import Delta as Delta
from gbnf.tool_formats.deltas import ReasoningDelta as ReasoningDelta
from gbnf.tool_formats.deltas import TextDelta as TextDelta
from gbnf.tool_formats.detection import detect as detect
from gbnf.tool_formats.format import JsonArguments as JsonArguments
from gbnf.tool_formats.format import Reasoning as Reasoning
from gbnf.tool_formats.format import TextFormat as TextFormat
from gbnf.tool_formats.template import TemplateRenderer as TemplateRenderer
from gbnf.tool_formats.tool_format import ToolFormat as ToolFormat

__all__ = _exported(globals())  # noqa: PLE0605  # the imports are the list
