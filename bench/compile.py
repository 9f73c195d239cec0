"""Time compilation: real schemas by several compilers in one run, and a pool of tools.

    python bench/compile.py [--every N] [--json OUT]

Times start at a schema's text, JSON parsing included, for each schema with each compiler in turn:

- gbnf and llama-cpp (the converter of llama-cpp-python): to the text of the grammar. `read` is the time that
  llama.cpp takes to read that text.
- llguidance: to a matcher that is ready for its first mask, grammar and lexer built.

Each schema is compiled once, all in one process, so caches are filled by the schemas before. Percentiles are
over the schemas that a compiler enforces, the totals over those that it and gbnf both do. Times are CPU
times, so that other work on the machine has little effect.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import gbnf.compiler.pool as pools
from contenders import CONTENDERS, Contender, calls_schema, open_model
from corpus import DataMissingError, load_cases, vocabulary_path
from gbnf.schema_caches import caches_in_use
from gbnf.tools import Tool, load_manifests
from gbnf.tools.tool import offered_args
from gbnf_server.system.folders import manifests_path
from isolation import Finished, isolated
from tables import new_table, show

#: The tools of the pool: all kinds of argument, as a planner would offer them together.
POOL = (
    "find_files", "read_files", "write_files", "find_events_empty",
    "create_events", "send_messages", "get_inputs", "compute",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Task:
    """One schema for one contender."""

    contender: Contender
    number: int
    schema_text: str
    is_read: bool  # whether the time that the engine takes to read the grammar is wanted, or the compiler's


def measure(task: Task) -> float | None:
    """Seconds; None if the contender fails on the schema."""
    start = time.process_time()
    try:
        compiled = task.contender.compile(task.schema_text)
        if task.is_read:
            start = time.process_time()
            task.contender.load(compiled)
    except task.contender.errors:
        return None
    return time.process_time() - start


def measure_schemas(
    contenders: Sequence[Contender], schemas: Sequence[str], *, is_read: bool, limit_s: float
) -> dict[str, list[float | None]]:
    """For each contender the seconds for each schema; None if it fails, by error, crash or time."""
    tasks = [
        Task(contender, number, schema, is_read)
        for number, schema in enumerate(schemas)
        for contender in contenders
    ]
    times: dict[str, list[float | None]] = {contender.name: [None] * len(schemas) for contender in contenders}
    with Progress(console=Console(stderr=True), auto_refresh=False) as progress:
        shown = progress.add_task("reading" if is_read else "compiling", total=len(tasks))
        outcomes = isolated(measure, tasks, jobs=1, limit_s=limit_s, memory_mib=2048, per_process=len(tasks))
        for done, (index, outcome) in enumerate(outcomes, 1):
            if isinstance(outcome, Finished):
                times[tasks[index].contender.name][tasks[index].number] = outcome.value
            if done % 100 == 0 or done == len(tasks):
                progress.update(shown, completed=done, refresh=progress.console.is_terminal)
    return times


def percentile(times: Sequence[float], share: float) -> float:
    """Return the least time that `share` of all don't exceed."""
    ordered = sorted(times)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def summarise(times: Sequence[float | None], ours: Sequence[float | None]) -> dict[str, Any]:
    """Percentiles and sums in ms over what compiled; quartiles of ours ÷ this over what both compiled.

    `slow_ms`: the sum of the times from the 90th to the 99th percentile, for each 1,000 schemas.
    """
    compiled = [seconds for seconds in times if seconds is not None]
    both = [(mine, theirs) for mine, theirs in zip(ours, times, strict=True) if mine and theirs]
    summary: dict[str, Any] = {"compiled": len(compiled), "failed": len(times) - len(compiled)}
    if compiled:
        ratios = [mine / theirs for mine, theirs in both] or [math.nan]
        p90, p99 = (percentile(compiled, share / 100) for share in (90, 99))
        summary |= {"p50_ms": 1e3 * percentile(compiled, 0.5), "p90_ms": 1e3 * p90, "p99_ms": 1e3 * p99}
        summary |= {
            "max_ms": 1e3 * max(compiled),
            "slow_ms": 1e6 * sum(seconds for seconds in compiled if p90 <= seconds <= p99) / len(compiled),
            "ratios_ours": [percentile(ratios, share) for share in (0.25, 0.5, 0.75)],
            "both": len(both),
            "total_s": sum(own for _, own in both),
            "ours_s": sum(own for own, _ in both),
        }
    return summary


def _clear_tools() -> None:
    caches_in_use().results.pop(pools.compile_tool, None)
    unlink()


