"""The options of a planner: what its user chooses, and what follows from its backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Literal, Self, TypeAlias

from gbnf.compiler.layout import PropertyOrder, Whitespace
from gbnf.compiler.pool import MAX_DEPTH
from gbnf.protocols.call_protocols import CallsInText, JsonCalls, NativeCalls, SchemaCalls, ServerCalls
from gbnf.protocols.field_lines import FieldLines
from gbnf.protocols.protocol import CallProtocol
from gbnf.requests.evidence import EvidenceUse
from gbnf.requests.ranking import BM25, Ranker
from gbnf.tools import Tool
from gbnf.tools.providers import PROVIDERS, Provider
from gbnf_server.backends.base import Backend, Dialect
from gbnf_server.backends.model_traits import ModelTraits
from gbnf_server.planner.guidance import GUIDED, UNGUIDED, Guidance
from gbnf_server.system.errors import RequestNotSupportedError

CallFormat: TypeAlias = Literal["native", "server", "json", "text", "lines"]
"""How the model writes a call, and how the call is read.

native   the format of the model's chat template, which declares the tools; constrained by a grammar
server   the server's own tool calling (`tools`, `tool_calls`), for servers that take no grammar: read with
         repairs; a server that refuses tools is asked as for `text`
json     JSON, constrained by a grammar of the tools offered if the backend takes one, otherwise requested by
         the prompt only; the whole text must be one JSON call
text     requested as JSON, read in any common syntax and repaired (`gbnf.calls`)
lines    the line protocol, requested by the prompt only and read as `text` is; if the run can only end with a
         call of its one tool, the arguments as lines (`gbnf.protocols.field_lines`)
