"""The timeline of a run as HTML."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from itertools import count, groupby

from markupsafe import Markup

from gbnf_server.inspect.pages.rendering import render_template, tokens
from gbnf_server.inspect.pages.run_view import EntryView, RunView, StepView, seconds
from gbnf_server.planner.runs.grammar_lines import GrammarLines

_NARROWEST = 0.003
"""The least width of a bar, as a share of the time axis."""
MOST_CHANGES = 3
"""Tools by which a step may differ from the one before, without listing all that it offers."""


def render_timeline(
    view: RunView,
    grammars: GrammarLines,
    *,
    level: int,
    note: str = "",
    shown: AbstractSet[str] = frozenset(),
    first_decoding: int | None = None,
) -> Markup:
    """Return the timeline of a run, whose grammars are added to those of the page.

    `level`: of the headings of steps. `shown`: the tools whose grammars the page shows, too.
    `first_decoding`: the number of the run's first decoding in the page; None if the page shows none.
    """
    rows = []
    before = StepView("")
    for step in view.steps:
        change = _change(before, step)
        entries = [_entry(entry, view, grammars, first_decoding) for entry in step.entries]
        rows.append(
            {"step": step, "listed": () if change else step.tools, "change": change, "entries": entries}
        )
        before = step if step.tools else before
    return render_template("timeline.html.j2", view=view, rows=rows, level=level, shown=shown, note=note)


def _change(before: StepView, step: StepView) -> str:
    """Return how the tools of a step differ from those of the step before; empty if they should be listed."""
    added = [name for name in step.tools if name not in before.tools]
    removed = [name for name in before.tools if name not in step.tools]
    if not before.tools or not step.tools or len(added) + len(removed) > MOST_CHANGES:
        return ""
    changes = [f"with {', '.join(added)}"] if added else []
    changes += [f"without {', '.join(removed)}"] if removed else []
    return f"as in {before.title.lower()}" + (f", {' and '.join(changes)}" if changes else "")


def _entry(
    entry: EntryView, view: RunView, grammars: GrammarLines, first_decoding: int | None
) -> dict[str, object]:
    has_number = entry.decoding is not None and first_decoding is not None
    lines = grammars.add(entry.grammar) if entry.grammar else None
    return {
        "entry": entry,
        "bar": _bar(entry, view.total_s),
        "seconds": "" if entry.start_s is None else seconds(entry.duration_s),
        "number": (first_decoding or 0) + (entry.decoding or 0) if has_number else None,
        "lines": "" if lines is None else _ranges(lines),
    }


def _ranges(numbers: Iterable[int]) -> str:
    """Return numbers as the script reads them: "0-3 7"."""
    steps = count()
    runs = [list(run) for _, run in groupby(numbers, lambda number: number - next(steps))]
    return " ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _bar(entry: EntryView, total_s: float) -> dict[str, str] | None:
    if entry.start_s is None:
        return None
    start, width = entry.start_s / total_s, max(entry.duration_s / total_s, _NARROWEST)
    return {"x": f"{100 * min(start, 1 - _NARROWEST):.2f}%", "width": f"{100 * width:.2f}%"}


def render_grammar_lines(grammars: GrammarLines) -> Markup:
    """Return the element from which the script of the page takes the lines; empty without lines."""
    if not grammars.lines:
        return Markup()
    rows = [list(tokens(line)) if "::=" in line else line for line in grammars.lines]
    return render_template("grammar_lines.html.j2", rows=rows)
