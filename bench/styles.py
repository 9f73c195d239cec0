"""Compare prompt styles: one table, a row for each style and call format.

    python bench/styles.py [--trials N] [--suite NAME] [--tools K] [--json OUT] [--threads N]
        --model F.gguf|smollm2 | --server URL | --backend ollama --model NAME

A trial is the first call of a request, in a new conversation: ok if it is a valid call of the right tool with
the right arguments. With `grammar`, the pool's grammar constrains the call; with `text`, `gbnf.calls` reads
it and `gbnf.calls.repair` repairs its arguments; a server that takes no GBNF has only `text`. Trials differ
by their seed; the first is greedy. `--tools` limits how many tools are offered, always including those that
the request needs, for models with a small context. The dominant failure is the most frequent of:

    overflow         the messages exceed the model's context
    truncated        the token limit ended the call
    no call          the text has none
    no tool          it names a tool that doesn't exist
    wrong tool       another one than the request needs
    invalid          the right tool, with invalid arguments
    wrong arguments  valid ones, but not those that the request needs
"""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from gbnf import compile_pool, load_manifests
from gbnf.calls import FinalAnswer, parse_tool_calls
from gbnf.calls.repair import repair_call
from gbnf.prompts.messages import PROMPT_STYLES, Message, PromptStyle, system_prompt
from gbnf.requests.pool_filter import filter_pool
from gbnf.tools import FINAL_ANSWER, Tool
from gbnf_bench.cases import Case
from gbnf_bench.suite_files import load_suite
from gbnf_server.backends.base import Backend, Completion, Request
from gbnf_server.cli.model_options import BackendName, ModelSource
from gbnf_server.system.errors import ContextOverflowError
from gbnf_server.system.folders import manifests_path
from tables import new_table, show

CallFormat = Literal["grammar", "text"]
FORMATS: tuple[CallFormat, ...] = ("grammar", "text")
_MAX_TOKENS = 160
_TEMPERATURE = 0.7


@dataclass(slots=True)
class Cell:
    """The trials of a style and a call format. `seconds`: of each trial that was decoded."""

    style: PromptStyle
    call_format: CallFormat
    ok: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    prompt_tokens: list[int] = field(default_factory=list)

    @property
    def trials(self) -> int:
        """How many trials there were."""
        return self.ok + self.failures.total()

    @property
    def dominant(self) -> str:
        """The most frequent failure and its count; "" if there is none."""
        return "".join(f"{name} ({count})" for name, count in self.failures.most_common(1))


def verdict(completion: Completion, case: Case, tools: Sequence[Tool], call_format: CallFormat) -> str:
    """Return the name of the failure; "" for the right call."""
    if completion.finish_reason == "length":
        return "truncated"
    step = parse_tool_calls(completion.text, tools)
    if isinstance(step, FinalAnswer):
        return "no call"
    if not step.calls:
        return "no tool"
    call = step.calls[0]
    if call.truncated:
        return "truncated"
    if call.name not in case.first:
        return "wrong tool"
    repaired = repair_call(call, tools)
    if not repaired.ok or (call_format == "grammar" and repaired.coercions):
        return "invalid"
    arguments = repaired.call["arguments"]
    expected = [each for plan in case.plans for each in plan if each.name == call.name]
    right = any(each.accepts(arguments) for each in expected)
    return "" if right else "wrong arguments"


def offered(case: Case, pool: Sequence[Tool], most: int | None) -> tuple[Tool, ...]:
    """Return the tools of a trial, in pool order: at most `most` of those that the filter keeps."""
    kept = filter_pool(pool, case.query).kept
    needed = {*case.first, *(call.name for plan in case.plans for call in plan)}
    first = sorted(kept, key=lambda tool: tool.name not in needed)[:most]
    return tuple(tool for tool in kept if tool in first)


