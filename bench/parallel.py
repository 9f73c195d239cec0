"""Compare greedy answers that run alone with the same among others.

    python bench/parallel.py [--requests N] [--parallel K] [--deterministic] [--threads N] [--max-tokens N]

The requests ask SmolLM2 for JSON of random schemas, each with its grammar. All are answered one after the
other, then `--parallel` at a time in another order, by the same backend. Prints how many answers differ, the
gap of the two logits at which each of those leaves the other, and the noise: how far the gap between the two
likeliest tokens changes at the same place of the same text.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import hypothesis
import numpy as np
import typer
from hypothesis import HealthCheck, Phase, settings

import checkout  # noqa: F401  # for the generators that the tests use
from gbnf import compile_schema
from gbnf.errors import SchemaError
from gbnf_server.backends.base import Completion, Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.system.model_files import smollm2_path
from near_ties import changes, gap, more_logprobs
from support.schemas import SCHEMAS


def schemas(count: int) -> Iterator[Any]:
    """Yield different random schemas, the same in each run."""
    collected: dict[str, Any] = {}
    law = settings(
        max_examples=4 * count,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )

    def add(schema: Any) -> None:
        collected.setdefault(json.dumps(schema), schema)

    law(hypothesis.seed(1)(hypothesis.given(SCHEMAS)(add)))()
    yield from collected.values()


def requests(count: int, max_tokens: int) -> Iterator[Request]:
    """Yield `count` requests."""
    for schema in schemas(count):
        try:
            grammar = compile_schema(schema)
        except SchemaError:  # no value satisfies it
            continue
        content = f"Write JSON that fits: {json.dumps(schema, ensure_ascii=False)[:200]}"
        yield Request([{"role": "user", "content": content}], grammar, max_tokens=max_tokens, logprobs=20)
        count -= 1
        if not count:
            return


def report(alone: list[Completion], together: list[Completion]) -> None:
    """Print what differs, and by how much."""
    pairs = [*zip(alone, together, strict=True)]
    different = [(own, other) for own, other in pairs if own.text != other.text]
    print(f"{len(different)} of {len(pairs)} answers differ")
    noise = [change for own, other in pairs for change in changes(own.logprobs, other.logprobs)]
    most, usual = max(noise, default=0.0), float(np.median(noise)) if noise else 0.0
    print(f"noise at {len(noise)} tokens: the gap changes by {usual:.3f} (median), at most by {most:.3f}")
    gaps = [gap(own.logprobs, other.logprobs) for own, other in different]
    print("gaps where they differ:", ", ".join(f"{width:.3f}" for width in sorted(gaps)))
    print(f"near ties, no wider than the noise: {sum(width <= most for width in gaps)}")


def main(
    requests_: Annotated[int, typer.Option("--requests", help="Number of requests.")] = 305,
    parallel: Annotated[int, typer.Option(help="Answers at a time.")] = 2,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="As `gbnf serve --deterministic`.")
    ] = False,
    threads: Annotated[int, typer.Option(help="Threads of the model.")] = 1,
    max_tokens: Annotated[int, typer.Option(help="Most tokens of an answer.")] = 24,
) -> None:
    """Answer all requests twice."""
    asked = [*requests(requests_, max_tokens)]
    order = random.Random(1).sample(range(len(asked)), len(asked))
    with (
        more_logprobs(),
        InProcess(
            smollm2_path(),
            threads=threads,
            context_length=1024,
            parallel=parallel,
            deterministic=deterministic,
        ) as backend,
    ):
        alone = [backend.complete(request) for request in asked]
        with ThreadPoolExecutor(parallel) as pool:
            answered = dict(
                zip(order, pool.map(backend.complete, [asked[index] for index in order]), strict=True)
            )
    report(alone, [answered[index] for index in range(len(asked))])


if __name__ == "__main__":
    typer.run(main)
