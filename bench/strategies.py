"""The ladder: one model over one suite on each rung, one line a rung, as Markdown.

    python bench/strategies.py [--suite NAME]… [--model GGUF | --server URL] [--strategy NAME]… [--out FILE]

    none      no grammar; a text that is one clean JSON call counts
    soft      no grammar; calls are read in any usual shape, and mended
    lines     no grammar; the prompt asks for calls in plain lines, which are read softly
    grammar   the grammar that binds each name to its arguments
    field     the same, each call beginning with a thought
    free      thoughts without a grammar, then the call under it

The columns are those of `gbnf bench`, and `valid`: steps whose text was a valid call or answer. With `--out`,
runs are kept as they are done, and the same command goes on where it stopped.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from gbnf import load_manifests
from gbnf_server.backends.base import Backend
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.bundled import manifests_path
from gbnf_server.demo_model import model_path
from gbnf_server.evaluation.call_matching import references_of
from gbnf_server.evaluation.configurations import supported_strategies
from gbnf_server.evaluation.metadata import about
from gbnf_server.evaluation.results import Results
from gbnf_server.evaluation.run_log import RunLog
from gbnf_server.evaluation.runner import Bench, RunOptions
from gbnf_server.evaluation.strategies import best_strategy, strategy_table
from gbnf_server.evaluation.suite_files import load_suite


def compare_strategies(
    backend: Backend, suites: list[str], chosen: list[str], log: Path, *, model: str, options: RunOptions
) -> Results:
    """Every case on every rung that the backend can stand on."""
    pool = load_manifests(manifests_path())
    loaded = [load_suite(name, pool) for name in suites]
    strategies = tuple(
        each for each in supported_strategies(backend.dialect) if not chosen or each.name in chosen
    )
    if not strategies:
        raise typer.BadParameter("none of these rungs can be stood on with this backend")
    bench = Bench(loaded, strategies, pool, backend, model=model, options=options)
    with RunLog(log) as runs:
        for job, record in bench.run_all(runs):
            print(f"{job.configuration.name} {job.case.id} {record.events[-1]['run']['outcome']}", flush=True)
        records = tuple(runs.records[job.key, job.fingerprint] for job in bench.jobs)
    tools = [*pool, *(decoy for suite in loaded for decoy in suite.decoys)]
    header = about("ladder", {"name": backend.name}, options)
    return Results(header, strategies, tuple(loaded), references_of(tools), records)


def main(
    suite: Annotated[list[str] | None, typer.Option(help="A shipped suite, or a file; repeatable.")] = None,
    model: Annotated[Path | None, typer.Option(help="A GGUF instead of the embedded model.")] = None,
    server: Annotated[str | None, typer.Option(help="A llama-server that runs already.")] = None,
    strategy: Annotated[list[str] | None, typer.Option(help="Only this rung; may be repeated.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest call, in tokens.")] = 512,
    out: Annotated[Path | None, typer.Option(help="Keep the runs here, and go on from them.")] = None,
) -> None:
    """Measure the ladder."""
    with ExitStack() as stack:
        if server is not None:
            backend: Backend = stack.enter_context(LlamaServer(server))
        else:
            backend = stack.enter_context(InProcess(model or model_path(), guard_grammars=False))
        log = out or Path(stack.enter_context(tempfile.TemporaryDirectory())) / "ladder.jsonl"
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