"""

ReasoningMode: TypeAlias = Literal["off", "field", "free"]
"""Reasoning before a call: in a bounded string with which the call begins, or as free text before it."""

MAX_TOOLS = 16
"""The default of `max_tools`. The right tool is among the first 8 for 94 % of requests, among 16 for 96 % and
among 32 for 97 % (`bench/ranking.py`). The prompt grows in proportion: 16 tools take some 2,500 tokens, for
which a context of 4,096 has space, and 32 take 5,000."""

SMALL_MODEL_TOOLS, SMALL_MODEL_MARGIN = 8, 0.3
"""The default of `max_tools` for small models, and the margin (see `filter_pool`)."""


@dataclass(frozen=True, slots=True)
class PlannerOptions:
    """Options of a `Planner`, the same for each of its runs. Raises ValueError for invalid ones.

    Arguments:
        max_steps: steps of a run, including the one with the final answer.
        max_seconds: seconds of a run, without those in which a person is asked; a generation is ended then,
            but not the call of a tool. A tenth of them more for a salvaged answer. None for no limit.
        max_blocked: rejected calls in a row that end a run.
        repeat_calls: allow every call to be repeated, as `[run] repeatable` does for one tool's
            (`gbnf_server.planner.repeats`).
        ask_user: offer the tool `ask_user`.
        required: names of tools that must have succeeded before the run can end with an answer; "*" for
            whichever tool.
        terminal: names of tools that end the run: the result of a successful call is the answer. Beside the
            tools whose manifests say so (`[offer] terminal`), and `final_answer`; if one of these tools is
            required, the run ends with it only.
        call_format: see `CallFormat`. By default "native" if the model's chat template has tools, otherwise
            "json"; "json" for reasoning in a field. If the backend takes no grammar, "server" if it takes
            tools, otherwise "text".
        whitespace: the layout of calls in the format "json" (`gbnf.compiler.layout`), for backends that take
            GBNF. "free" suits only models that do worse without line breaks: `gbnf tune` measures it.
        compact: shorten old results and steps in the prompt when the history nears the model's context
            (`gbnf_server.planner.compaction`); otherwise the run ends with ContextOverflowError.
        salvage: build an answer from the tool results of a run that ends without one; its outcome is
            `salvaged`.
        reasoning: "field" for reasoning in the first property of each call, "free" for reasoning before it.
        reasoning_budget: tokens of free reasoning before each call, at most.
        max_tokens: tokens of a call, at most.
        temperature: 0 is greedy.
        seed: seed of the sampler, for a temperature above 0.
        language: language of the instructions and of the tool descriptions; by default ("auto") that of the
            request, if the tools are described in it.
        max_tools: of the tools that the pool filter's rules allow, offer the so many that fit the request
            best, and `find_tools` for the others; None offers all. Beside those that the rules ask for. By
            default ("auto") at most `MAX_TOOLS`; for a model known to have fewer than `SMALL_MODEL`
            parameters at most `SMALL_MODEL_TOOLS`, and only those that fit nearly as well as the best.
        providers: of variants of tools, for `filter_pool`: `{**PROVIDERS, "_acme": Provider(("acme",))}`
            has one more than those of `gbnf.tools.providers`.
        ranker: says which tools fit best. It is called in the thread of the run; if it raises an error, the
            tools are ranked by BM25.
        evidence: what gets a bonus in the model's logits since the request supports it
            (`gbnf.requests.evidence`): in JSON calls of a model in this process, unless it was trained for
            its tools.
        property_order: of the objects in calls (`gbnf.compile_pool`).
        max_depth: objects and arrays in arguments with more than this many around them may be any JSON in a
            grammar, and are only validated (`gbnf.compile_pool`). Not for backends that take a JSON Schema.
        probabilities: have the steps tell how probable the values of their calls were.
        clamp: in calls that are repaired (without a grammar in GBNF), move numbers to the nearest bound.
        confirm_below: ask the person about a call of which a name, enum value, boolean or number is less
            probable than this: which value is meant, if `ask_user`, and otherwise for approval.
        spans: constrain dates, times, durations and numbers to those that the request has, where it has some
            (`gbnf_server.planner.spans.values`), with grammars in GBNF; the default of `extract`.
        date_order: what comes first in 03/04/2026, for `spans`; by default as the text says.
        filter: if off, every step offers all tools, whatever the request.
        hints: what helps small models: which tools and arguments they are offered, which tool fits best, and
            when they have to answer. Without, they are asked like large ones.

    """

    max_steps: int = 12
    max_seconds: float | None = 300.0
    max_blocked: int = 3
    repeat_calls: bool = False
    ask_user: bool = False
    required: tuple[str, ...] = ()
    terminal: tuple[str, ...] = ()
    call_format: CallFormat | None = None
    whitespace: Whitespace = "default"
    compact: bool = True
    salvage: bool = True
    reasoning: ReasoningMode = "off"
    reasoning_budget: int = 256
    max_tokens: int = 512
    temperature: float = 0.0
    seed: int = 0
    language: str = "auto"
    max_tools: int | Literal["auto"] | None = "auto"
    ranker: Ranker = BM25
    providers: Mapping[str, Provider] = field(default_factory=PROVIDERS.copy)
    evidence: EvidenceUse = "all"
    property_order: PropertyOrder = "any"
    max_depth: int = MAX_DEPTH
    probabilities: bool = False
    clamp: bool = False
    confirm_below: float = 0.0
    spans: bool = False
    date_order: Literal["day", "month"] | None = None
    filter: bool = True
    hints: bool = True

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_blocked", "max_tokens", "reasoning_budget"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.max_depth < 0:
            raise ValueError(f"max_depth is {self.max_depth}; it must be at least 0")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ValueError(f"max_seconds is {self.max_seconds}; it must be above 0, or None for no limit")
        if not 0 <= self.confirm_below <= 1:
            raise ValueError(f"confirm_below is {self.confirm_below}; it must be a probability, from 0 to 1")
        if isinstance(self.max_tools, int) and self.max_tools < 1:
            raise ValueError(f"max_tools is {self.max_tools}; it must be at least 1, or None for all tools")
        if self.reasoning == "field" and self.call_format in ("native", "server"):
            problem = f"which a call of the format {self.call_format} has no place for"
            raise ValueError(f"reasoning is 'field', {problem}; use 'free'")
        for name in ("required", "terminal"):
            if isinstance(names := getattr(self, name), str):
                raise ValueError(f"{name} is {names!r}; it must be a tuple of names: ({names!r},)")  # noqa: TRY004  # as every bad option
            object.__setattr__(self, name, tuple(names))


@dataclass(frozen=True)
class ResolvedOptions(PlannerOptions):
    """The options of a run: those of the planner, and the properties of its backend.

    `constrained`: whether there is a grammar for the call format "json". `margin`: that of the pool filter.
    `guidance`: what helps the model, if it is small.
    """

    call_format: CallFormat = "json"
    max_tools: int | None = MAX_TOOLS
    margin: float = 0.0
    guidance: Guidance = UNGUIDED
    dialect: Dialect = "gbnf"
    model: ModelTraits = field(default_factory=ModelTraits)
    backend: str = ""
    only_tool: Tool | None = None
    constrained: bool = True

    @property
    def asks_first(self) -> bool:
        """Whether a model is asked what it means to do, before its first call; reasoning would come first."""
        return self.guidance.chooses_first and self.model.gives_logprobs and self.reasoning == "off"

    @cached_property
    def protocol(self) -> CallProtocol:
        """How the model writes calls."""
        reasons = self.reasoning == "field"
        if self.call_format == "native":
            assert self.model.tool_format is not None
            by_call = self.model.answers_by_call_only
            return NativeCalls(self.model.tool_format, by_call, reasoning=self.reasoning == "free")
        if self.call_format == "lines" and self.only_tool is not None:
            return FieldLines(tool=self.only_tool, reasoning_field=reasons, clamp=self.clamp)
        if self.call_format == "server":
            return ServerCalls(clamp=self.clamp)
        if self.call_format != "json":
            return CallsInText(self.call_format == "lines", reasoning_field=reasons, clamp=self.clamp)
        if self.constrained and self.dialect == "json_schema":
            return SchemaCalls(reasoning_field=reasons, clamp=self.clamp)
        return JsonCalls(
            is_constrained=self.constrained,
            reasoning_field=reasons,
            whitespace=self.whitespace,
        )

    @classmethod
    def resolve(cls, options: PlannerOptions, backend: Backend, *, constrained: bool = True) -> Self:
        """Add the properties of `backend` to `options`.

        Raises RequestNotSupportedError for the call format "native" or "server" with a backend that has none,
        and the errors of `Backend.info`.
        """
        constrained = constrained and backend.dialect != "none"
        info = backend.info()
        model = info.traits
        call_format = options.call_format
        if call_format is None:
            is_native = constrained and options.reasoning != "field" and model.tool_format is not None
            call_format = "native" if is_native else "json"
            if backend.dialect == "none":
                has_place = options.reasoning != "field" and not model.answers_by_call_only
                call_format = "server" if info.takes_tools and has_place else "text"
        if call_format == "native" and model.tool_format is None:
            hint = "Its chat template has no tools, or is unknown. Use the call format json."
            raise RequestNotSupportedError(backend.name, "the call format native", hint)
        if call_format == "server" and not info.takes_tools:
            hint = "Use the call format text."
            raise RequestNotSupportedError(backend.name, "the call format server", hint)
        chosen = {option.name: getattr(options, option.name) for option in fields(PlannerOptions)}
        is_small = model.is_small(native=call_format == "native") and options.hints
        has_evidence = model.takes_evidence and constrained and call_format in {"json", "native"}
        is_auto = options.max_tools == "auto"
        declares_tools = call_format in {"native", "server"}
        # among all tools, before they are declared
        is_asked = model.gives_logprobs and options.reasoning == "off" and backend.dialect == "gbnf"
        chooses = call_format == "native" and is_asked
        limit = SMALL_MODEL_TOOLS if is_small and not chooses else MAX_TOOLS
        return cls(
            **chosen
            | {
                "call_format": call_format,
                "max_tools": limit if is_auto else options.max_tools,
                "evidence": options.evidence if has_evidence else "none",
            },
            margin=SMALL_MODEL_MARGIN if is_small and is_auto and call_format != "native" else 0.0,
            guidance=(GUIDED if declares_tools else GUIDED.in_prompt()) if is_small else UNGUIDED,
            dialect=backend.dialect,
            model=model,
            backend=backend.name,
            constrained=constrained,
        )
