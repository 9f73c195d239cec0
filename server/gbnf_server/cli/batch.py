"""`gbnf batch`: plan and execute many requests from a file."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that the others start quickly

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from gbnf_server.cli.exit_codes import ExitCode
from gbnf_server.cli.model_options import (
    ApiKeyOption,
    BackendOption,
    ContextSizeOption,
    ModelOption,
    ModelSource,
    SeedOption,
    ServerOption,
    TemperatureOption,
)

if TYPE_CHECKING:
    from rich.console import Console

    from gbnf_server.batch import Batch, BatchResult
    from gbnf_server.errors import SetupError


def batch(
    requests: Annotated[
        Path, typer.Argument(metavar="FILE.jsonl", help="A line for each request: a text, or an object.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", dir_okay=False, help="Where the results go; FILE.results.jsonl when absent."
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, help="Runs at a time; a server's slots, or 1 in this process, when absent."),
    ] = None,
    model: ModelOption = None,
    server: ServerOption = None,
    backend: BackendOption = None,
    api_key: ApiKeyOption = None,
    context: ContextSizeOption = None,
    manifests: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH", help="Tools: a folder or a manifest, repeatable; the shipped ones when absent."
        ),
    ] = None,
    workspace: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder that tools work in and cannot leave.")
    ] = Path("gbnf-workspace"),
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Approve every call that would ask for approval.")
    ] = False,
    lang: Annotated[str, typer.Option(help="Language of the tools' descriptions.")] = "en",
    max_steps: Annotated[int, typer.Option(min=1, help="Steps of a run, the answer among them.")] = 12,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest call, in tokens.")] = 512,
    temperature: TemperatureOption = 0.0,
    seed: SeedOption = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Plan and execute every request of a file, several at a time.

    A line is a text in quotes, or an object with a "query", and perhaps an "id" and a "workspace", a folder
    inside DIR that is the run's own. Results are lines of JSON in the order of the requests. Everything that
    happens is kept in a log beside them: interrupted, the same command goes on where each run was, and
    nothing is executed twice. Requests that depend on one another want --concurrency 1.

    It leaves with 0 where every request was answered, else with 1.

    \b
    Try:
      gbnf batch requests.jsonl
      gbnf batch requests.jsonl --server http://127.0.0.1:8080 --concurrency 4 --out results.jsonl
    """
    source = ModelSource(model, server, api_key, backend, context)
    source.check()
    import asyncio

    from gbnf import load_manifests
    from gbnf_server.batch import Batch, read_requests
    from gbnf_server.bundled import manifests_path
    from gbnf_server.cli.errors import interruptible
    from gbnf_server.cli.output import stderr_console
    from gbnf_server.evaluation.metadata import identity
    from gbnf_server.executors import AbsentPerson, Context, Workspace
    from gbnf_server.planner import Planner

    asked = read_requests(requests)
    results = out or requests.with_suffix(".results.jsonl")
    if not results.name:
        raise typer.BadParameter("an empty name: give a file", param_hint="--out")
    log = results.with_name(results.name + ".log")
    for path in (results, log):
        if path.exists() and path.samefile(requests):
            raise typer.BadParameter(f"{path} is the file of requests: give another", param_hint="--out")
    tools = load_manifests(manifests or manifests_path())
    console = stderr_console()
    with interruptible(), source.open(parallel=concurrency or 1) as chosen:
        facts = source.facts(chosen)
        planner = Planner(
            tools,
            chosen,
            context=Context(Workspace(workspace), person=AbsentPerson(approve_all=yes)),
            max_steps=max_steps,
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
            language=lang,
        )
        with Batch(asked, planner, log, model=identity(facts)) as work:
            counts = asyncio.run(
                _do(work, results, concurrency or facts.get("slots", 1), console, quiet=quiet)
            )
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    console.print(f"{len(asked)} requests: {told}; the results are in {results}", soft_wrap=True)
    raise typer.Exit(ExitCode.SUCCESS if set(counts) == {"answered"} else ExitCode.FAILURE)


async def _do(work: Batch, out: Path, concurrency: int, console: Console, *, quiet: bool) -> Counter[str]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from gbnf_server.batch import write_result
    from gbnf_server.cli.output import escape_line, shorten

    counts: Counter[str] = Counter()
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with (
        _opened(out) as file,
        Progress(*columns, console=console, disable=quiet) as progress,
    ):
        bar = progress.add_task("", total=len(work.requests), completed=work.done)

        def on_result(result: BatchResult) -> None:
            progress.update(
                bar, advance=1, description=escape_line(shorten(f"{result.request.id} {result.outcome}"))
            )

        async for result in work.results(concurrency, on_result):
            counts[result.outcome] += 1
            try:
                write_result(file, result)
            except OSError as error:
                raise _unwritable(out, error) from None
    return counts


def _opened(out: Path) -> TextIO:
    try:
        return out.open("w", encoding="utf-8")
    except OSError as error:
        raise _unwritable(out, error) from None


def _unwritable(out: Path, error: OSError) -> SetupError:
    from gbnf_server.errors import SetupError

    return SetupError(
        f"the results can't be written to {out}: {error.strerror or error}. The log keeps them."
    )
