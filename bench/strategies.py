"""Compare strategies: one model over the same suites with each, as a Markdown table.

    python bench/strategies.py [--suite NAME]… [--model GGUF | --server URL] [--strategy NAME]… [--out LOG]

    none        no grammar; only a text that is one clean JSON call counts
    text        no grammar; calls are read in any common syntax, and repaired
    lines       no grammar; the prompt requests the line protocol
    grammar     a grammar that binds each name to its arguments
    whitespace  the same, with any whitespace in the JSON
    field       as grammar, each call beginning with reasoning
    free        reasoning without a grammar, then the call under it

The columns are those of `gbnf bench`, and `valid`: steps whose text was a valid call or answer. With `--out`,
runs are stored as they finish, and the same command resumes.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from gbnf import load_manifests
from gbnf_bench.call_matching import references_of
from gbnf_bench.configurations import supported_strategies
from gbnf_bench.metadata import about
from gbnf_bench.results import Results
from gbnf_bench.run_log import RunLog
from gbnf_bench.runner import Bench, RunOptions
from gbnf_bench.strategies import best_strategy, strategy_table
from gbnf_bench.suite_files import load_suite
from gbnf_server.backends.base import Backend
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.llama.demo_model import model_path
from gbnf_server.system.bundled import manifests_path


def compare_strategies(
    backend: Backend, suites: list[str], chosen: list[str], log: Path, *, model: str, options: RunOptions
) -> Results:
    """Run every case with every strategy, of those chosen, that the backend supports."""
    pool = load_manifests(manifests_path())
    loaded = [load_suite(name, pool) for name in suites]
    strategies = supported_strategies(backend, chosen)
    if not strategies:
        raise typer.BadParameter("this backend takes no grammar. Use none, text or lines")
    bench = Bench(loaded, strategies, pool, backend, model=model, options=options)
    with RunLog(log) as runs:
        for job, record in bench.run_all(runs):
            print(f"{job.configuration.name} {job.case.id} {record.events[-1]['run']['outcome']}", flush=True)
        records = tuple(runs.records[job.key, job.fingerprint] for job in bench.jobs)
    tools = [*pool, *(decoy for suite in loaded for decoy in suite.decoys)]
    header = about("strategies", {"name": backend.name}, options)
    return Results(header, strategies, tuple(loaded), references_of(tools), records)


def main(
    suite: Annotated[list[str] | None, typer.Option(help="Bundled suite or a file; repeatable.")] = None,
    model: Annotated[Path | None, typer.Option(help="Model file. Default: the bundled model.")] = None,
    server: Annotated[str | None, typer.Option(help="Running llama-server.")] = None,
    strategy: Annotated[list[str] | None, typer.Option(help="Strategy to run; repeatable.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Maximum tokens of a call.")] = 512,
    out: Annotated[Path | None, typer.Option(help="Log of the runs, to resume from.")] = None,
) -> None:
    """Compare strategies."""
    with ExitStack() as stack:
        if server is not None:
            backend: Backend = stack.enter_context(LlamaServer(server))
        else:
            backend = stack.enter_context(InProcess(model or model_path()))
        log = out or Path(stack.enter_context(tempfile.TemporaryDirectory())) / "strategies.jsonl"
        results = compare_strategies(
            backend,
            suite or ["representative", "abstention"],
            strategy or [],
            log,
            model=str(model or server or "embedded"),
            options=RunOptions(max_tokens=max_tokens, warm=True),
        )
    table = strategy_table(results)
    print(f"\n{table.title}\n\n{table.markdown()}\n\nbest: {best_strategy(results)}")


if __name__ == "__main__":
    typer.run(main)
