"""`gbnf batch`: plan and execute many requests from a file."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gbnf.errors import clip
from gbnf_server.cli.default_model import choose_model
from gbnf_server.cli.errors import ExitCode, interruptible
from gbnf_server.cli.input_files import STDIN, check_one_stdin, read_text, source_name
from gbnf_server.cli.model_options import (
    ApproveAllOption,
    ModelSource,
    PlanningOptions,
    QuietOption,
    SamplingOptions,
    WorkspaceOption,
)
from gbnf_server.cli.output import SHOWN_CHARACTERS, escape_line, progress_bar, say, stderr_console, writing
from gbnf_server.cli.tool_options import ToolSources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gbnf_server.backends.base import Backend
    from gbnf_server.planner.batch import Batch, BatchResult


def batch(
    requests: Annotated[
        Path, typer.Argument(), "FILE.jsonl", "Requests, one JSON string or object a line; -: standard input."
    ],
    out: Annotated[
        Path | None, typer.Option(dir_okay=False), "FILE", "Result file. Default: FILE.results.jsonl."
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1),
        "Concurrent runs. Default: the server's slots; 1 for each model in process.",
    ] = None,
    ray: Annotated[
        str | None,
        "ADDRESS",
        (
            "Run the model in workers of a Ray cluster, one for each GPU, else for each node: auto, "
            "HOST:PORT, or local. --server is then one on each node."
        ),
    ] = None,
    *,
    source: ModelSource,
    sources: ToolSources,
    workspace: WorkspaceOption = Path("gbnf-workspace"),
    yes: ApproveAllOption = False,
    planning: PlanningOptions,
    sampling: SamplingOptions,
    quiet: QuietOption = False,
) -> None:
    """Plan and execute each request of a file, several at a time.

    A line is a JSON string, or an object with "query" and optionally "id" and "workspace", a folder inside
    the workspace for this run only. Results are JSON lines in the order of the requests. Events are stored in
    a log beside them: after an interruption, the same command resumes each run, and executes no call twice.
    For requests that depend on one another, use --concurrency 1.

    Exit with status 0 if every request was answered, else with 1.

    \b
    Try:
      gbnf batch requests.jsonl
      jq -c .question faq.json | gbnf batch - --out answers.jsonl
      gbnf batch requests.jsonl --model Qwen3-4B-Q4_K_M.gguf --ray auto
      gbnf batch requests.jsonl --server http://127.0.0.1:8080 --concurrency 4 --out results.jsonl
    """
    source.check()
    import asyncio

    from gbnf_server.executors import AbsentPerson, Context, Workspace
    from gbnf_server.planner import Planner
    from gbnf_server.planner.batch import Batch, parse_requests
    from gbnf_server.planner.runs.fingerprints import identity

    check_one_stdin(requests, *(sources.tools or ()))
    if out is None and str(requests) == STDIN:
        raise typer.BadParameter("with -, give a result file: --out FILE", param_hint="FILE.jsonl")
    results = out or requests.parent / f"{requests.stem}.results.jsonl"
    with interruptible("run the same command again to continue"), sources.open() as loaded:
        source, pool, is_untrained = choose_model(source, loaded)
        text = read_text(requests, "a file with a request on each line")
        parsed = parse_requests(text, source_name(requests))
        log = _log_of(results, requests)
        with _opened(source, concurrency, ray) as (opened, facts, slots):
            place = Workspace(workspace)  # not before the model works
            if not quiet:
                say(f"workspace: {place.root}")
            context = Context(place, person=AbsentPerson(approve_all=yes))
            planner = Planner(pool, opened, planning.planner_options(sampling), context=context)
            with Batch(parsed, planner, log, model=identity(facts)) as work:
                counts = asyncio.run(_write_results(work, results, slots, quiet=quiet))
        summary = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
        say(f"{len(parsed)} requests: {summary}; results: {results}", style="")
    answered = set(counts) == {"answered"} and not is_untrained
    raise typer.Exit(ExitCode.SUCCESS if answered else ExitCode.FAILURE)


@contextmanager
def _opened(
    source: ModelSource, concurrency: int | None, ray: str | None
) -> Iterator[tuple[Backend, Mapping[str, Any], int]]:
    """Give the backend, the facts that identify its model, and how many runs to have at a time."""
    if ray is None:
        with source.open(parallel=concurrency or 1) as opened:
            facts = source.facts(opened)
            yield opened, facts, concurrency or facts.get("slots", 1)
        return
    from gbnf_server.backends.ray_workers import RayWorkers

    with RayWorkers(ray, partial(_open_worker, source.absolute()), concurrency) as workers:
        yield workers, workers.facts_of_model, workers.slots


def _open_worker(source: ModelSource, parallel: int) -> tuple[Backend, Mapping[str, Any]]:
    opened = source.open(parallel=parallel)
    return opened, source.facts(opened)


def _log_of(results: Path, requests: Path) -> Path:
    """Return the log, from which an interrupted batch resumes.

    Raises BadParameter if it or the results would replace the requests.
    """
    if not results.name:
        raise typer.BadParameter("the name is empty: use a file", param_hint="--out")
    log = results.with_name(results.name + ".log")
    for path in (results, log):
        if path.exists() and requests.exists() and path.samefile(requests):
            raise typer.BadParameter(f"{path} is the request file: use another", param_hint="--out")
    return log


async def _write_results(work: Batch, out: Path, concurrency: int, *, quiet: bool) -> Counter[str]:
    from rich.progress import TimeRemainingColumn

    from gbnf_server.planner.batch import write_result

    counts: Counter[str] = Counter()
    problem, hint = f"the results can't be written to {out}", " They are in the log."
    with writing(problem, hint):
        opened = out.open("w", encoding="utf-8")
    with opened as file, progress_bar(stderr_console(), TimeRemainingColumn(), quiet=quiet) as progress:
        bar = progress.add_task("", total=len(work.requests), completed=work.done)

        def on_result(result: BatchResult) -> None:
            progress.update(
                bar,
                advance=1,
                description=escape_line(clip(f"{result.request.id} {result.outcome}", SHOWN_CHARACTERS)),
            )

        async for result in work.results(concurrency, on_result):
            counts[result.outcome] += 1
            with writing(problem, hint):
                write_result(file, result)
    return counts
