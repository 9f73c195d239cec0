"""Compare how tools are shown to a model: one table, a row for each style and way to take the call.

    python bench/styles.py [--trials N] [--suite NAME] [--tools K] [--model GGUF | --server URL] [--json OUT]

A trial is the first call of a request, in a fresh conversation: ok where it is a valid call of the right tool
with the right arguments. Rows with `grammar` hold the model to the pool's grammar, those with `soft` take its
text as `gbnf.calls` reads it and mend the arguments by `gbnf.calls.repair`. Trials differ by their seed; the first
is greedy. `--tools` offers no more than so many, those that the request needs among them, for models whose
context holds no more. The dominant failure is the most frequent of:

    overflow   the messages do not fit the model's context
    cut        the token limit ended the call
    no call    the text holds none
    no tool    it names a tool that isn't there
    wrong tool another one than the request needs
    invalid    the right tool, with arguments that the validator refuses
    wrong arguments   valid ones, but not those that the request needs
"""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from gbnf import compile_pool, load_manifests
from gbnf.calls import FinalAnswer, parse_tool_calls
from gbnf.calls.repair import repair_call
from gbnf.prompts.messages import PROMPT_STYLES, Message, PromptStyle, system_prompt
from gbnf.tools import FINAL_ANSWER, Tool
from gbnf.tools.pool_filter import filter_pool
from gbnf_server.backends.base import Backend, Completion
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.bundled import manifests_path
from gbnf_server.demo_model import model_path
from gbnf_server.errors import ContextOverflow
from gbnf_server.evaluation.cases import Case
from gbnf_server.evaluation.suite_files import load_suite

Way = Literal["grammar", "soft"]
WAYS: tuple[Way, ...] = ("grammar", "soft")
_MAX_TOKENS = 160
_TEMPERATURE = 0.7


@dataclass(slots=True)
class Cell:
    """A style and a way, and what came of its trials. `seconds` are those of each trial that was decoded."""

    style: PromptStyle
    way: Way
    ok: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    prompt_tokens: list[int] = field(default_factory=list)

    @property
    def trials(self) -> int:
        return self.ok + self.failures.total()

    @property
    def dominant(self) -> str:
        """The most frequent failure and how often it came; "" where all was well."""
        return "".join(f"{name} ({count})" for name, count in self.failures.most_common(1))


def verdict(completion: Completion, case: Case, tools: Sequence[Tool], way: Way) -> str:
    """ "" for the right call, else the failure's name."""
    if completion.finish == "length":
        return "cut"
    step = parse_tool_calls(completion.text, tools)
    if isinstance(step, FinalAnswer):
        return "no call"
    if not step.calls:
        return "no tool"
    call = step.calls[0]
    if call.truncated:
        return "cut"
    if call.name not in case.first:
        return "wrong tool"
    repaired = repair_call(call, tools)
    if not repaired.ok or (way == "grammar" and repaired.coercions):
        return "invalid"
    arguments = repaired.call["arguments"]
    expected = [each for plan in case.plans for each in plan if each.name == call.name]
    right = any(each.accepts(arguments) for each in expected)
    return "" if right else "wrong arguments"


def offered(case: Case, pool: Sequence[Tool], most: int | None) -> tuple[Tool, ...]:
    """The tools of a trial, in pool order: those that the filter keeps, `most` of them."""
    kept = filter_pool(pool, case.query).kept
    needed = {*case.first, *(call.name for plan in case.plans for call in plan)}
    first = sorted(kept, key=lambda tool: tool.name not in needed)[:most]
    return tuple(tool for tool in kept if tool in first)


def run_trial(cell: Cell, case: Case, backend: Backend, tools: Sequence[Tool], seed: int) -> None:
    """One trial with these tools and the final answer; the cell takes note of it."""
    tools = (*tools, FINAL_ANSWER)
    messages: list[Message] = [
        {"role": "system", "content": system_prompt(tools, style=cell.style, language=case.language)},
        {"role": "user", "content": case.query},
    ]
    grammar = compile_pool(tools[:-1], final_answer=True) if cell.way == "grammar" else None
    begun = time.perf_counter()
    try:
        completion = backend.complete(
            messages,
            grammar=grammar,
            max_tokens=_MAX_TOKENS,
            temperature=_TEMPERATURE if seed else 0.0,
            seed=seed,
        )
    except ContextOverflow:
        cell.failures["overflow"] += 1
        return
    cell.seconds.append(time.perf_counter() - begun)
    cell.prompt_tokens.append(completion.prompt_tokens)
    failure = verdict(completion, case, tools, cell.way)
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
    """Every cell, `trials` times over the cases, with at most so many tools."""
    for style in styles:
        for way in WAYS:
            cell = Cell(style, way)
            for seed in range(trials):
                for case in cases:
                    run_trial(cell, case, backend, offered(case, pool, tools), seed)
            yield cell


def cases_of(suite: str, pool: Sequence[Tool]) -> list[Case]:
    """The cases of a suite that expect a certain call first, which can be made in an empty conversation."""
    return [case for case in load_suite(suite, pool).cases if case.plans and case.first and not case.abstain]


@contextmanager
def opened(model: Path | None, server: str | None) -> Iterator[Backend]:
    if server is not None:
        with LlamaServer(server) as backend:
            yield backend
    else:
        with InProcess(model or model_path()) as backend:
            yield backend


def table(cells: Sequence[Cell], title: str) -> Table:
    shown = Table(
        "style", "way", "ok / n", "dominant failure", "median s", "slowest s", "prompt tokens", title=title
    )
    for cell in cells:
        decoded = bool(cell.seconds)
        shown.add_row(
            cell.style,
            cell.way,
            f"{cell.ok} / {cell.trials}",
            cell.dominant,
            f"{statistics.median(cell.seconds):.3f}" if decoded else "-",
            f"{max(cell.seconds):.3f}" if decoded else "-",
            f"{statistics.median(cell.prompt_tokens):.0f}" if decoded else "-",
        )
    return shown


def main(
    trials: Annotated[int, typer.Option(min=1, help="Times over the suite; all but the first sample.")] = 3,
    suite: Annotated[str, typer.Option(help="A shipped suite, or a file.")] = "representative",
    tools: Annotated[int | None, typer.Option(min=1, help="Offer no more than so many.")] = None,
    model: Annotated[Path | None, typer.Option(help="A GGUF instead of the embedded model.")] = None,
    server: Annotated[str | None, typer.Option(help="A llama-server that runs already.")] = None,
    style: Annotated[list[str] | None, typer.Option(help="Only this style; may be repeated.")] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the cells here too.")] = None,
) -> None:
    """Compare how tools are shown to a model."""
    chosen = [each for each in PROMPT_STYLES if not style or each in style]
    if unknown := set(style or ()) - set(PROMPT_STYLES):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: the styles are {', '.join(PROMPT_STYLES)}")
    pool = load_manifests(manifests_path())
    cases = cases_of(suite, pool)
    console = Console()
    with opened(model, server) as backend:
        cells = []
        for cell in compare(backend, cases, pool, trials=trials, styles=chosen, tools=tools):
            cells.append(cell)
            print(f"{cell.style} {cell.way}: {cell.ok} / {cell.trials}", flush=True)
        about = f"{backend.name}, {suite}, {len(cases)} cases × {trials} trials, {tools or 'all'} tools"
        console.print(table(cells, about))
    if json_out is not None:
        rows: list[dict[str, Any]] = [asdict(cell) | {"dominant": cell.dominant} for cell in cells]
        json_out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    typer.run(main)
