"""Decodings and runs as HTML."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from markupsafe import Markup

from gbnf_server.inspect.decoding_view import DecodingView, seconds, view_decoding
from gbnf_server.inspect.live_decoding import MOST_REQUEST, MOST_TOKENS, Strategy
from gbnf_server.inspect.rendering import Tab, render_template
from gbnf_server.inspect.run_files import RecordedRun
from gbnf_server.inspect.run_view import EntryView, RunView, decoding_label, view_run
from gbnf_server.planner.recorded_calls import RecordedCall

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


def run_tab(runs: Sequence[RecordedRun], shown: AbstractSet[str] = frozenset()) -> Tab:
    """Return the tab of runs. `shown`: the tools whose grammars the page shows, too."""
    first = 0
    rendered = []
    for run in runs:
        rendered.append(_run(view_run(run), run.decodings, first, shown))
        first += len(run.decodings)
    html = render_template("run_tab.html.j2", runs=rendered)
    return Tab("run", "A run" if len(runs) == 1 else "Runs", html)


def render_decodings(labels: Sequence[str], decodings: Sequence[RecordedCall]) -> Markup:
    """Return what the form shows: a decoding, or two beside each other."""
    views = [view_decoding(decoding, label) for label, decoding in zip(labels, decodings, strict=True)]
    return Markup("").join(Markup('<div class="slot">{}</div>').format(_decoding(view)) for view in views)


def _decoding(view: DecodingView) -> Markup:
    # "<" would end the element; a reader of JSON takes the escape for it
    data = json.dumps(view.data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return render_template("decoding.html.j2", view=view, data=Markup(data), kinds=KINDS)  # noqa: S704  # see above


def _run(view: RunView, decodings: Sequence[RecordedCall], first: int, shown: AbstractSet[str]) -> Markup:
    def bar(entry: EntryView) -> dict[str, str] | None:
        if entry.start_s is None:
            return None
        start, width = entry.start_s / view.total_s, max(entry.duration_s / view.total_s, 0.003)
        return {"x": f"{100 * min(start, 0.997):.2f}%", "width": f"{100 * width:.2f}%"}

    rows = [
        {
            "step": step,
            "entries": [
                {
                    "entry": entry,
                    "bar": bar(entry),
                    "seconds": "" if entry.start_s is None else seconds(entry.duration_s),
                    "number": None if entry.decoding is None else first + entry.decoding,
                    "grammar": "" if entry.decoding is None else decodings[entry.decoding].grammar,
                }
                for entry in step.entries
            ],
        }
        for step in view.steps
    ]
    return render_template("run.html.j2", view=view, rows=rows, total=seconds(view.total_s), shown=shown)
