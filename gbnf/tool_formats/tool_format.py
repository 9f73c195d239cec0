"""A tool-call format with what can be done with it: the public interface of the modules beside this one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gbnf.calls.parsing.parser import resolve_call
from gbnf.calls.parsing.results import (
    FinalAnswer,
    InvalidToolCall,
    ParseResult,
    RawCall,
    Repair,
    ToolCall,
    ToolCalls,
)
from gbnf.calls.parsing.tool_names import ToolNames
from gbnf.compiler.grammar import Grammar
from gbnf.compiler.layout import PropertyOrder
from gbnf.compiler.notations import Placeholder
from gbnf.compiler.pool import pool_tools
from gbnf.errors import PoolError
from gbnf.tool_formats.answers import Content
from gbnf.tool_formats.call_reading import WrittenCall
from gbnf.tool_formats.deltas import ArgumentsDelta, Delta, ReasoningDelta, TextDelta
from gbnf.tool_formats.format import FormatFields
from gbnf.tool_formats.grammar import calls_grammar, no_calls_grammar, reasoned_text_grammar
from gbnf.tool_formats.rendering import render_calls, render_prompt
from gbnf.tool_formats.streaming import CallDeltas
from gbnf.tools import Tool

_CHOICES = ("auto", "required", "none")
"""The words of `tool_choice`; all others are names."""


@dataclass(frozen=True, slots=True)
class ToolFormat(FormatFields):
    """The tool-call format of a chat template; the fields are described in `FormatFields`."""

    @property
    def has_ids(self) -> bool:
        """Whether the model writes an id for each call."""
        return any(isinstance(part, Placeholder) and part.kind == "id" for part in self.head)

    def grammar(
        self,
        tools: Sequence[Tool],
        *,
        tool_choice: str = "auto",
        parallel: bool = False,
        final_answer: bool = False,
        reasoning: bool = False,
        steps: Sequence[int] = (),
        property_order: PropertyOrder = "any",
        strict: bool = False,
    ) -> Grammar:
        """Compile the grammar of an answer: text, calls of these tools, or text and then calls.

        `tool_choice`: "auto" for text, calls or both; "required" for calls only; "none" for text only; or the
        name of a tool, for one call of it. With `parallel`, several calls if the format has them. With
        `reasoning`, the prompt asks for reasoning, which comes first. For `final_answer`, `steps`,
        `property_order` and `strict` see `gbnf.compile_pool`, which also says which tools are left out.

        Raises PoolError as `compile_pool` does, for a `tool_choice` that is no tool, and for one of the three
        words if a tool has that name; GrammarError for a
        format in which text and calls cannot be told apart.
        """
        if tool_choice in _CHOICES and any(tool.name == tool_choice for tool in tools):
            raise PoolError(f"tool_choice={tool_choice!r} could mean the tool of this name: rename the tool")
        if tool_choice == "none":
            return no_calls_grammar(self, reasoning)
        tools = pool_tools(tools, final_answer, ask_user=False)
        content: Content = "auto" if tool_choice == "auto" else "required"
        if tool_choice not in _CHOICES:
            names = ", ".join(tool.name for tool in tools)
            tools = tuple(tool for tool in tools if tool.name == tool_choice)
            if not tools:
                raise PoolError(f"tool_choice={tool_choice!r} is none of the tools: {names}")
            parallel = False
        return calls_grammar(self, tools, content, parallel, reasoning, tuple(steps), property_order, strict)

    def text_grammar(self, text: Grammar) -> Grammar:
        """Return the grammar of an answer that reasons, and whose text is in the language of `text`.

        No text may begin with whitespace, or the grammar is ambiguous. Read it with `stream_text`.
        """
        return reasoned_text_grammar(self, text)

    def prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        reasoning: bool = False,
    ) -> str:
        """Return a conversation through the template, up to where the answer begins.

        `messages` and `tools` are in OpenAI's form, the arguments of calls as objects. With `reasoning`, the
        template is asked for reasoning; otherwise the answer begins with text or calls. Raises
        ToolFormatError if the template refuses the conversation.
        """
        return render_prompt(self, messages, tools, reasoning=reasoning)

    def render(self, calls: Sequence[ToolCall]) -> str:
        """Return the text of an answer with these calls, at least one, as the template writes it.

        An `id` that the template does not accept is replaced. Raises ToolFormatError if the template refuses
        the calls, such as several where it has one.
        """
        return render_calls(self, calls)

    def parse(
        self, text: str, tools: Iterable[Tool], *, truncated: bool = False, reasoning: bool = False
    ) -> ParseResult:
        """Parse an answer. Never raises, whatever the text.

        `truncated`: the token limit ended it. `reasoning`: as for `grammar`. Calls of unknown tools, and
        those that cannot be read, are in `invalid`. The arguments are not validated (see
        `gbnf.validate_call`), and a `truncated` call must not be executed.
        """
        tools = tuple(tools)
        stream = self.stream(tools, reasoning=reasoning)
        return _answer_of([*stream.feed(text), *stream.close(truncated=truncated)], stream.calls, tools)

    def stream_text(self) -> CallDeltas:
        """Return a parser of an answer of `text_grammar`: what looks like a call in its text is text."""
        return CallDeltas(self, (), reasoning=True, text_only=True)

    def stream(self, tools: Iterable[Tool], *, reasoning: bool = False) -> CallDeltas:
        """Return a parser of an answer that arrives chunk by chunk; `reasoning` as for `grammar`."""
        return CallDeltas(self, tools, reasoning=reasoning)


def _answer_of(deltas: Iterable[Delta], written: Iterable[WrittenCall], tools: Iterable[Tool]) -> ParseResult:
    """Return the answer that the deltas of a stream and its calls amount to."""
    texts: list[str] = []
    reasonings: list[str] = []
    arguments: dict[int, list[str]] = {}
    inside_prose = False
    for delta in deltas:
        match delta:
            case TextDelta(text):
                inside_prose = bool(arguments and any(part.strip() for part in texts))
                texts.append(text)
            case ReasoningDelta(text):
                reasonings.append(text)
            case ArgumentsDelta(index, json_text):
                arguments.setdefault(index, []).append(json_text)
    content, reasoning = "".join(texts), "".join(reasonings)
    names = ToolNames(tools)
    calls: list[ToolCall] = []
    invalid: list[InvalidToolCall] = []
    notes: list[Repair] = []
    for index, call in enumerate(written):
        if call.note:
            notes.append(Repair("wrapper", call.note))
        raw = RawCall(
            call.name,
            "".join(arguments.get(index, ())),
            "native",
            truncated=not call.ended,
            id=call.id,
            text_arguments=True,
            error=call.problem,
        )
        found = resolve_call(raw, index + 1, names, notes)
        (calls if isinstance(found, ToolCall) else invalid).append(found)  # type: ignore[arg-type]  # by its type
    if not calls and not invalid:
        return FinalAnswer(content, reasoning)
    return ToolCalls(
        tuple(calls), "native", tuple(invalid), content.strip(), reasoning, tuple(notes), inside_prose
    )
