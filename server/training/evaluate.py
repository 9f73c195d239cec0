"""Evaluate the demonstration model: `python -m training.evaluate --model model.gguf`.

There are two measures. The suites of `gbnf bench` are whole runs with real executors, which pass if the final
state is as expected. Traces of the generator's held-out half are evaluated call by call after the correct
history, greedily and without a grammar, so that the numbers show what was learnt and not what the grammar
enforces.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gbnf import load_manifests
from gbnf_server.llama.demo_model import model_path
from gbnf_server.llama.process_globals import patch_default_model_params
from gbnf_server.system.folders import manifests_path
from training.chat import conversation
from training.source import Source
from training.traces import trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from llama_cpp import Llama

EVALUATION_SEED = 987_654_321
TARGETS = {
    "held-out": 0.95,
    "unseen-wording": 0.7,
    "representative": 1.0,
    "decoys": 0.9,
    "abstention": 0.9,
    "italian": 0.9,
}
"""The suites, and the share of their cases that the model is meant to bring to the right world."""
CONFIGURATIONS = ("text", "union", "filter")
"""No grammar; the grammar over the same prompts; and over what the pool filter leaves, as `gbnf run` does."""


@dataclass(frozen=True, slots=True)
class Line:
    """The result of a suite with a configuration; `missed` lists the failed cases, and why they failed."""

    suite: str
    configuration: str
    cases: int
    converged: int
    missed: tuple[str, ...]

    def text(self) -> str:
        """Return the result as a line of the report."""
        share = f"{self.converged}/{self.cases}"
        return f"  {self.suite:16} {self.configuration:9} {share:>8}  {self.converged / self.cases:6.1%}"


def on_suites(model: Path, names: Sequence[str], configurations: Sequence[str]) -> Iterator[Line]:
    """Run suites under configurations of the bench, greedily, with the model in this process."""
    from gbnf_bench.call_matching import references_of  # noqa: PLC0415
    from gbnf_bench.configurations import named  # noqa: PLC0415
    from gbnf_bench.runner import Bench, RunOptions  # noqa: PLC0415
    from gbnf_bench.scoring import score  # noqa: PLC0415
    from gbnf_bench.suite_files import load_suite  # noqa: PLC0415
    from gbnf_server.backends.in_process import InProcess  # noqa: PLC0415  # the rest needs no engine

    pool = load_manifests(manifests_path())
    with InProcess(model) as backend:
        for name in names:
            suite = load_suite(name, pool)
            for configuration in named(configurations):
                bench = Bench([suite], [configuration], pool, backend, model=model.name, options=RunOptions())
                missed: list[str] = []
                for job in bench.jobs:
                    tools = job.case.tools(pool, suite.decoys)
                    result = score(job.case, bench.run(job), references_of(tools))
                    if not result.converged:
                        missed.append(f"{job.case.id}: {job.case.query!r}: {'; '.join(result.faults)}")
                count = len(bench.jobs)
                yield Line(suite.name, configuration.name, count, count - len(missed), tuple(missed))


def answer(llama: Llama, turns: list[tuple[str, str]], most: int = 400) -> str:
    """Return what the model says next, greedily."""
    made: Any = llama.create_completion(
        conversation(turns) + "<|assistant|>", max_tokens=most, temperature=0.0
    )
    return str(made["choices"][0]["text"])


@dataclass(slots=True)
class Score:
    """Counts of exact calls and whole plans."""

    calls: Counter[str]
    right: Counter[str]
    plans: int = 0
    right_plans: int = 0
    json: int = 0

    def text(self) -> str:
        """Return the score in lines to print."""
        total, right = self.calls.total(), self.right.total()
        exact = f"exact calls {right}/{total} ({right / total:.1%}), valid JSON {self.json / total:.1%}"
        lines = [
            f"{exact}, whole plans {self.right_plans}/{self.plans} ({self.right_plans / self.plans:.1%})"
        ]
        lines += [f"  {name:28} {self.right[name]:4}/{count:4}" for name, count in sorted(self.calls.items())]
        return "\n".join(lines)


def on_traces(llama: Llama, count: int, *, seed: int = EVALUATION_SEED, show: int = 0) -> Score:
    """`count` traces of the held-out half; prints the first `show` wrong calls."""
    source = Source(seed, held_out=True)
    score = Score(Counter(), Counter())
    for _ in range(count):
        one = trace(source)
        history = [("system", one.system())]
        whole = True
        for role, content in one.turns():
            if role == "assistant":
                name = json.loads(content)["name"]
                said = answer(llama, history)
                score.calls[name] += 1
                score.json += _is_json(said)
                score.right[name] += said == content
                if said != content:
                    whole = False
                    if show:
                        show -= 1
                        print(f"> {one.request}\n  wanted {content}\n  said   {said}")
            history.append((role, content))
        score.plans += 1
        score.right_plans += whole
    return score


def report(
    model: Path, *, suites: Sequence[str], configurations: Sequence[str], traces: int, show: int = 0
) -> None:
    """Print the evaluation, line by line as it is done."""
    for line in on_suites(model, suites, configurations):
        target = TARGETS.get(line.suite) if line.configuration == "filter" else None
        met = "" if target is None else f"  target {target:.0%}"
        print(line.text() + met, flush=True)
        for fault in line.missed[:show]:
            print(f"      {fault}", flush=True)
    if traces:
        from llama_cpp import Llama  # noqa: PLC0415  # the rest is read by tests without an engine

        patch_default_model_params()
        print(on_traces(Llama(str(model), n_ctx=1024, verbose=False), traces, show=show).text())


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", type=Path, default=model_path(), help="GGUF file (default: the bundled model)"
    )
    parser.add_argument("--suite", action="append", help="suite, repeatable (default: all six)")
    parser.add_argument(
        "--config", action="append", help=f"configuration, repeatable (default: {', '.join(CONFIGURATIONS)})"
    )
    parser.add_argument("--traces", type=int, default=200, help="number of held-out traces (default 200)")
    parser.add_argument("--show", type=int, default=0, help="failures to print per line (default 0)")
    options = parser.parse_args()
    report(
        options.model,
        suites=options.suite or list(TARGETS),
        configurations=options.config or list(CONFIGURATIONS),
        traces=options.traces,
        show=options.show,
    )


if __name__ == "__main__":
    main()
