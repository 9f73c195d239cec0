"""How much of a step's prompt is in the cache, in process and on a llama-server?

    python bench/prompt_reuse.py [--runs N] [--steps N] [--model GGUF]

A planner's runs of several steps on SmolLM2 over the bundled tools, which return a constant. From the second
step of a run on:

    found    of the prompt of the step before and its answer, which begin this one
    cached   of all tokens of the prompt: the rest is new, such as a result
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distributed import bundled_tools
from gbnf_bench.suite_files import load_suite
from gbnf_server import Context, InProcess, Planner, PlannerOptions
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.executors import Workspace
from gbnf_server.llama.server_build import start
from gbnf_server.planner.events import ModelCalled
from gbnf_server.system.model_files import SMOLLM2_ADAPTER, smollm2_path
from tables import new_table, show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gbnf_server.backends.base import Backend

SUITE = Path(__file__).parent / "suites" / "representative.toml"


def main(
    runs: Annotated[int, typer.Option(min=1, help="Requests of the suite.")] = 8,
    steps: Annotated[int, typer.Option(min=2, help="Steps of a run, at most.")] = 5,
    model: Annotated[Path | None, typer.Option(help="GGUF file. Default: SmolLM2.")] = None,
) -> None:
    """Run, and print the table."""
    path, lora = (smollm2_path(), SMOLLM2_ADAPTER) if model is None else (model, None)
    queries = [case.query for case in load_suite(SUITE).cases][:runs]
    options = PlannerOptions(max_steps=steps, max_tokens=100, required=("*",))

    @contextmanager
    def served() -> Iterator[Backend]:
        extra = () if lora is None else ("--lora", str(lora))
        with start(path, extra=extra) as server, LlamaServer(server.url) as backend:
            yield backend

    contenders: dict[str, Callable[[], AbstractContextManager[Backend]]] = {
        "in process": lambda: InProcess(path, lora=lora),
        "llama-server": served,
    }
    table = new_table("|later steps|found, %: median (least)|cached, %: median (least)|tokens of prompts")
    for name, opened in contenders.items():
        shares, cached, total = [], [], 0
        with tempfile.TemporaryDirectory() as folder, opened() as backend:
            planner = Planner(bundled_tools(), backend, options, context=Context(Workspace(Path(folder))))
            for query in queries:
                events = planner.stream(query, text=False)
                calls = [event for event in events if isinstance(event, ModelCalled)]
                for before, call in pairwise(calls):
                    before_tokens = before.usage.prompt_tokens
                    shares.append(100 * min(call.usage.cached_tokens, before_tokens) / before_tokens)
                    cached.append(100 * call.usage.cached_tokens / call.usage.prompt_tokens)
                    total += call.usage.prompt_tokens
        table.add_row(
            name,
            str(len(shares)),
            f"{statistics.median(shares):.0f} ({min(shares):.0f})",
            f"{statistics.median(cached):.0f} ({min(cached):.0f})",
            f"{total:,}",
        )
    show(table)


if __name__ == "__main__":
    typer.run(main)
