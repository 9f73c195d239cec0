"""What is each of the rules for small models worth, in whole requests? All of them, none, and all but one.

    python bench/levers.py --model F.gguf [--suite NAME …] [--lever NAME …]

Runs the suites as `gbnf run` would, everything approved, with parts of the planner replaced. Columns: the
requests that ended as expected, the wrong calls of a run, and how often something was changed that no request
names. Runs are stored under `--out`, and an interrupted bench goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import PropertyMock, patch

from rich.console import Console

from gbnf_bench.bench_command import run_suites
from gbnf_bench.bench_output import BenchTask
from gbnf_bench.configurations import Configuration
from gbnf_bench.runner import RunOptions
from gbnf_server.cli.model_options import ModelSource
from tables import new_table, parser_of, show

PLANNER = "gbnf_server.planner"


def never(*_: Any) -> bool:
    """Return False, whatever the arguments are."""
    return False


def first(value: Any, *_: Any, **_more: Any) -> Any:
    """Return the first argument."""
    return value


LEVERS: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "ends when the job is done": {
        f"{PLANNER}.tool_offer.seems_done": never,
        f"{PLANNER}.call_checks.has_nothing_new": never,
        f"{PLANNER}.loop.has_nothing_new": never,
    },
    "goes on while something is left": {
        f"{PLANNER}.progress._due": lambda *_: (),
        f"{PLANNER}.progress.needs_another_call": never,
    },
    "declares what is mentioned": {f"{PLANNER}.loop.narrowed": first},
    "changes only what is asked for": {f"{PLANNER}.tool_offer.meant": first},
    "finds files first": {
        f"{PLANNER}.tool_offer.takes_found": lambda *_: None,
        f"{PLANNER}.first_step.takes_found": lambda *_: None,
    },
    "spells texts as the request": {f"{PLANNER}.call_checks.as_requested": first},
    "tells dates": {f"{PLANNER}.tool_offer.dates_to_tell": lambda *_: {}},
}
"""What replaces a part of the planner, by the name of the rule that it takes away."""
ASKED_FIRST = "asks the model for its choice first"
NAMES = ("all", "none", ASKED_FIRST, *LEVERS)


def run_without(
    name: str, source: ModelSource, suites: list[str], folder: Path, console: Console
) -> Mapping[str, Any]:
    """Run suites without a lever; "all" and "none" are with all and without any. Return the measures."""
    settings = {"max_tools": "auto", "hints": name != "none"}
    configuration = Configuration("auto", f"as `gbnf run` does it, without: {name}", settings)
    task = BenchTask(source, (configuration,), RunOptions(), console, out=folder / name.replace(" ", "-"))
    with ExitStack() as stack:
        for target, replacement in LEVERS.get(name, {}).items():
            stack.enter_context(patch(target, replacement))
        if name == ASKED_FIRST:
            asks = f"{PLANNER}.options.ResolvedOptions.asks_first"
            stack.enter_context(patch(asks, PropertyMock(return_value=False)))
        results = run_suites(task, suites, None)
    measures: Mapping[str, Any] = results.to_json()["numbers"]["auto"]["all"]
    return measures


def main() -> None:
    """Run it, and print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--suite", nargs="+", default=["fresh", "abstention", "decoys"])
    parser.add_argument("--lever", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("gbnf-bench"))
    options = parser.parse_args()
    source = ModelSource(model=options.model, threads=options.threads)
    console = Console(stderr=True)
    table = new_table("without|requests|converged|wrong calls|blocked|destroyed")
    for name in options.lever:
        measures = run_without(name, source, options.suite, options.out, console)
        values = {key: measure["value"] or 0.0 for key, measure in measures.items()}
        count = measures["converged"]["cases"]
        title = {"all": "nothing: all of them", "none": "any"}.get(name, name)
        converged = f"{round(values['converged'] * count)} ({values['converged']:.0%})"
        rest = (f"{values[key]:.2f}" for key in ("wrong_but_valid", "blocked", "destroyed"))
        table.add_row(title, str(count), converged, *rest)
    show(table)


if __name__ == "__main__":
    main()
