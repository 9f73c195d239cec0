"""What is each of the rules for small models worth, in whole requests? All of them, none, and all but one.

    python bench/levers.py --model F.gguf [--suite NAME …] [--without RULE|nothing|any …]

Runs the suites as `gbnf run` would, everything approved, without one rule of `Guidance` at a time. Columns:
the requests that ended as expected, the wrong calls of a run, and how often something was changed that no
request names. Runs are stored under `--out`, and an interrupted bench goes on where it was.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from rich.console import Console

from gbnf_bench.bench_command import run_suites
from gbnf_bench.bench_output import BenchTask
from gbnf_bench.configurations import Configuration
from gbnf_bench.runner import RunOptions
from gbnf_server.cli.model_options import ModelSource
from gbnf_server.planner.guidance import Guidance
from tables import new_table, parser_of, show

RULES = tuple(rule.name for rule in fields(Guidance))
AS_RUN = {"max_tools": "auto"}
CONFIGURATIONS = {
    "nothing": Configuration("nothing", "as `gbnf run` does it", AS_RUN),
    "any": Configuration("any", "without any rule", AS_RUN | {"hints": False}),
    **{rule: Configuration(rule, f"without {rule}", AS_RUN, without=(rule,)) for rule in RULES},
}
"""By what is taken away."""


def main() -> None:
    """Run it, and print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--suite", nargs="+", default=["fresh", "abstention", "decoys"])
    parser.add_argument("--without", nargs="+", choices=CONFIGURATIONS, default=[*CONFIGURATIONS])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("gbnf-bench"))
    options = parser.parse_args()
    source = ModelSource(model=options.model, threads=options.threads)
    compared = tuple(CONFIGURATIONS[name] for name in options.without)
    task = BenchTask(source, compared, RunOptions(), Console(stderr=True), out=options.out)
    numbers = run_suites(task, options.suite, None).to_json()["numbers"]
    table = new_table("without|requests|converged|wrong calls|blocked|destroyed")
    for configuration in compared:
        measures = numbers[configuration.name]["all"]
        values = {key: measure["value"] or 0.0 for key, measure in measures.items()}
        count = measures["converged"]["cases"]
        converged = f"{round(values['converged'] * count)} ({values['converged']:.0%})"
        rest = (f"{values[key]:.2f}" for key in ("wrong_but_valid", "blocked", "destroyed"))
        table.add_row(configuration.name.replace("_", " "), str(count), converged, *rest)
    show(table)


if __name__ == "__main__":
    main()
