"""`gbnf bench`: what the grammar does for a model, as a table."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that the others start quickly

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gbnf_server.cli.exit_codes import ExitCode
from gbnf_server.cli.help import reflow
from gbnf_server.cli.model_options import LAST_SEED, TemperatureOption, open_backend

if TYPE_CHECKING:
    from typing import TypeAlias

    from rich.console import Console

    from gbnf_server.evaluation.bfcl.files import Leaderboard
    from gbnf_server.evaluation.configurations import Configuration
    from gbnf_server.evaluation.results import Results
    from gbnf_server.evaluation.run_log import RunLog
    from gbnf_server.evaluation.runner import RunOptions

    _Source: TypeAlias = tuple[Path | None, str | None, str | None]
    """A model file, or a server and its key."""


def run(
    context: typer.Context,
    suite: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE", help="A suite that comes along, or a TOML or Python file; repeatable."
        ),
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A configuration, repeatable; all when absent.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="F.gguf", help="A model file, run in this process.")
    ] = None,
    server: Annotated[str | None, typer.Option(metavar="URL", help="A llama-server that is running.")] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="LLAMA_API_KEY", help="What the server wants to be shown.")
    ] = None,
    manifests: Annotated[
        list[Path] | None, typer.Option(metavar="PATH", help="Tools; the shipped ones when absent.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each case, for a temperature above 0.")] = 1,
    temperature: TemperatureOption = 0.0,
    seed: Annotated[
        int, typer.Option(min=0, max=LAST_SEED, help="Of each case's first run; the next one has the next.")
    ] = 0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest call, in tokens.")] = 512,
    label: Annotated[str | None, typer.Option(help="Names the files; the model's name when absent.")] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the files go.")] = Path("gbnf-bench"),
    bfcl: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Run the function-calling leaderboard's files in this folder instead."
        ),
    ] = None,
    category: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="With --bfcl: of its categories, repeatable.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="With --bfcl: the first so many questions of each category.")
    ] = None,
    compile_only: Annotated[
        bool, typer.Option("--compile-only", help="With --bfcl: check its grammars, without a model.")
    ] = False,
    warm: Annotated[
        bool,
        typer.Option(
            "--warm",
            help="Let runs reuse what the model remembers of earlier prompts: faster with a large model, but "
            "latencies and near ties then depend on what ran before.",
        ),
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run again what this label has run before.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the first table as Markdown.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Run a suite of requests under one configuration after another, and print what came of it.

    Without options: ten requests, every configuration, the embedded model; one to two minutes. Each run has
    a workspace of its own and real executors. Runs are kept as they are done: interrupted, the same command
    goes on where it stopped. A JSON file and a report for the browser are written beside them.

    \b
    Try:
      gbnf bench
      gbnf bench --model Qwen3-4B-Q4_K_M.gguf --suite representative --suite decoys
      gbnf bench --server http://127.0.0.1:8080 --config union --config filter
      gbnf bench compare gbnf-bench/a.json gbnf-bench/b.json
      gbnf bench --bfcl bfcl_eval/data --model Qwen3-4B-Q4_K_M.gguf --limit 50
    """
    if context.invoked_subcommand is not None:
        return
    if model is not None and server is not None:
        raise typer.BadParameter("give --model or --server, not both")
    if bfcl is None and (category or limit or compile_only):
        raise typer.BadParameter("--category, --limit and --compile-only go with --bfcl")
    if bfcl is not None and (suite or manifests or runs > 1):
        raise typer.BadParameter("--suite, --manifests and --runs do not go with --bfcl")
    if compile_only and (model is not None or server is not None or config):
        raise typer.BadParameter("--compile-only runs no model: leave out --model, --server and --config")
    if label is not None and (label.strip(". ") == "" or "/" in label or "\0" in label):
        raise typer.BadParameter(
            f"{label!r} names no file: give a word without /; --out names the folder", param_hint="--label"
        )
    if seed + runs - 1 > LAST_SEED:
        raise typer.BadParameter(
            f"the last of {runs} runs has the seed {seed + runs - 1}: {LAST_SEED} is the greatest",
            param_hint="--seed",
        )
    from gbnf_server.cli.errors import interruptible
    from gbnf_server.cli.output import stderr_console
    from gbnf_server.evaluation.configurations import named
    from gbnf_server.evaluation.runner import RunOptions

    try:
        configurations = named(config or [])
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--config") from None
    console = stderr_console()
    if runs > 1 and temperature == 0:
        console.print(
            "at temperature 0 every run of a case is the same: give a --temperature", style="yellow"
        )
    asked = _Asked(
        configurations,
        RunOptions(runs, temperature, seed, max_tokens, warm),
        label,
        out,
        fresh,
        quiet,
        console,
    )
    with interruptible():
        if bfcl is None:
            results = _run_suites(asked, suite or ["representative"], manifests, (model, server, api_key))
            from gbnf_server.cli.bench_output import show

            _write(results, out, results.about["label"], "give another --out")
            show(results, markdown=markdown)
        else:
            from gbnf_server.cli.bench_bfcl import compile_only as check
            from gbnf_server.cli.bench_bfcl import read

            leaderboard = read(bfcl, category or [], limit, console)
            if compile_only:
                raise typer.Exit(ExitCode.SUCCESS if check(leaderboard, console) else ExitCode.FAILURE)
            _run_leaderboard(asked, leaderboard, (model, server, api_key), markdown=markdown)