def run_trial(cell: Cell, case: Case, backend: Backend, tools: Sequence[Tool], seed: int) -> None:
    """Run one trial with these tools and the final answer, and add its result to the cell."""
    tools = (*tools, FINAL_ANSWER)
    messages: list[Message] = [
        {"role": "system", "content": system_prompt(tools, style=cell.style, language=case.language)},
        {"role": "user", "content": case.query},
    ]
    grammar = compile_pool(tools[:-1], final_answer=True) if cell.call_format == "grammar" else None
    begun = time.perf_counter()
    try:
        completion = backend.complete(
            Request(
                messages,
                grammar=grammar,
                max_tokens=_MAX_TOKENS,
                temperature=_TEMPERATURE if seed else 0.0,
                seed=seed,
            )
        )
    except ContextOverflowError:
        cell.failures["overflow"] += 1
        return
    cell.seconds.append(time.perf_counter() - begun)
    cell.prompt_tokens.append(completion.usage.prompt_tokens)
    failure = verdict(completion, case, tools, cell.call_format)
    if failure:
        cell.failures[failure] += 1
    else:
        cell.ok += 1


def compare(
    backend: Backend,
    cases: Sequence[Case],
    pool: Sequence[Tool],
    *,
    trials: int,
    styles: Sequence[PromptStyle],
    tools: int | None = None,
) -> Iterator[Cell]:
    """Yield every cell, `trials` times over the cases, with at most so many tools."""
    for style in styles:
        for call_format in FORMATS if backend.dialect == "gbnf" else FORMATS[1:]:
            cell = Cell(style, call_format)
            for seed in range(trials):
                for case in cases:
                    run_trial(cell, case, backend, offered(case, pool, tools), seed)
            yield cell


def cases_of(suite: str, pool: Sequence[Tool]) -> list[Case]:
    """Return the cases of a suite whose first call is known and possible in a new conversation."""
    return [case for case in load_suite(suite, pool).cases if case.plans and case.first and not case.abstain]


def table(cells: Sequence[Cell], title: str) -> Table:
    """Return a table with a row for each cell."""
    shown = new_table(
        "style | call format | ok / n | dominant failure | median s | slowest s | prompt tokens",
        title,
        left=("call format", "dominant failure"),
    )
    for cell in cells:
        decoded = bool(cell.seconds)
        shown.add_row(
            cell.style,
            cell.call_format,
            f"{cell.ok} / {cell.trials}",
            cell.dominant,
            f"{statistics.median(cell.seconds):.3f}" if decoded else "-",
            f"{max(cell.seconds):.3f}" if decoded else "-",
            f"{statistics.median(cell.prompt_tokens):.0f}" if decoded else "-",
        )
    return shown


def main(
    trials: Annotated[int, typer.Option(min=1, help="Trials of each case; the first is greedy.")] = 3,
    suite: Annotated[str, typer.Option(help="Bundled suite, or a file.")] = "representative",
    tools: Annotated[int | None, typer.Option(min=1, help="Maximum number of tools offered.")] = None,
    model: Annotated[str | None, typer.Option(help="Model file. Default: the bundled model.")] = None,
    server: Annotated[str | None, typer.Option(help="URL of a running server.")] = None,
    backend: Annotated[BackendName | None, typer.Option(help="Kind of server.")] = None,
    threads: Annotated[int | None, typer.Option(help="In process.")] = None,
    style: Annotated[
        list[str] | None, typer.Option(help="Style to compare; repeatable. Default: all.")
    ] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the cells to this file.")] = None,
) -> None:
    """Compare prompt styles."""
    chosen = [each for each in PROMPT_STYLES if not style or each in style]
    if unknown := set(style or ()) - set(PROMPT_STYLES):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: use {', '.join(PROMPT_STYLES)}")
    pool = load_manifests(manifests_path())
    cases = cases_of(suite, pool)
    source = ModelSource(model=model, server=server, backend=backend, threads=threads)
    source.check()
    with source.open("minimal") as opened:
        cells = []
        for cell in compare(opened, cases, pool, trials=trials, styles=chosen, tools=tools):
            cells.append(cell)
            print(f"{cell.style} {cell.call_format}: {cell.ok} / {cell.trials}", flush=True)
        about = f"{opened.name}, {suite}, {len(cases)} cases × {trials} trials, {tools or 'all'} tools"
        show(table(cells, about))
    if json_out is not None:
        names = [each.name for each in fields(Cell)]
        rows = [{name: getattr(cell, name) for name in [*names, "dominant"]} for cell in cells]
        json_out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    typer.run(main)
