"""Tool-call formats: how a model's chat template writes tools, calls, results and reasoning."""

from gbnf.compiler.notations import ElementArguments, NestedElements, Part, Placeholder, ValueForm, ValueForms
from gbnf.tool_formats.deltas import ArgumentsDelta, CallEnded, CallStarted, Delta, ReasoningDelta, TextDelta
from gbnf.tool_formats.detection import detect
from gbnf.tool_formats.format import JsonArguments, Reasoning, TextFormat
from gbnf.tool_formats.template import TemplateRenderer
from gbnf.tool_formats.tool_format import ToolFormat

__all__ = [
    "ArgumentsDelta",
    "CallEnded",
    "CallStarted",
    "Delta",
    "ElementArguments",
    "JsonArguments",
    "NestedElements",
    "Part",
    "Placeholder",
    "Reasoning",
    "ReasoningDelta",
    "TemplateRenderer",
    "TextDelta",
    "TextFormat",
    "ToolFormat",
    "ValueForm",
    "ValueForms",
    "detect",
]
