"""What a step offers: the tools that the model is told of, those that it may call, their grammar. Pure.

The system message tells of the same tools for a whole run, byte for byte, so that a prompt only grows and a
server reads nothing twice; what narrows from step to step is the grammar.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gbnf import compile_pool
from gbnf.calls import ToolCall, render_tool_calls
from gbnf.compiler.pool import compile_name_and_arguments
from gbnf.dialects import call_schema
from gbnf.prompts.messages import Message, call_text, describe_added_tools, system_prompt
from gbnf.tools import ASK_USER, FINAL_ANSWER, Tool
from gbnf.tools.pool_filter import Selection, filter_pool
from gbnf_server.backends.base import AnswerFormat
from gbnf_server.planner.call_checks import OfferedTools
from gbnf_server.planner.reasoning import with_reasoning_grammar, with_reasoning_schema
from gbnf_server.planner.run_state import RunState, Settings


def select(pool: tuple[Tool, ...], said: str, settings: Settings) -> Selection:
    """The tools that what the person said has a use for; all of them where the filter is off."""
    return filter_pool(pool, said) if settings.filter else Selection(pool)


def offer_tools(pool: tuple[Tool, ...], state: RunState, settings: Settings) -> OfferedTools:
    """Filter the pool by all that the person said, tell of what is new, and link the grammar of the rest."""
    tools = select(pool, "\n".join([state.query, *state.said]), settings).kept
    _describe_tools(tools, state, settings)
    refers_to = tuple(sorted(state.entries))
    answers = state.number >= settings.final_answer_from
    asking = (ASK_USER,) if settings.ask_user else ()
    # final_answer is told of from the start: the prompt stays the same when it becomes possible
    built_in = (*asking, FINAL_ANSWER)
    return OfferedTools(
        (*state.in_system_message, *built_in),
        (*state.described, *built_in),
        (*tools, *(built_in if answers else asking)),
        refers_to,
        _grammar(tools, refers_to, settings, answers=answers) if settings.grammar else None,
    )


def system_message(offer: OfferedTools, settings: Settings) -> Message:
    content = system_prompt(
        offer.in_system_message,
        style=settings.prompt_style,
        language=settings.language,
        thought=settings.reasoning == "field",
        lines=settings.lines,
    )
    return {"role": "system", "content": content}


def render_call(call: Mapping[str, Any], settings: Settings) -> str:
    """A call as the model is to write the next one."""
    if settings.lines:
        return render_tool_calls(ToolCall("", call["name"], dict(call["arguments"])), "yaml")
    return call_text(call)


def _grammar(
    tools: tuple[Tool, ...], steps: tuple[int, ...], settings: Settings, *, answers: bool
) -> AnswerFormat:
    """Return the grammar of a step's calls, in the backend's dialect."""
    asked: dict[str, Any] = {"final_answer": answers, "ask_user": settings.ask_user, "steps": steps}
    thoughtful = settings.reasoning == "field"
    if settings.dialect == "json_schema":
        schema = call_schema(tools, **asked)
        return with_reasoning_schema(schema) if thoughtful else schema
    grammar = (compile_pool if settings.union else compile_name_and_arguments)(tools, **asked)
    return with_reasoning_grammar(grammar) if thoughtful else grammar


def _describe_tools(tools: tuple[Tool, ...], state: RunState, settings: Settings) -> None:
    """Tell of tools, once: the first in the system message, later ones behind what brought them."""
    if not state.in_system_message:
        state.in_system_message = state.described = tools
        return
    more = tuple(tool for tool in tools if tool not in state.described)
    if more:
        last = state.history[-1]  # the answer of a person, who spoke of something new
        said = describe_added_tools(more, style=settings.prompt_style, language=settings.language)
        state.history[-1] = {**last, "content": f"{last['content']}\n\n{said}"}
        state.described = (*state.described, *more)
