"""Decodings and runs: what the page shows of each token and each step, and that as HTML."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from gbnf.errors import GbnfError
from gbnf.tools import Tool
from gbnf_server.inspect.live_decoding import MOST_REQUEST, MOST_TOKENS, Strategy
from gbnf_server.inspect.pages.run_view import (
    RunView,
    decoding_label,
    limit_facts,
    seconds,
    token_facts,
    view_run,
)
from gbnf_server.inspect.pages.timeline import render_grammar_lines, render_timeline
from gbnf_server.inspect.rendering import Tab, render_template
from gbnf_server.planner.events import RunStarted, StepOffer, StepStarted
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.planner.runs.grammar_lines import GrammarLines
from gbnf_server.planner.runs.recording import RecordedCall, grammar_text, trace_to_json
from gbnf_server.planner.runs.run_files import RecordedRun
from gbnf_server.planner.tool_offer import grammar_of_step

_END = "■"
_MOST_CHARACTERS = 200_000
"""Of a text or a grammar."""

KINDS = {
    "sampled": "chosen in a step of the model",
    "drafted": "guessed, and confirmed in a step with others",
    "forced": "the only continuation that the grammar allows",
    "end": "the end",
}


def visible(token: bytes) -> str:
    """Return a token in a form that can be seen, also blanks, control characters and stray bytes."""
    text = token.decode(errors="backslashreplace")
    if not text.strip(" "):
        return "␣" * len(text) or "∅"
    text = text.replace("\r", "␍").replace("\n", "↵\n").replace("\t", "⇥\t")
    return "".join(char if char >= " " or char in "\n\t" else f"\\x{ord(char):02x}" for char in text)


def _facts(call: RecordedCall) -> list[str]:
    if call.error:
        return []
    forced, drafted = call.usage.forced_tokens, call.usage.accepted_tokens
    if call.trace:  # as the tokens are marked: a forced text may have been drafted
        kinds = [entry.kind for entry in call.trace]
        forced, drafted = kinds.count("forced"), kinds.count("drafted")
    facts = token_facts(call.usage)
    facts += [f"{forced} forced"] if forced else []
    facts += [f"{drafted} drafted"] if drafted else []
    facts.append(seconds(call.timings.prompt_s + call.timings.completion_s))
    if call.timings.grammar_s is not None:
        facts.append(f"{seconds(call.timings.grammar_s)} of it for the grammar")
    facts.append("with a grammar" if call.grammar else "without a grammar")
    if call.max_tokens:
        facts.append(f"at most {call.max_tokens} tokens")
        sampling = f"temperature {call.temperature:g}, seed {call.seed}"
        facts.append(sampling if call.temperature else "greedy")
    return facts + limit_facts(call)


def _message(message: Any) -> tuple[str, str]:
    content = message.get("content", "")
    others = {key: value for key, value in message.items() if key not in ("role", "content")}
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    if others:
        text = f"{text}\n{json.dumps(others, ensure_ascii=False, indent=2)}".strip()
    return str(message.get("role", "")), text[:_MOST_CHARACTERS]


def decoding_tab(
    runs: Sequence[RecordedRun], *, strategies: Mapping[Strategy, str] | None = None, model: str = ""
) -> Tab:
    """Return the tab of decodings: those of runs to choose from, and a form if they can be made live."""
    recorded = [
        (decoding_label(decoding, run, index), decoding)
        for run in runs
        for index, decoding in enumerate(run.decodings)
    ]
    html = render_template(
        "decoding_tab.html.j2",
        labels=[label for label, _ in recorded],
        decodings=[render_decoding(label, decoding) for label, decoding in recorded],
        kinds=KINDS,
        strategies=strategies,
        model=model,
        most_request=MOST_REQUEST,
        most_tokens=MOST_TOKENS,
    )
    return Tab("decoding", "A decoding", html)


def run_tab(
    runs: Sequence[RecordedRun], shown: AbstractSet[str] = frozenset(), tools: Sequence[Tool] = ()
) -> Tab:
    """Return the tab of runs, with the grammars of `tools` where a file has none.

    `shown`: the tools whose grammars the page shows, too.
    """
    grammars = GrammarLines()
    compiled: dict[StepOffer, str] = {}
    rendered = []
    first = 0
    for run in runs:
        view = view_run(_with_compiled_grammars(run, tools, compiled))
        html = render_timeline(
            view, grammars, level=3, note=_note(view, shown), shown=shown, first_decoding=first
        )
        rendered.append((view, html))
        first += len(run.decodings)
    html = render_template("run_tab.html.j2", runs=rendered, grammars=render_grammar_lines(grammars))
    return Tab("run", "A run" if len(runs) == 1 else "Runs", html)


def _with_compiled_grammars(
    run: RecordedRun, tools: Sequence[Tool], compiled: dict[StepOffer, str]
) -> RecordedRun:
    """Return a run with the grammars that `tools` give its steps, as JSON calls, unless it has grammars.

    `compiled` has those of earlier runs, and gets the new ones.
    """
    recorded = run.grammars or any(decoding.grammar for decoding in run.decodings)
    constrained = any(event.grammar for event in run.events if isinstance(event, RunStarted))
    if recorded or not constrained or not tools:
        return run
    pool = {tool.name: tool for tool in tools}
    for event in run.events:
        if isinstance(event, StepStarted) and event.offer not in compiled:
            try:
                compiled[event.offer] = grammar_text(grammar_of_step(event, pool, ResolvedOptions()))
            except GbnfError:
                compiled[event.offer] = ""
    return replace(run, grammars=compiled, are_compiled=True)


def _note(view: RunView, shown: AbstractSet[str]) -> str:
    """Return where the grammars of a run are from, or why there are none."""
    if view.recorded.are_compiled and view.has_grammars:
        return "The file has no grammars: those above were compiled from the tools that the page was given."
    if view.has_grammars or not view.steps:
        return ""
    note = "The file has no grammars: `gbnf run --record` writes them, and the tokens."
    return f"{note} Those of single tools are linked from the tools that a step offers." if shown else note


def render_decodings(labels: Sequence[str], decodings: Sequence[RecordedCall]) -> Markup:
    """Return what the form shows: a decoding, or two beside each other."""
    slots = [render_decoding(label, call) for label, call in zip(labels, decodings, strict=True)]
    return Markup("").join(Markup('<div class="slot">{}</div>').format(slot) for slot in slots)


def render_decoding(label: str, call: RecordedCall) -> Markup:
    """Return a call of a model: its tokens, or its text if only a server knows them, and an entry for each.

    A token is changed if the model's likeliest one was refused in its place.
    """
    tokens = [
        (
            _END if entry.kind == "end" else visible(entry.token),
            entry.kind,
            bool(entry.candidates) and entry.candidates[0].refused_by is not None,
        )
        for entry in call.trace
    ]
    entries = trace_to_json(call.trace)
    untraced = "" if tokens else call.text[:_MOST_CHARACTERS]
    if untraced:
        entries = [[untraced, "untraced", call.timings.completion_s, 0, None, None, []]]
    # "<" would end the element; a reader of JSON takes the escape for it
    data = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return render_template(
        "decoding.html.j2",
        label=label,
        call=call,
        facts=_facts(call),
        tokens=[(untraced, "untraced", False)] if untraced else tokens,
        untraced=untraced,
        changed=sum(is_changed for _, _, is_changed in tokens),
        grammar=call.grammar[:_MOST_CHARACTERS],
        messages=[_message(message) for message in call.messages],
        data=Markup(data),  # noqa: S704  # see above
    )