def unlink() -> None:
    """Forget the grammars of pools; their compiled tools stay."""
    caches_in_use().results.pop(pools._link_pool, None)  # noqa: SLF001  # only a benchmark clears it


def measure_pool(tools: Sequence[Tool], contenders: Sequence[Contender]) -> dict[str, float]:
    """Median seconds for a pool of tools with empty caches, recompiled tools, or cached tools.

    The other contenders are given the same union of calls as one schema.
    """

    def compile_ours() -> None:
        assert str(pools.compile_pool(tools))

    union = calls_schema({tool.name: offered_args(tool, ()) for tool in tools})
    compile_ours()
    times = {
        "everything forgotten": _median_time(compile_ours, caches_in_use().results.clear, 50),
        "cold": _median_time(compile_ours, _clear_tools, 200),
        "linked": _median_time(compile_ours, unlink, 1000),
    }
    for contender in contenders:
        if contender.name != "gbnf":
            with suppress(*contender.errors):  # it cannot compile the pool, and has no row
                times[contender.name] = _median_time(partial(contender.compile, union), lambda: None, 50)
    return times


def _median_time(work: Callable[[], Any], prepare: Callable[[], Any], times: int) -> float:
    taken = []
    for _ in range(times):
        prepare()
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def schema_table(times: dict[str, dict[str, Any]]) -> Table:
    """Return the times of each compiler as a table."""
    heads = " | compiled | failed | p50 | p90 | p99 | max | p90–p99 of 1,000"
    drawn = new_table(
        f"{heads} | ours ÷ this: median (quartiles) | both | total s | ours s", "Schemas, in ms"
    )
    for name, summary in times.items():
        cells = [str(summary["compiled"]), str(summary["failed"])]
        if "p50_ms" in summary:
            cells += [f"{summary[key]:.2f}" for key in ("p50_ms", "p90_ms", "p99_ms", "max_ms")]
            low, median, high = summary["ratios_ours"]
            cells += [f"{summary['slow_ms']:.0f}", f"{median:.2f} ({low:.2f}–{high:.2f})"]
            cells += [str(summary["both"]), f"{summary['total_s']:.2f}", f"{summary['ours_s']:.2f}"]
        drawn.add_row(name, *cells)
    return drawn


def pool_table(times: dict[str, float], rules: int) -> Table:
    """Return the times to compile and link a pool as a table."""
    drawn = new_table(" | ms | ÷ cold", f"A pool of {len(POOL)} tools, {rules} rules")
    for name, seconds in times.items():
        drawn.add_row(name, f"{1e3 * seconds:.3f}", f"{seconds / times['cold']:.2f}")
    return drawn


def main(
    data: Annotated[Path | None, typer.Option(help="Cases as JSON Lines, plain or xz.")] = None,
    vocab: Annotated[Path | None, typer.Option(help="Vocabulary, a GGUF file.")] = None,
    engine: Annotated[
        list[str] | None, typer.Option(help=f"Compiler, repeatable: {', '.join(CONTENDERS)}.")
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Use every Nth schema.")] = 1,
    limit: Annotated[float, typer.Option(help="Time limit per schema, in seconds.")] = 20.0,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write all times to this file.")] = None,
) -> None:
    """Time compilers on MaskBench's schemas and on a pool of the bundled tools."""
    try:
        schemas = [json.dumps(case.schema) for case in load_cases(data, every=every)]
        model = open_model(vocab or vocabulary_path())
    except DataMissingError as error:
        raise SystemExit(str(error)) from None
    by_name = {tool.name: tool for tool in load_manifests(manifests_path())}
    tools = tuple(by_name[name] for name in POOL)
    contenders = [CONTENDERS[name](model) for name in engine or ["gbnf", "llama-cpp", "llguidance"]]
    compiling = measure_schemas(contenders, schemas, is_read=False, limit_s=limit)
    of_gbnf = [contender for contender in contenders if contender.name in {"gbnf", "llama-cpp"}]
    reading = measure_schemas(of_gbnf, schemas, is_read=True, limit_s=limit)
    rows = {name: summarise(times, compiling.get("gbnf", times)) for name, times in compiling.items()}
    for name, times in reading.items():
        rows[f"{name}: read"] = summarise(times, reading.get("gbnf", times))
    show(schema_table(rows))
    pool = measure_pool(tools, contenders)
    show(pool_table(pool, len(pools.compile_pool(tools).rules.productions)))
    if json_out:
        written = {"schemas": rows, "pool_s": pool, "seconds": {"compile": compiling, "read": reading}}
        json_out.write_text(json.dumps(written, indent=1))


if __name__ == "__main__":
    typer.run(main)
