"""Are constrained answers complete within a token limit, and what does the check cost?

    python bench/budget.py [--runs N]

Random weights over the bundled model's vocabulary write calls of random parts of the bundled pool, at
temperature 2. The limit is the fewest tokens of the shortest call, times a factor. Each call is decoded with
the token budget and without; the engine decides whether the text is complete. `shortened`: answers in which a
token was refused for the limit. `time`: of all calls of the row, with the budget relative to without.
"""

from __future__ import annotations

import random
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import PropertyMock, patch

import checkout
from gbnf import Grammar, compile_pool, load_manifests
from gbnf_server.backends.base import Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.llama.answer_ends import TokenBudget
from gbnf_server.llama.demo_model import model_path
from support.vocabularies import make_model_over
from tables import parser_of, print_heads

FACTORS = (1.0, 1.5, 2.0, 4.0, 16.0)


def shortest(model: InProcess, grammar: Grammar) -> int:
    """Return the tokens of the shortest call."""
    text = grammar.matcher.start().shortest_ending()
    native = model._model  # noqa: SLF001  # its vocabulary
    return len(native.speller.spell(text.encode()) or [])


def main() -> None:
    """Decode, and print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=200)
    runs = parser.parse_args().runs
    no_budget = patch.object(TokenBudget, "is_active", PropertyMock(return_value=False))
    modes: tuple[AbstractContextManager[Any], ...] = (no_budget, nullcontext())
    tools = load_manifests(checkout.ROOT / "manifests")
    print_heads("limit | complete without | complete with | shortened | time")
    with tempfile.TemporaryDirectory() as folder:
        path = make_model_over(model_path(), Path(folder) / "random.gguf")
        with InProcess(path, threads=1, prompt_style="minimal") as model:
            for factor in FACTORS:
                complete, seconds, shortened = [0, 0], [0.0, 0.0], 0
                chance = random.Random(1)
                for run in range(runs):
                    grammar = compile_pool(chance.sample(tools, chance.randint(1, 5)))
                    limit = round(factor * shortest(model, grammar))
                    for index, mode in enumerate(modes):
                        with mode:
                            started = time.perf_counter()
                            answer = model.complete(
                                Request(
                                    [{"role": "user", "content": "hello"}],
                                    grammar=grammar,
                                    temperature=2.0,
                                    seed=run,
                                    max_tokens=limit,
                                )
                            )
                            seconds[index] += time.perf_counter() - started
                        complete[index] += grammar.match(answer.text).complete
                        shortened += answer.shortened_at is not None
                shares = " | ".join(f"{count} of {runs}" for count in [*complete, shortened])
                print(f"| {factor:g} × the shortest call | {shares} | {seconds[1] / seconds[0]:.2f} |")


if __name__ == "__main__":
    main()
