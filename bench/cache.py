"""How long does it take to compile a pool of 146 tools: cold, linked, and in another process with the cache?

    python bench/cache.py [--data FOLDER] [--tools FILE] [--runs N]

The tools are the first 146 functions of the category live_multiple of BFCL, of an installed `bfcl-eval` or in
the folder `bfcl_eval/data` of its wheel, or those of a tools list. Each run is a process of its own, which
imports the compiler and loads the tools before the clock starts. Rows:

- cold: a process without the cache.
- cold, writing: the same with an empty cache, which it fills.
- second process: with this cache. Looking for the version of the compiler is part of it.
- linked: a pool of compiled tools again, in another order; half of them.
- rules: the productions of a pool that comes from the cache are decoded, as for matching texts.

Times are of the CPU and of the wall, in ms: minimum and median of all runs.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from gbnf import compile_pool, load_tools
from gbnf.tools import Tool
from gbnf_server.system.part_cache import use_disk_cache
from ranking import HELD_OUT, request_set
from tables import leaderboard_data, new_table, show

POOL = 146
_LINKED = 30  # pools that are linked in one run

Times = dict[str, list[tuple[float, float]]]


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """CPU and wall time of a call, in seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def compile_once(path: Path) -> Times:
    """Compile the tools of a list in this process, then link some of them again."""
    import_module("gbnf.compiler.lowering")  # otherwise the first tool that is not cached does
    tools = load_tools(path)
    use_disk_cache()
    found: Times = {"compile": [timed(lambda: str(compile_pool(tools)))]}
    found["rules"] = [timed(lambda: dict(compile_pool(tools).rules.productions))]
    for name, pool in (("linked", tools), ("linked, half", tools[::2])):
        found[name] = [timed(lambda pool=pool: str(compile_pool(pool))) for pool in _orders(pool)]  # type: ignore[misc]  # the default of a lambda
    return found


def _orders(tools: Sequence[Tool]) -> list[tuple[Tool, ...]]:
    """The tools in orders that differ from each other."""
    return [(*tools[first:], *tools[:first]) for first in range(1, _LINKED + 1)]


def in_process(path: Path, cache: Path, *, uses_cache: bool) -> Times:
    """The same in another process."""
    environment = {**os.environ, "GBNF_CACHE": str(cache), "GBNF_COMPILE_CACHE": str(int(uses_cache))}
    command = [sys.executable, __file__, "--tools", str(path), "--once"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: Times = json.loads(done.stdout)
    return found


def measure(path: Path, runs: int) -> Times:
    """The times of all runs."""
    found: Times = {}
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as cache:
            cold = in_process(path, Path(cache), uses_cache=False)
            writing = in_process(path, Path(cache), uses_cache=True)
            second = in_process(path, Path(cache), uses_cache=True)
        each = {
            "cold": cold["compile"],
            "cold, writing": writing["compile"],
            "second process": second["compile"],
        }
        each |= {"second process, rules": second["rules"]}
        each |= {name: times for name, times in cold.items() if name.startswith("linked")}
        for name, times in each.items():
            found.setdefault(name, []).extend(times)
    return found


def table(times: Times, count: int) -> Table:
    """The times as a table."""
    heads = " | CPU, min | CPU, median | wall, min | wall, median | cold ÷ this"
    drawn = new_table(heads, f"A pool of {count} tools, in ms")
    cold = min(cpu for cpu, _ in times["cold"])
    for name, each in times.items():
        values = [1e3 * pick(one) for one in zip(*each, strict=True) for pick in (min, statistics.median)]
        drawn.add_row(name, *[f"{value:.2f}" for value in values], f"{1e3 * cold / values[0]:.1f}")
    return drawn


def main(
    data: Annotated[Path | None, typer.Option(help="Folder with BFCL_v4_*.json.")] = None,
    tools: Annotated[Path | None, typer.Option(help="A tools list instead of BFCL's functions.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs, each in processes of its own.")] = 10,
    once: Annotated[bool, typer.Option("--once", hidden=True)] = False,
) -> None:
    """Print how long a pool takes to compile."""
    if once and tools is not None:
        print(json.dumps(compile_once(tools)))
        return
    with tempfile.TemporaryDirectory() as folder:
        if tools is None:
            pool = request_set(HELD_OUT, leaderboard_data(data)).pool[:POOL]
            tools = Path(folder, "tools.json")
            tools.write_text(json.dumps([{"name": one.name, "inputSchema": one.args} for one in pool]))
        count = len(load_tools(tools))
        show(table(measure(tools, runs), count))


if __name__ == "__main__":
    typer.run(main)
