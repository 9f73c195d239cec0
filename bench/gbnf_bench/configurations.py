"""The configurations that the bench compares: an entry for each, with the options that are not defaults.

Each configuration adds one thing to the previous one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from gbnf import Grammar
from gbnf.protocols.call_protocols import CallsInText, JsonCalls, NativeCalls, with_reasoning_grammar
from gbnf.protocols.protocol import CallProtocol, Offered, ParsedCall
from gbnf.tools import FINAL_ANSWER, Tool
from gbnf_bench.mixed_calls import compile_name_and_arguments
from gbnf_server.backends.base import Backend
from gbnf_server.planner.options import PlannerOptions, ResolvedOptions


@dataclass(frozen=True)
class MixedCalls(JsonCalls):
    """Calls as JSON of which any name goes with any tool's arguments."""

    def constraint(self, offered: Offered) -> Grammar:
        """Return the grammar of an answer."""
        grammar = compile_name_and_arguments(
            offered.tools, final_answer=offered.answer, ask_user=offered.ask_user, steps=offered.steps
        )
        return with_reasoning_grammar(grammar) if self.reasoning_field else grammar


class MixedOptions(ResolvedOptions):
    """The options of a run with such calls."""

    @cached_property
    def protocol(self) -> CallProtocol:
        """How the model writes calls."""
        plain = super().protocol
        return MixedCalls(reasoning_field=plain.reasoning_field) if type(plain) is JsonCalls else plain


@dataclass(frozen=True)
class UnconstrainedCalls(NativeCalls):
    """The calls of the chat template without a grammar. `any_syntax`: any common syntax is read."""

    any_syntax: bool = False
    is_constrained = False

    def constraint(self, offered: Offered) -> None:  # type: ignore[override]  # there is none
        """Return None: nothing constrains the text."""
        del offered

    def prose(self) -> None:  # type: ignore[override]  # there is none
        """Return None: nothing constrains the text."""

    def read(
        self, text: str, tools: Sequence[Tool], *, steps: Sequence[int] = (), truncated: bool = False
    ) -> ParsedCall:
        """Read a whole text: what the template would write, or any syntax."""
        if self.any_syntax:
            return CallsInText().read(text, tools, steps=steps, truncated=truncated)
        if self.call_begin.strip() in text:
            return super().read(text, tools, steps=steps, truncated=truncated)
        return ParsedCall({"name": FINAL_ANSWER.name, "arguments": {"message": text or "…"}})


class UnconstrainedOptions(ResolvedOptions):
    """The options of a run with the template's own calls, without a grammar."""

    any_syntax = False

    @cached_property
    def protocol(self) -> CallProtocol:
        """How the model writes calls."""
        assert self.model.tool_format is not None
        return UnconstrainedCalls(self.model.tool_format, any_syntax=self.any_syntax)


class AnySyntaxOptions(UnconstrainedOptions):
    """The same, where calls are read in any syntax."""

    any_syntax = True


_FREE_TEXT: Mapping[str, type[ResolvedOptions]] = {"template": UnconstrainedOptions, "any": AnySyntaxOptions}


@dataclass(frozen=True, slots=True)
class Configuration:
    """A name, a description for a table's note, and the `PlannerOptions` that differ from the default.

    `union`: whether the grammar binds each name to its arguments. `constrained`: whether there is a grammar
    for the call format "json". `free_text`: how the template's own calls are read in a text that nothing
    constrains, "" for constrained ones. `requires_call`: whether the leaderboard's questions with calls allow
    no answer before the first. `peer`: the `tool_choice` with which another server is asked, instead of a
    model with these options. `without`: the rules of `Guidance` that do not lead the model.
    """

    name: str
    description: str
    settings: Mapping[str, Any]
    union: bool = True
    constrained: bool = True
    free_text: Literal["", "template", "any"] = ""
    requires_call: bool = True
    peer: str = ""
    without: tuple[str, ...] = ()

    def resolve(self, options: PlannerOptions, backend: Backend) -> ResolvedOptions:
        """Return the options of a run, to which `settings` were added."""
        kind = _FREE_TEXT.get(self.free_text) or (ResolvedOptions if self.union else MixedOptions)
        resolved = kind.resolve(options, backend, constrained=self.constrained)
        guidance = replace(resolved.guidance, **dict.fromkeys(self.without, False))
        return replace(resolved, guidance=guidance)


_TEXT = "no grammar; calls parsed in any common syntax, and repaired"

_JSON = {"call_format": "json"}
_ALL = {"filter": False}

