"""What the page shows of a run: its steps in time, calls of the model, refusals, tools and results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias

from gbnf.errors import clip
from gbnf_server import planner
from gbnf_server.backends.base import Usage
from gbnf_server.planner.runs.recording import RecordedCall
from gbnf_server.planner.runs.run_files import RecordedRun

EntryKind: TypeAlias = Literal["grammar", "model", "tool", "refused", "failed", "note"]

_MOST_CHARACTERS = 20_000
_REFUSALS = {
    "truncated": "truncated",
    "ungrammatical": "does not fit the grammar",
    "unparsed": "no call",
    "invalid": "invalid",
    "repeated": "repeated",
}
_PURPOSES = {
    "tool": "which tool first",
    "choice": "call or answer",
    "call": "call",
    "reasoning": "reasoning",
    "answer": "answer to what is done",
    "salvage": "answer from results",
}


@dataclass(frozen=True, slots=True)
class EntryView:
    """Something that happened in a step. `start_s`: from the start of the run; None for no duration.

    `text` is what the model wrote, or what a tool was given, if that is not a part of what the model wrote;
    `result` what came of it. `decoding`: the index of the call of the model in the file; None if the file has
    none. `grammar`: what constrained the model, if it is known.
    """

    kind: EntryKind
    label: str
    text: str = ""
    result: str = ""
    facts: tuple[str, ...] = ()
    start_s: float | None = None
    duration_s: float = 0.0
    decoding: int | None = None
    grammar: str = ""


@dataclass(frozen=True, slots=True)
class StepView:
    """A step of a run. `tools`: the names of those that it offers, as far as they are known."""

    title: str
    tools: tuple[str, ...] = ()
    entries: tuple[EntryView, ...] = ()


@dataclass(frozen=True, slots=True)
class RunView:
    """A run. `total_s`: the length of its time axis. `salvaged`: what the answer is made of, if salvaged."""

    recorded: RecordedRun
    outcome: str
    salvaged: str
    facts: tuple[str, ...]
    steps: tuple[StepView, ...]
    total_s: float
    has_grammars: bool


def view_run(recorded: RecordedRun) -> RunView:
    """Return what is shown of a run."""
    run = recorded.run
    steps = tuple(_from_events(recorded) if recorded.events else _from_steps(recorded))
    ends = [
        entry.start_s + entry.duration_s
        for step in steps
        for entry in step.entries
        if entry.start_s is not None
    ]
    return RunView(
        recorded,
        "not finished" if run is None else run.outcome,
        "" if run is None or run.salvage is None else _salvaged(run.salvage),
        () if run is None else tuple(_facts(run, recorded.events)),
        steps,
        max([*ends, 0.0 if run is None else run.duration_s, 1e-6]),
        any(entry.grammar for step in steps for entry in step.entries),
    )


def seconds(value: float) -> str:
    """Return a duration with its unit."""
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.0f} ms" if value >= 0.001 else "< 1 ms"


def token_facts(usage: Usage) -> list[str]:
    """Return how many tokens calls of a model had."""
    cached = f" ({usage.cached_tokens} cached)" if usage.cached_tokens else ""
    return [f"{usage.prompt_tokens} prompt tokens{cached}", f"{usage.completion_tokens} generated"]


def limit_facts(call: planner.ModelCalled | RecordedCall) -> list[str]:
    """Return what a limit did to the text of a call of a model."""
    reason = f"the repetition of {call.repeated!r}" if call.repeated else "the token limit"
    if call.finish_reason == "length":
        return [f"truncated by {reason}"]
    return (
        [] if call.shortened_at is None else [f"shortened by {reason} from character {call.shortened_at} on"]
    )


def decoding_label(decoding: RecordedCall, run: RecordedRun, index: int) -> str:
    """Return the name of a call of the model, for a list of them."""
    where = f"step {decoding.step}, {_PURPOSES[decoding.purpose]}" if decoding.step else f"call {index + 1}"
    return f"{clip(run.query or run.name, 60)}: {where}"


def _salvaged(salvage: planner.SalvagedAnswer) -> str:
    of = ", ".join(map(str, salvage.steps))
    by = "by the model" if salvage.by == "model" else "as a list"
    return f"made {by} of the results of the steps {of}" + (f"; {salvage.error}" if salvage.error else "")


def _facts(run: planner.Run, events: Iterable[planner.Event]) -> Iterator[str]:
    yield f"{len(run.steps)} step{'' if len(run.steps) == 1 else 's'}"
    yield seconds(run.duration_s)
    yield from token_facts(Usage(run.prompt_tokens, run.completion_tokens, run.cached_tokens))
    for event in events:
        if isinstance(event, planner.RunStarted):
            yield event.backend
            yield "constrained by a grammar" if event.grammar else "without a grammar"
            yield f"{len(event.tools)} tools, {len(event.dropped)} dropped"
    yield run.started_at.isoformat(sep=" ", timespec="seconds")


def _from_events(recorded: RecordedRun) -> Iterator[StepView]:
    """Yield what a page shows of a run's events, by step; errors of model calls are in the last one."""
    events = recorded.events
    origin = events[0].at
    answered = iter([n for n, decoding in enumerate(recorded.decodings) if decoding.finish_reason])
    constrained = all(event.grammar for event in events if isinstance(event, planner.RunStarted))
    repairs = {step.number: step.repairs for step in (() if recorded.run is None else recorded.run.steps)}
    steps: list[StepView] = []

    def since(time: datetime, duration_s: float = 0.0) -> float:
        return max((time - origin).total_seconds() - duration_s, 0.0)

    def add(entry: EntryView) -> None:
        if not steps:
            steps.append(StepView("Before the first step"))
        steps[-1] = replace(steps[-1], entries=(*steps[-1].entries, entry))

    args = wrote = ""
    for event in events:
        match event:
            case planner.StepStarted(time, number, tools, _, compile_s):
                steps.append(StepView(f"Step {number}", tools))
                count = f"{len(tools)} tool{'' if len(tools) == 1 else 's'}"
                if constrained:
                    grammar = recorded.grammars.get(event.offer, "")
                    timing = since(time, compile_s), compile_s, None
                    evidence = (event.evidence or {}).items()
                    facts = tuple(f"{what}: {', '.join(texts)}" for what, texts in evidence if texts)
                    add(EntryView("grammar", f"Grammar of {count}", "", "", facts, *timing, grammar))
            case planner.SalvageStarted(_, _, ended, error, based_on):
                steps.append(StepView("An answer from the results"))
                of = ", ".join(map(str, based_on))
                add(EntryView("note", f"The run {ended}", error, f"results of the steps {of}"))
            case planner.ModelCalled():
                start = since(event.at, event.duration_s)
                wrote = event.text
                decoding = next(answered, None)
                grammar = "" if decoding is None else recorded.decodings[decoding].grammar
                entry = _model_entry(event, decoding, grammar)
                add(replace(entry, start_s=start, duration_s=event.duration_s))
                if event.purpose == "call":
                    for repair in repairs.get(event.step, ()):
                        add(EntryView("note", "Repaired", "", repair))
            case planner.CallBlocked(_, _, refusal, _, error):
                add(EntryView("refused", f"Refused: {_REFUSALS[refusal]}", "", error))
            case planner.ToolCalled():
                args = _json(event.arguments)
                if args in wrote:  # as the model wrote them: no reference was filled in, nothing repaired
                    args = ""
            case planner.ToolDone(time, _, name, result, duration_s, output):
                span = since(time, duration_s), duration_s
                add(EntryView("tool", name, args, _json(result), _output(output), *span))
            case planner.ToolFailed(time, _, name, fault, error, duration_s, output):
                span = since(time, duration_s), duration_s
                add(EntryView("failed", f"{name}: {fault}", args, error, _output(output), *span))
            case planner.HistoryCompacted(_, _, _, shortened, before, after):
                of = ", ".join(map(str, shortened))
                add(EntryView("note", "History shortened", "", f"{before} to {after} tokens; steps {of}"))
            case planner.WarningRaised(_, _, message):
                add(EntryView("note", "Warning", "", message))
    for number, answer in enumerate(recorded.decodings):
        if answer.error:
            add(EntryView("failed", "Call of the model", "", answer.error, decoding=number))
    yield from steps


