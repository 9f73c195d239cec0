"""`gbnf tune`: find the best strategy for a model, and save it as the model's profile."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that the others start quickly

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from gbnf_server.cli.model_options import (
    LanguageOption,
    MarkdownOption,
    MaxTokensOption,
    ModelSource,
    QuietOption,
    StyleOption,
)
from gbnf_server.cli.tool_options import ToolSources

if TYPE_CHECKING:
    from gbnf.prompts.descriptions import PromptStyle
    from gbnf.tools import Tool
    from gbnf_bench.results import Results
    from gbnf_server.planner.profiles import Profile


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """What `tune` compares: `strategies` (all if empty) on `suites`, or on cases generated from the tools."""

    suites: Sequence[str] = ()
    strategies: Sequence[str] = ()
    style: PromptStyle | None = None
    language: str = "en"
    max_tokens: int = 512


def tune(
    *,
    source: ModelSource,
    sources: ToolSources,
    suite: Annotated[
        list[str] | None,
        "NAME|FILE",
        "Suite whose cases to run, executing tools; repeatable. Default: cases generated from the manifests.",
    ] = None,
    strategy: Annotated[list[str] | None, "NAME", "Strategy to compare; repeatable. Default: all."] = None,
    style: StyleOption = None,
    language: LanguageOption = "en",
    max_tokens: MaxTokensOption = 512,
    markdown: MarkdownOption = False,
    dry_run: Annotated[bool, "Print the table, but save no profile."] = False,
    quiet: QuietOption = False,
) -> None:
    """Compare strategies on a model, print a table, and save the best as the model's profile.

    The strategies: unconstrained JSON (none), text tool calls (text), the line protocol (lines), the tool
    calls of the model's chat template with a grammar (native), JSON with a grammar (grammar), the same with
    any whitespace (whitespace), JSON with reasoning in the call (field), and free reasoning before it
    (free). Cases are
    generated from your manifests, without executing tools; or they come from a suite, whose tools run in a
    temporary workspace. `gbnf run` applies the profile to runs with the same model and tools.

    \b
    Try:
      gbnf tune --model Qwen3-4B-Q4_K_M.gguf --manifests my-tools/
      gbnf tune --server http://127.0.0.1:8080 --suite abstention
      gbnf tune --backend ollama --model qwen2.5:7b --strategy grammar --strategy text
    """
    source.check()
    from gbnf_bench.bench_output import show_tables
    from gbnf_bench.profile_files import save
    from gbnf_bench.tables import strategy_table
    from gbnf_server.cli.default_model import choose_model
    from gbnf_server.cli.errors import interruptible
    from gbnf_server.cli.output import stderr_console, write

    console = stderr_console()

    def progress(line: str) -> None:
        if not quiet:
            console.print(line, style="dim", soft_wrap=True)

    options = TuneOptions(suite or (), strategy or (), style, language, max_tokens)
    with interruptible(), sources.open() as pool:
        source, _, _ = choose_model(source, pool)
        results = compare_strategies(source, pool, options, progress)
    table = strategy_table(results)
    if markdown:
        write(table.markdown())
    else:
        show_tables([table])
    profile = make_profile(source, pool, results, style)
    console.print(f"best: {profile.strategy}", style="bold")
    if not dry_run:
        console.print(f"saved to {save(profile)}", soft_wrap=True)


def compare_strategies(
    source: ModelSource,
    pool: tuple[Tool, ...],
    options: TuneOptions,
    progress: Callable[[str], object] = lambda _line: None,
) -> Results:
    """Run every case with every strategy that the backend supports; `progress` gets a line for each run.

    Raises BadParameter for strategies that don't exist or that the backend doesn't support.
    """
    from gbnf_bench.call_matching import references_of
    from gbnf_bench.configurations import STRATEGIES, named, supported_strategies
    from gbnf_bench.dsl import load_suites
    from gbnf_bench.generated_cases import generate_suite, stub_result
    from gbnf_bench.results import Results, about
    from gbnf_bench.runner import Bench, RunOptions
    from gbnf_server.cli.config import configured_providers
    from gbnf_server.executors import run_executor

    try:
        named(options.strategies, STRATEGIES)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--strategy") from None
    if options.suites:
        suites = load_suites(options.suites, pool)
        if len({suite.name for suite in suites}) < len(suites):
            raise typer.BadParameter("two suites have the same name", param_hint="--suite")
    else:
        generated, left_out = generate_suite(
            pool, language=options.language, providers=configured_providers()
        )
        suites = (generated,)
        if left_out:
            progress(f"no cases could be generated for {', '.join(left_out)}")
    with source.open(options.style) as backend:
        strategies = supported_strategies(backend, options.strategies)
        if not strategies:
            raise typer.BadParameter(
                "the server takes no grammar, or the model has no tool-call format. Use none, text or lines",
                param_hint="--strategy",
            )
        run_options = RunOptions(max_tokens=options.max_tokens, warm=True)
        bench = Bench(
            suites,
            strategies,
            pool,
            backend,
            model=source.key().name,
            options=run_options,
            execute=run_executor if options.suites else stub_result,
            providers=configured_providers(),
        )
        records = []
        for number, job in enumerate(bench.jobs, 1):
            records.append(bench.run(job))
            outcome = records[-1].events[-1]["run"]["outcome"]
            progress(f"{number}/{len(bench.jobs)} {job.configuration.name}: {job.case.id} {outcome}")
        header = about("tune", {"name": backend.name}, run_options)
    tools = [*pool, *(decoy for suite in suites for decoy in suite.decoys)]
    return Results(header, strategies, suites, references_of(tools), tuple(records))


def make_profile(
    source: ModelSource, pool: Sequence[Tool], results: Results, style: PromptStyle | None
) -> Profile:
    """Return the profile of the model with these tools: the best strategy, and what was measured."""
    from gbnf_bench.tables import best_strategy
    from gbnf_server.planner.profiles import Profile, tools_key

    strategy = best_strategy(results)
    configuration = next(item for item in results.configurations if item.name == strategy)
    settings = dict(configuration.settings) | ({} if style is None else {"prompt_style": style})
    runs = [run for run in results.scored if run.record.configuration == strategy]
    measured: dict[str, str | int] = {
        "at": results.about["made_at"],
        "suites": ", ".join(suite.name for suite in results.suites),
        "runs": len(runs),
        "converged": sum(run.score.converged for run in runs),
    }
    if source.backend_name == "in-process":
        with source.path().open("rb") as file:
            measured["sha256"] = hashlib.file_digest(file, "sha256").hexdigest()
    return Profile(source.key(), tools_key(pool), strategy, settings, measured)