CONFIGURATIONS: tuple[Configuration, ...] = (
    Configuration("baseline", "no grammar; only clean JSON counts", _JSON | _ALL, constrained=False),
    Configuration("text", _TEXT, {"call_format": "text"} | _ALL),
    Configuration(
        "grammar", "a grammar that combines any name with any arguments", _JSON | _ALL, union=False
    ),
    Configuration("union", "a grammar that binds each name to its arguments", _JSON | _ALL),
    Configuration("filter", "the same, over the tools that the request needs", _JSON),
    Configuration(
        "auto", "as `gbnf run` does it: the chat template's own calls if it has any", {"max_tools": "auto"}
    ),
)

_NATIVE = Configuration("native", "the chat template's own calls, with a grammar", {"call_format": "native"})
BY_NAME = (*CONFIGURATIONS, _NATIVE)
"""Those that `gbnf bench` has: `native` runs only if it is named, since not every model has its own calls."""

STRATEGIES: tuple[Configuration, ...] = (
    Configuration("none", "no grammar; only clean JSON counts", _JSON, constrained=False),
    Configuration("text", _TEXT, {"call_format": "text"}),
    Configuration("lines", "no grammar; calls in the line protocol", {"call_format": "lines"}),
    _NATIVE,
    Configuration("server", "the tool calls of the server's own API", {"call_format": "server"}),
    Configuration("grammar", "JSON calls, with a grammar that binds each name to its arguments", _JSON),
    Configuration("unaided", "as grammar, without evidence", _JSON | {"evidence": "none"}),
    Configuration("values", "as grammar, with evidence for values", _JSON | {"evidence": "values"}),
    Configuration("arguments", "as grammar, with evidence for arguments", _JSON | {"evidence": "arguments"}),
    Configuration("whitespace", "as grammar, with any whitespace", _JSON | {"whitespace": "free"}),
    Configuration("field", "as grammar, each call beginning with reasoning", _JSON | {"reasoning": "field"}),
    Configuration(
        "free", "reasoning without a grammar, then a constrained call", _JSON | {"reasoning": "free"}
    ),
)
"""The strategies: ways to get calls from a model, each with the tools that the request needs."""

_OWN = {"call_format": "native", "hints": False}
LEADERBOARD: tuple[Configuration, ...] = (
    Configuration(
        "template",
        "the chat template's own calls, no grammar",
        _OWN,
        free_text="template",
        requires_call=False,
    ),
    Configuration(
        "any-syntax", "the same texts, read in any syntax", _OWN, free_text="any", requires_call=False
    ),
    Configuration("peer-auto", "the peer's own tool calls", {}, requires_call=False, peer="auto"),
    Configuration("peer-required", "the peer's own tool calls, one at least", {}, peer="required"),
    Configuration("auto", "as `gbnf run` and `gbnf serve` do it", {}, requires_call=False),
    *STRATEGIES,
)
"""What the leaderboard's questions can be asked with. `template` and `auto` may answer without a call."""


def supported(configurations: Sequence[Configuration], backend: Backend) -> tuple[Configuration, ...]:
    """Return the configurations but those whose grammar the backend does not take.

    `native` stays: a model without calls of its own is an error.
    """
    return tuple(
        item
        for item in configurations
        if item.settings.get("call_format") != "json" or _is_supported(item, backend)
    )


def supported_strategies(backend: Backend, names: Sequence[str] = ()) -> tuple[Configuration, ...]:
    """Return the strategies of these names, or all, that a backend supports."""
    return tuple(strategy for strategy in named(names, STRATEGIES) if _is_supported(strategy, backend))


def _is_supported(strategy: Configuration, backend: Backend) -> bool:
    match strategy.settings["call_format"]:
        case "native":
            return backend.info().traits.tool_format is not None
        case "server":
            return backend.info().takes_tools
        case "json":
            # an engine that takes a JSON Schema chooses the whitespace itself, and its schema is a union
            needs_gbnf = "whitespace" in strategy.settings or not strategy.union
            ruled = backend.dialect == "gbnf" if needs_gbnf else backend.dialect != "none"
            if "evidence" in strategy.settings and not backend.info().traits.takes_evidence:
                return False
            return ruled or not strategy.constrained
        case _:
            return True


def named(names: Sequence[str], table: Sequence[Configuration] = CONFIGURATIONS) -> tuple[Configuration, ...]:
    """Return the entries of `table` with these names, in its order; all for no names. Raises ValueError."""
    wanted = set(names)
    if unknown := wanted - {item.name for item in table}:
        all_names = ", ".join(item.name for item in table)
        raise ValueError(f"unknown: {', '.join(sorted(unknown))}. Use {all_names}")
    return tuple(item for item in table if not names or item.name in wanted)
