"""How often is the tool that a request needs first the best by its words, by a small model, and by both?

    python bench/first_tool.py --model F.gguf [--suite NAME …]

The requests of the suites over the bundled tools. `words`: BM25. `model`: what a model that calls tools in
its template's format chooses among their purposes, before the first step of a run. `both`: what the planner
prefers. If words say clearly what a request needs, the model is not asked (`asked`), and all three are the
same. `writes`: how often the preferred tool changes something that the request does not ask for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

from gbnf.requests.ranking import BM25
from gbnf.tools import Tool, load_manifests
from gbnf_bench.cases import Case
from gbnf_bench.suite_files import load_suite
from gbnf_server.backends.base import Backend
from gbnf_server.cli.model_options import ModelSource
from gbnf_server.planner.events import CallModel, RunStarted
from gbnf_server.planner.loop import plan
from gbnf_server.planner.options import PlannerOptions, ResolvedOptions
from gbnf_server.planner.run_state import RunState
from gbnf_server.planner.small_models.preference import preference, read_choice
from gbnf_server.planner.small_models.requested_tools import choice_scores
from gbnf_server.system.folders import manifests_path
from tables import new_table, parser_of, show

SUITES = ("representative", "everyday", "errands", "italian", "unseen-wording", "fresh")
COLUMNS = ("requests", "asked", "words", "model", "both", "writes")
NOW = datetime(2026, 11, 21, 10, 32, tzinfo=UTC)


def choice_of(
    query: str, tools: tuple[Tool, ...], backend: Backend, options: ResolvedOptions
) -> tuple[tuple[str, ...], Mapping[str, float]]:
    """Return the names of the tools that a run offers, and the model's choice; {} if it is not asked."""
    run = plan(query, tools, options, turn="turn", clock=lambda: NOW)
    names: tuple[str, ...] = ()
    event = next(run)
    while not isinstance(event, CallModel):
        names = event.tools if isinstance(event, RunStarted) else names
        event = run.send(None)
    if event.purpose != "tool":
        return names, {}
    return names, read_choice(backend.complete(event.request), names)


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--suite", nargs="+", default=SUITES)
    arguments = parser.parse_args()
    tools = tuple(load_manifests([manifests_path()]))
    table = new_table(f"suite|{'|'.join(COLUMNS)}")
    totals = Counter[str]()
    with ModelSource(model=arguments.model, threads=1).open() as backend:
        options = ResolvedOptions.resolve(PlannerOptions(), backend)
        for name in arguments.suite:
            counts = Counter[str]()
            for case in load_suite(name).cases:
                if case.first:
                    names, choice = choice_of(case.query, tools, backend, options)
                    offered = [tool for tool in tools if tool.name in names]
                    counts += counts_of(case, offered, choice, options)
            table.add_row(name, *(str(counts[column]) for column in COLUMNS))
            totals += counts
    table.add_row("all", *(str(totals[column]) for column in COLUMNS))
    show(table)


def counts_of(
    case: Case, tools: list[Tool], choice: Mapping[str, float], options: ResolvedOptions
) -> Counter[str]:
    """Return what a case adds to each column."""
    scores = dict(zip(tools, BM25.rank(case.query, tools), strict=True))
    words = {tool.name: score for tool, score in scores.items()}
    by = {"words": words, "model": choice or words, "both": words}
    if choice:
        marked = choice_scores(tuple(tools), RunState(case.query, "turn", NOW, options))
        by["both"] = preference(marked, choice)
    best = {column: max(of_tools, key=of_tools.__getitem__) for column, of_tools in by.items()}
    needed = {expected.name for expected_calls in case.plans for expected in expected_calls}
    changes = next(tool for tool in tools if tool.name == best["both"]).run.effect == "write"
    counts = {column: int(name in case.first) for column, name in best.items()}
    counts |= {
        "requests": 1,
        "asked": int(bool(choice)),
        "writes": int(changes and best["both"] not in needed),
    }
    return Counter(counts)


if __name__ == "__main__":
    main()