def _model_entry(call: planner.ModelCalled | RecordedCall, decoding: int | None, grammar: str) -> EntryView:
    facts = token_facts(call.usage)
    if call.timings.grammar_s is not None:
        facts.append(f"grammar {seconds(call.timings.grammar_s)}")
    facts += limit_facts(call)
    label = f"Model: {_PURPOSES[call.purpose]}"
    return EntryView("model", label, *_said(call), tuple(facts), decoding=decoding, grammar=grammar)


def _from_steps(recorded: RecordedRun) -> Iterator[StepView]:
    """Yield the steps of a run without events; a batch's log has the calls of the model apart from them."""
    remaining = list(enumerate(recorded.decodings))
    clock = 0.0
    for step in () if recorded.run is None else recorded.run.steps:
        entries = []
        place = next((n for n, (_, decoding) in enumerate(remaining) if decoding.text == step.text), None)
        for _ in range(0 if place is None else place + 1):
            index, decoding = remaining.pop(0)
            entries.append(_model_entry(decoding, index, decoding.grammar))
        if place is None:
            entries.append(EntryView("model", "Model: call", *_said(step)))
        entries[-1] = replace(entries[-1], start_s=clock, duration_s=step.model_s)
        clock += step.model_s
        entries += [EntryView("note", "Repaired", "", repair) for repair in step.repairs]
        if step.refusal is not None:
            entries.append(EntryView("refused", f"Refused: {_REFUSALS[step.refusal]}", "", step.error or ""))
        elif step.call is not None and (step.result is not None or step.fault is not None):
            entries.append(
                EntryView(
                    "tool" if step.fault is None else "failed",
                    str(step.call.get("name", "")) + ("" if step.fault is None else f": {step.fault}"),
                    _json(step.call.get("arguments", {})),
                    _json(step.result) if step.fault is None else step.error or "",
                    _output(step.output),
                    clock,
                    step.tool_s,
                )
            )
            clock += step.tool_s
        yield StepView(f"Step {step.number}", (), tuple(entries))
    if remaining:
        others = tuple(_model_entry(decoding, index, decoding.grammar) for index, decoding in remaining)
        yield StepView("Other calls of the model", (), others)


def _said(by: planner.ModelCalled | planner.Step | RecordedCall) -> tuple[str, str]:
    """Return what the model wrote, and its reasoning, each shortened."""
    return clip(by.text, _MOST_CHARACTERS), clip(by.reasoning, _MOST_CHARACTERS)


def _output(output: str) -> tuple[str, ...]:
    return (f"printed: {clip(output, 400)}",) if output else ()


def _json(value: Mapping[str, Any] | None) -> str:
    return clip(json.dumps(value, ensure_ascii=False), _MOST_CHARACTERS)