def compare(
    first: Annotated[Path, typer.Argument(metavar="A.json", help="A stored bench.")],
    second: Annotated[Path, typer.Argument(metavar="B.json", help="Another one.")],
) -> None:
    """Print what changed from one stored bench to another, with 95 % intervals.

    The cases that both have are drawn in pairs. Suites are scored anew, by the present rules; the
    leaderboard's answers (`--bfcl`) stay as they were judged.
    """
    from gbnf_server.cli.bench_output import show_tables
    from gbnf_server.errors import InputError
    from gbnf_server.evaluation.comparison import compare_files

    tables = compare_files(first, second)
    if not tables:
        raise InputError(f"{first} and {second} have no case of one configuration in common")
    show_tables(tables)


def score(
    stored: Annotated[Path, typer.Argument(metavar="A.json", help="A stored bench.")],
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the first table as Markdown.")] = False,
) -> None:
    """Score a stored bench again, by the present rules: its tables, its numbers and its report."""
    from gbnf_server.cli.bench_output import show
    from gbnf_server.evaluation.results import Results

    results = Results.load(stored)
    _write(results, stored.parent, stored.stem, "make room for it, or score a copy elsewhere")
    show(results, markdown=markdown)


@dataclass(frozen=True)
class _Asked:
    """What the command line says of both kinds of bench."""

    configurations: tuple[Configuration, ...]
    options: RunOptions
    label: str | None
    out: Path
    fresh: bool
    quiet: bool
    console: Console


def _run_suites(asked: _Asked, names: list[str], manifests: list[Path] | None, source: _Source) -> Results:
    from gbnf import load_manifests
    from gbnf_server.bundled import manifests_path
    from gbnf_server.cli.bench_output import run_jobs
    from gbnf_server.evaluation.call_matching import references_of
    from gbnf_server.evaluation.dsl import load_suites
    from gbnf_server.evaluation.metadata import about, identity
    from gbnf_server.evaluation.results import Results
    from gbnf_server.evaluation.runner import Bench

    pool = load_manifests(manifests or manifests_path())
    suites = load_suites(names, pool)
    if len({each.name for each in suites}) < len(suites):
        raise typer.BadParameter("two suites have the same name", param_hint="--suite")
    backend, tell = open_backend(*source)
    with backend:
        facts = tell()
        label = asked.label or _slug(facts["name"])
        bench = Bench(
            suites, asked.configurations, pool, backend, model=identity(facts), options=asked.options
        )
        with _log(asked, label) as log:
            run_jobs(bench, log, asked.console, quiet=asked.quiet)
            records = tuple(log.records[job.key, job.fingerprint] for job in bench.jobs)
            made_at = log.latest
    _tell_where(asked, label, "json and .html")
    tools = [*pool, *(tool for each in suites for tool in each.decoys)]
    header = about(label, facts, asked.options, made_at)
    return Results(header, asked.configurations, suites, references_of(tools), records)


def _run_leaderboard(asked: _Asked, leaderboard: Leaderboard, source: _Source, *, markdown: bool) -> None:
    from gbnf_server.cli.bench_bfcl import ask_all
    from gbnf_server.cli.bench_output import show_tables
    from gbnf_server.evaluation.bfcl.results import table, write
    from gbnf_server.evaluation.bfcl.runner import LeaderboardRun
    from gbnf_server.evaluation.metadata import about, identity
    from gbnf_server.evaluation.run_log import unwritable

    backend, tell = open_backend(*source)
    with backend:
        facts = tell()
        label = asked.label or f"{_slug(facts['name'])}-bfcl"
        leaderboard_run = LeaderboardRun(
            leaderboard, asked.configurations, backend, model=identity(facts), options=asked.options
        )
        with _log(asked, label) as log:
            answers = ask_all(leaderboard_run, log, asked.console, quiet=asked.quiet)
            made_at = log.latest
    path = asked.out / f"{label}.json"
    try:
        write(about(label, facts, asked.options, made_at), answers, path)
    except OSError as error:
        raise unwritable(path, error) from None
    cells = table(answers)
    if markdown:
        from gbnf_server.cli.output import write as show

        show(cells.markdown())
    else:
        show_tables([cells])
    _tell_where(asked, label, "json")


def _log(asked: _Asked, label: str) -> RunLog:
    from gbnf_server.evaluation.run_log import RunLog

    return RunLog(asked.out / f"{label}.jsonl", fresh=asked.fresh)


def _tell_where(asked: _Asked, label: str, endings: str) -> None:
    asked.console.print(f"every run is in {asked.out / label}.{endings}", style="dim", soft_wrap=True)


def _write(results: Results, out: Path, label: str, hint: str) -> None:
    import json

    from gbnf_server.evaluation.report import report
    from gbnf_server.evaluation.result_files import replace_file
    from gbnf_server.evaluation.run_log import unwritable

    texts = {"json": json.dumps(results.to_json(), ensure_ascii=False) + "\n", "html": report(results)}
    for ending, text in texts.items():
        path = out / f"{label}.{ending}"
        try:
            replace_file(path, text)
        except OSError as error:
            raise unwritable(path, error, hint) from None


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "model"


bench = typer.Typer(invoke_without_command=True)
bench.callback(help=reflow(run.__doc__))(run)
bench.command(help=reflow(compare.__doc__))(compare)
bench.command(help=reflow(score.__doc__))(score)
