"""Decodings and runs as HTML."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from markupsafe import Markup

from gbnf.errors import GbnfError
from gbnf.tools import Tool
from gbnf_server.inspect.decoding_view import DecodingView, view_decoding
from gbnf_server.inspect.live_decoding import MOST_REQUEST, MOST_TOKENS, Strategy
from gbnf_server.inspect.pages.run_view import RunView, decoding_label, view_run
from gbnf_server.inspect.pages.timeline import render_grammar_lines, render_timeline
from gbnf_server.inspect.rendering import Tab, render_template
from gbnf_server.planner.events import RunStarted, StepOffer, StepStarted
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.planner.recording import GrammarLines, RecordedCall, grammar_text
from gbnf_server.planner.run_files import RecordedRun
from gbnf_server.planner.tool_offer import grammar_of_step

KINDS = {
    "sampled": "chosen in a step of the model",
    "drafted": "guessed, and confirmed in a step with others",
    "forced": "the only continuation that the grammar allows",
    "end": "the end",
}


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
        decodings=[_decoding(view_decoding(decoding, label)) for label, decoding in recorded],
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
            compiled[event.offer] = _compiled(event, pool)
    return replace(run, grammars=compiled, are_compiled=True)


def _compiled(event: StepStarted, pool: dict[str, Tool]) -> str:
    try:
        grammar = grammar_of_step(event, pool, ResolvedOptions())
    except GbnfError:
        return ""
    return grammar_text(grammar)


def _note(view: RunView, shown: AbstractSet[str]) -> str:
    """Return where the grammars of a run are from, or why there are none."""
    if view.are_compiled and view.has_grammars:
        return "The file has no grammars: those above were compiled from the tools that the page was given."
    if view.has_grammars or not view.steps:
        return ""
    note = "The file has no grammars: `gbnf run --record` writes them, and the tokens."
    return f"{note} Those of single tools are linked from the tools that a step offers." if shown else note


def render_decodings(labels: Sequence[str], decodings: Sequence[RecordedCall]) -> Markup:
    """Return what the form shows: a decoding, or two beside each other."""
    views = [view_decoding(decoding, label) for label, decoding in zip(labels, decodings, strict=True)]
    return Markup("").join(Markup('<div class="slot">{}</div>').format(_decoding(view)) for view in views)


def _decoding(view: DecodingView) -> Markup:
    # "<" would end the element; a reader of JSON takes the escape for it
    data = json.dumps(view.data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return render_template("decoding.html.j2", view=view, data=Markup(data), kinds=KINDS)  # noqa: S704  # see above
