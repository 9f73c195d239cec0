"""Tool-call formats: how a model's chat template writes tools, calls, results and reasoning."""

from gbnf.tool_formats.format import (
    ElementArguments,
    JsonArguments,
    NestedElements,
    Part,
    Reasoning,
    Slot,
    TextFormat,
    ToolFormat,
    ValueForm,
    ValueForms,
)

__all__ = [
    "ElementArguments",
    "JsonArguments",
    "NestedElements",
    "Part",
    "Reasoning",
    "Slot",
    "TextFormat",
    "ToolFormat",
    "ValueForm",
    "ValueForms",
]
