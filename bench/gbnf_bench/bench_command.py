"""`gbnf bench`: what the grammar does for a model, as a table."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that the others start quickly

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gbnf_server.cli.commands import reflow, with_options
from gbnf_server.cli.errors import ExitCode
from gbnf_server.cli.model_options import (
    LAST_SEED,
    MarkdownOption,
    MaxTokensOption,
    ModelSource,
    QuietOption,
    TemperatureOption,
)
from gbnf_server.cli.tool_options import ManifestsOption

if TYPE_CHECKING:
    from gbnf_bench.bench_output import BenchTask
    from gbnf_bench.configurations import Configuration
    from gbnf_bench.results import Results


LEADERBOARD_DEFAULT = ("none", "text", "grammar")
"""The strategies that --bfcl compares by default: free text, tool-call parsing, the grammar."""
LEADERBOARD_WITH_PEER = ("template", "any-syntax", "peer-auto", "peer-required", "auto", "native")
"""The same with --peer, for a model whose chat template has tools."""


@dataclass(frozen=True, slots=True)
class LeaderboardOptions:
    """Which of the leaderboard's questions are run, and with whom; none without `bfcl`."""

    bfcl: Annotated[
        Path | None, "DIR", "Run the function-calling leaderboard's files in this folder instead."
    ] = None
    category: Annotated[list[str] | None, "NAME", "With --bfcl: category to run; repeatable."] = None
    limit: Annotated[int | None, typer.Option(min=1), "With --bfcl: maximum questions of each category."] = (
        None
    )
    peer: Annotated[
        str | None,
        "llama-server|URL",
        (
            "With --bfcl: also ask a server that calls tools by itself, with tool_choice auto and "
            "required; llama-server starts one with the same model."
        ),
    ] = None
    compile_only: Annotated[bool, "With --bfcl: check the grammars, without a model."] = False

    def check(self, source: ModelSource, names: Sequence[str], *, has_suites: bool) -> None:
        """Raise BadParameter for options that conflict; `names`: of configurations, `has_suites`: others."""
        if self.bfcl is None and self.peer:
            raise typer.BadParameter(
                "--peer requires --bfcl: a peer answers single requests, and the runs of a suite need a "
                "planner"
            )
        if self.bfcl is None and (self.category or self.limit is not None or self.compile_only):
            raise typer.BadParameter("--category, --limit and --compile-only require --bfcl")
        if self.bfcl is not None and has_suites:
            raise typer.BadParameter(
                "--suite, --manifests, --runs and --min-converged do not apply to --bfcl"
            )
        names_model = any((source.model, source.hf, source.server, source.backend))
        if self.compile_only and (names_model or names):
            raise typer.BadParameter("--compile-only excludes --configuration and the options of a model")

    def configurations(self, names: Sequence[str]) -> tuple[Configuration, ...]:
        """Return those of these names, by default the usual ones. Raises BadParameter."""
        from gbnf_bench.configurations import BY_NAME, CONFIGURATIONS, LEADERBOARD, named

        try:
            if self.bfcl is None:
                return named(names, BY_NAME) if names else CONFIGURATIONS
            chosen = named(
                names or (LEADERBOARD_WITH_PEER if self.peer else LEADERBOARD_DEFAULT), LEADERBOARD
            )
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--configuration") from None
        if self.peer is None and any(item.peer for item in chosen):
            raise typer.BadParameter(
                "peer-auto and peer-required require --peer", param_hint="--configuration"
            )
        return chosen


