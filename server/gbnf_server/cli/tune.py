"""`gbnf tune`: find the best way of calling for a model, and keep it as the model's profile."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that the others start quickly

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gbnf_server.cli.model_options import (
    ApiKeyOption,
    BackendName,
    BackendOption,
    ContextSizeOption,
    ModelOption,
    ModelSource,
    PromptStyleChoice,
    ServerOption,
)

if TYPE_CHECKING:
    from gbnf_server.evaluation.results import Results
    from gbnf_server.planner.profiles import Profile


def tune(
    model: ModelOption = None,
    server: ServerOption = None,
    backend: BackendOption = None,
    api_key: ApiKeyOption = None,
    context: ContextSizeOption = None,
    manifests: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            help="Your tools: a folder or a manifest, repeatable; the shipped ones when absent.",
        ),
    ] = None,
    suite: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Cases of the bench, whose tools are executed; made of the manifests when absent.",
        ),
    ] = None,
    strategy: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this rung, repeatable; all when absent.")
    ] = None,
    style: Annotated[PromptStyleChoice | None, typer.Option(help="How tools are shown to the model.")] = None,
    lang: Annotated[str, typer.Option(help="Language of the tools' descriptions.")] = "en",
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest call, in tokens.")] = 512,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the table; keep no profile.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Try each way of calling on a model, print what came of it, and keep the best as its profile.

    The rungs: no grammar, soft calls, plain lines, the grammar, a thought in the call, free thoughts before
    it. Cases are made of your manifests, and then no tool is executed; or they are a suite's, whose tools
    work in a workspace of their own that is gone afterwards. `gbnf run` uses the profile, and says so.

    \b
    Try:
      gbnf tune --model Qwen3-4B-Q4_K_M.gguf --manifests my-tools/
      gbnf tune --server http://127.0.0.1:8080 --suite abstention
      gbnf tune --backend ollama --model qwen2.5:7b --strategy grammar --strategy soft
    """
    source = ModelSource(model, server, api_key, backend, context)
    source.check()
    from gbnf import load_manifests
    from gbnf_server.bundled import manifests_path
    from gbnf_server.cli.bench_output import show_tables
    from gbnf_server.cli.errors import interruptible
    from gbnf_server.cli.output import stderr_console, write
    from gbnf_server.evaluation.call_matching import references_of
    from gbnf_server.evaluation.configurations import STRATEGIES, supported_strategies
    from gbnf_server.evaluation.dsl import load_suites
    from gbnf_server.evaluation.generated_cases import generate_suite, stub_result
    from gbnf_server.evaluation.metadata import about
    from gbnf_server.evaluation.results import Results
    from gbnf_server.evaluation.runner import Bench, RunOptions
    from gbnf_server.evaluation.strategies import best_strategy, strategy_table
    from gbnf_server.executors import run_executor
    from gbnf_server.planner.profiles import save

    known = {each.name for each in STRATEGIES}
    if unknown := set(strategy or ()) - known:
        raise typer.BadParameter(
            f"{', '.join(sorted(unknown))}: the rungs are {', '.join(each.name for each in STRATEGIES)}",
            param_hint="--strategy",
        )
    console = stderr_console()
    pool = load_manifests(manifests or manifests_path())
    if suite:
        suites = load_suites(suite, pool)
        if len({each.name for each in suites}) < len(suites):
            raise typer.BadParameter("two suites have the same name", param_hint="--suite")
    else:
        made, left_out = generate_suite(pool, language=lang)
        suites = (made,)
        if left_out and not quiet:
            console.print(
                f"no cases could be made for {', '.join(left_out)}",
                style="yellow",
                soft_wrap=True,
            )
    with interruptible(), source.open(None if style is None else style.value) as opened:
        strategies = tuple(
            each for each in supported_strategies(opened.dialect) if not strategy or each.name in strategy
        )
        if not strategies:
            raise typer.BadParameter("this server takes no grammar: the rungs are none, soft and lines")
        options = RunOptions(max_tokens=max_tokens, warm=True)
        bench = Bench(
            suites,
            strategies,
            pool,
            opened,
            model=source.key().name,
            options=options,
            execute=run_executor if suite else stub_result,
        )
        records = []
        for number, job in enumerate(bench.jobs, 1):
            records.append(bench.run(job))
            if not quiet:
                outcome = records[-1].events[-1]["run"]["outcome"]
                line = f"{number}/{len(bench.jobs)} {job.configuration.name}: {job.case.id} {outcome}"
                console.print(line, style="dim", soft_wrap=True)
        facts = {"name": opened.name}
        tools = [*pool, *(decoy for each in suites for decoy in each.decoys)]
        results = Results(
            about("tune", facts, options), strategies, suites, references_of(tools), tuple(records)
        )
    table = strategy_table(results)
    if markdown:
        write(table.markdown())
    else:
        show_tables([table])
    profile = _profile(source, results, best_strategy(results), style)
    console.print(f"best: {profile.strategy}", style="bold")
    if not dry_run:
        console.print(f"kept in {save(profile)}", soft_wrap=True)


def _profile(
    source: ModelSource, results: Results, strategy: str, style: PromptStyleChoice | None
) -> Profile:
    from gbnf_server.planner.profiles import Profile

    configuration = next(each for each in results.configurations if each.name == strategy)
    settings = dict(configuration.settings) | ({} if style is None else {"prompt_style": style.value})
    runs = [run for run in results.scored() if run.record.configuration == strategy]
    measured: dict[str, str | int] = {
        "at": results.about["made_at"],
        "suites": ", ".join(suite.name for suite in results.suites),
        "runs": len(runs),
        "converged": sum(run.score.converged for run in runs),
    }
    if source.backend_name is BackendName.IN_PROCESS:
        with source.path().open("rb") as file:
            measured["sha256"] = hashlib.file_digest(file, "sha256").hexdigest()
    return Profile(source.key(), strategy, settings, measured)
