"""What a person gets of runs in which a weak model's structured output fails: before and after salvage.

    python bench/salvage.py --model F.gguf|smollm2 [--suite NAME] [--limit N]

The requests of a suite, without a grammar: the model has to write each call, and its answer, as clean JSON.
`before`: what there is without salvage. A run without an answer is an error; an answer may be raw data or a
call. `after`: the same runs with `PlannerOptions(salvage=True)`, the default. `with the result`: answers that
contain what the suite expects, of the requests with such an expectation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from gbnf.protocols.readers import looks_like_call
from gbnf.tools import load_manifests
from gbnf_bench.configurations import Configuration
from gbnf_bench.expectations import accepts
from gbnf_bench.runner import Bench, RunOptions
from gbnf_bench.suite_files import load_suite
from gbnf_server.cli.model_options import ModelSource
from gbnf_server.system.folders import manifests_path
from tables import new_table, parser_of, show

KINDS = ("text", "result, listed", "call or raw data", "error")
WEAK = Configuration("weak", "", {"call_format": "json", "filter": False, "salvage": True}, constrained=False)


def answer_of(run: Mapping[str, Any], *, salvaged: bool) -> tuple[str, str]:
    """Return the text that a person gets for a run, with or without salvage, and its kind."""
    if run["outcome"] == "salvaged":
        salvage = run["salvage"]
        return (salvage["text"], KINDS[salvage["by"] == "list"]) if salvaged else ("", "error")
    if run["outcome"] != "answered":
        return "", "error"
    answer = run["answer"]
    return answer, "call or raw data" if looks_like_call(answer) or answer[:1] in "[{" else "text"


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--suite", default="representative")
    parser.add_argument("--limit", type=int, default=None)
    arguments = parser.parse_args()
    tools = load_manifests([manifests_path()])
    answers: dict[str, Counter[str]] = {"before": Counter(), "after": Counter()}
    right, expected = Counter[str](), 0
    with ModelSource(model=arguments.model, threads=1).open() as backend:
        bench = Bench(
            [load_suite(arguments.suite)], [WEAK], tools, backend, model=arguments.model, options=RunOptions()
        )
        for job in bench.jobs[: arguments.limit]:
            run = bench.run(job).events[-1]["run"]
            expected += job.case.answer is not None
            for name, counts in answers.items():
                text, kind = answer_of(run, salvaged=name == "after")
                counts[kind] += 1
                right[name] += job.case.answer is not None and accepts(job.case.answer, text)
    table = new_table(f"salvage | {' | '.join(KINDS)} | with the result")
    for name, counts in answers.items():
        table.add_row(name, *(str(counts[kind]) for kind in KINDS), f"{right[name]} of {expected}")
    show(table)


if __name__ == "__main__":
    main()