def bench_(
    context: typer.Context,
    *,
    suite: Annotated[
        list[str] | None,
        "NAME|FILE",
        "Bundled suite, or a TOML or Python file; repeatable. Default: representative.",
    ] = None,
    configuration: Annotated[
        list[str] | None,
        "NAME",
        (
            "Configuration to run; repeatable. Default: all but native; with --bfcl, the strategies "
            "none (free text), text and grammar."
        ),
    ] = None,
    source: ModelSource,
    manifests: ManifestsOption = None,
    runs: Annotated[int, typer.Option(min=1), "Runs of each case, for a temperature above 0."] = 1,
    temperature: TemperatureOption = 0.0,
    seed: Annotated[
        int, typer.Option(min=0, max=LAST_SEED), "Seed of the first run of each case; the next run adds 1."
    ] = 0,
    max_tokens: MaxTokensOption = 512,
    label: Annotated[str | None, "Name of the result files. Default: the model's name."] = None,
    out: Annotated[Path, "DIR", "Folder for the result files."] = Path("gbnf-bench"),
    questions: LeaderboardOptions,
    warm: Annotated[
        bool,
        (
            "Keep the KV cache between runs: faster with a large model, but latencies and near ties "
            "then depend on earlier runs."
        ),
    ] = False,
    min_converged: Annotated[
        float | None,
        typer.Option(min=0, max=1),
        "SHARE",
        "Exit with status 1 if a configuration converges in a smaller share of its runs.",
    ] = None,
    fresh: Annotated[bool, "Discard the earlier runs of this label."] = False,
    markdown: MarkdownOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run suites of requests with each configuration, and print a table.

    Without options: ten requests, every configuration, the bundled model; one to two minutes. Each run has a
    workspace of its own and executes tools. Runs are stored as they finish: after an interruption, the same
    command resumes. The results are also written as a JSON file and an HTML report.

    \b
    Try:
      gbnf bench
      gbnf bench --model Qwen3-4B-Q4_K_M.gguf --suite representative --suite decoys
      gbnf bench --server http://127.0.0.1:8080 --configuration union --configuration filter
      gbnf bench --backend ollama --model qwen2.5:7b
      gbnf bench --suite my-suite.toml --configuration auto --min-converged 0.95
      gbnf bench compare gbnf-bench/a.json gbnf-bench/b.json
      gbnf bench --bfcl bfcl_eval/data --model Qwen3-4B-Q4_K_M.gguf --category simple_python --limit 50
      gbnf bench --bfcl bfcl_eval/data --model Qwen3-4B-Q4_K_M.gguf --peer llama-server
    """
    if context.invoked_subcommand is not None:
        return
    has_suites = bool(suite or manifests or runs > 1 or min_converged is not None)
    questions.check(source, configuration or (), has_suites=has_suites)
    source.check()
    from gbnf_bench.bench_output import BenchTask, show
    from gbnf_bench.bfcl_command import check_grammars, read, run_leaderboard
    from gbnf_bench.runner import RunOptions
    from gbnf_bench.tables import below_share
    from gbnf_server.cli.errors import interruptible
    from gbnf_server.cli.output import stderr_console

    configurations = questions.configurations(configuration or ())
    options = RunOptions(runs, temperature, seed, max_tokens, warm)
    task = BenchTask(source, configurations, options, stderr_console(), label, out, fresh, quiet)
    _check(task)
    with interruptible():
        if questions.bfcl is None:
            results = run_suites(task, suite or ["representative"], manifests)
            show(results, markdown=markdown)
            if rare := below_share(results, min_converged or 0):
                share = f"{100 * (min_converged or 0):g} %"
                task.console.print(f"converged in fewer than {share} of the runs: {rare}", style="red")
                raise typer.Exit(ExitCode.FAILURE)
            return
        leaderboard = read(questions.bfcl, questions.category or (), questions.limit, task.console)
        if not questions.compile_only:
            run_leaderboard(task, leaderboard, markdown=markdown, peer_name=questions.peer)
        elif not check_grammars(leaderboard, task.console):
            raise typer.Exit(ExitCode.FAILURE)


def _check(task: BenchTask) -> None:
    """Raise BadParameter if options conflict; warn of repeated runs that are all the same."""
    options, label = task.options, task.label
    if label is not None and (label.strip(". ") == "" or "/" in label or "\0" in label):
        raise typer.BadParameter(
            f"{label!r} is not a file name: use a name without /; --out sets the folder", param_hint="--label"
        )
    if options.seed + options.runs - 1 > LAST_SEED:
        raise typer.BadParameter(
            f"the last of {options.runs} runs has the seed {options.seed + options.runs - 1}: "
            f"{LAST_SEED} is the maximum",
            param_hint="--seed",
        )
    if options.runs > 1 and options.temperature == 0:
        task.console.print(
            "at temperature 0, all runs of a case are the same: set --temperature", style="yellow"
        )


def compare(
    first: Annotated[Path, typer.Argument(), "A.json", "Result file."],
    second: Annotated[Path, typer.Argument(), "B.json", "Another result file."],
) -> None:
    """Print the differences between two stored benches, with 95 % intervals.

    Compare the cases that both have, in pairs. Suites are scored again by the current rules; the answers of
    the leaderboard (--bfcl) keep their scores.
    """
    from gbnf_bench.bench_output import show_tables
    from gbnf_bench.comparison import compare_files
    from gbnf_server.system.errors import InputError

    tables = compare_files(first, second)
    if not tables:
        raise InputError(f"{first} and {second} have no case and configuration in common")
    show_tables(tables)


def score(
    stored: Annotated[Path, typer.Argument(), "A.json", "Result file."],
    markdown: MarkdownOption = False,
) -> None:
    """Score a stored bench again by the current rules; update its numbers and its report."""
    from gbnf_bench.bench_output import show
    from gbnf_bench.results import Results

    results = Results.load(stored)
    _write(results, stored.parent, stored.stem, "free some space, or score a copy elsewhere")
    show(results, markdown=markdown)


def run_suites(task: BenchTask, names: Sequence[str], manifests: Sequence[Path] | None) -> Results:
    """Do the runs of the suites that the log doesn't have, write the result files, return the results."""
    from gbnf import load_manifests
    from gbnf_bench.bench_output import run_jobs
    from gbnf_bench.call_matching import references_of
    from gbnf_bench.configurations import supported
    from gbnf_bench.dsl import load_suites
    from gbnf_bench.results import Results, about
    from gbnf_bench.runner import Bench
    from gbnf_server.cli.config import configured_providers
    from gbnf_server.cli.default_model import choose_model
    from gbnf_server.planner.runs.fingerprints import identity
    from gbnf_server.system.folders import manifests_path

    pool = load_manifests(manifests or manifests_path())
    suites = load_suites(names, pool)
    if len({suite.name for suite in suites}) < len(suites):
        raise typer.BadParameter("two suites have the same name", param_hint="--suite")
    source, _, _ = choose_model(task.source, pool)  # all tools: each case runs in a workspace of its own
    with source.open() as backend:
        facts = source.facts(backend)
        label = task.label_for(facts)
        configurations = supported(task.configurations, backend)
        if left_out := [item.name for item in task.configurations if item not in configurations]:
            task.console.print(f"not run: {', '.join(left_out)}: {backend.name} takes no such grammar")
        if not configurations:
            raise typer.BadParameter("none is left: use baseline or text", param_hint="--configuration")
        bench = Bench(
            suites,
            configurations,
            pool,
            backend,
            model=identity(facts),
            options=task.options,
            providers=configured_providers(),
        )
        with task.log(label) as log:
            run_jobs(bench, log, task.console, quiet=task.quiet)
            records = tuple(log.records[job.key, job.fingerprint] for job in bench.jobs)
            made_at = log.latest
        grammars = bench.step_grammars(records)  # while the backend can tell what it supports
    task.show_files(label, "json and .html")
    tools = [*pool, *(tool for suite in suites for tool in suite.decoys)]
    header = about(label, facts, task.options, made_at)
    results = Results(header, configurations, suites, references_of(tools), records, grammars)
    _write(results, task.out, label, "use another --out")
    return results


def _write(results: Results, out: Path, label: str, hint: str) -> None:
    import json

    from gbnf_bench.report import report
    from gbnf_bench.result_files import replace_file

    text = json.dumps(results.to_json(), ensure_ascii=False) + "\n"
    replace_file(out / f"{label}.json", text, hint)
    replace_file(out / f"{label}.html", report(results), hint)


bench = typer.Typer(invoke_without_command=True)
bench.callback(help=reflow(bench_.__doc__))(with_options(bench_))
for _command in (compare, score):
    bench.command(help=reflow(_command.__doc__))(with_options(_command))
