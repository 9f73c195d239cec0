"""What a request costs this toolkit, without the model, as tools, schemas, history and runs grow.

    python bench/scaling.py [--repeat N]

A planner's run of one call on a backend that returns a known answer at once, as a server would: so what is
measured is ranking, selecting, compiling or linking, the prompt, reading, matching against the grammar and
validating. CPU time of this process, in ms: of the first request, and the median of later ones, whose queries
differ. The slope is the exponent of the cost between the last two sizes: 1 is linear, 0 is constant.

    pool       tools to choose from; 16 are offered
    schema     properties of the tool's arguments; the call gives one of them
    history    earlier exchanges of the conversation
    parallel   runs at a time over the same pool; for each run
"""

from __future__ import annotations

import asyncio
import json
import math
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from gbnf import Tool
from gbnf_server import Context, Planner, PlannerOptions
from gbnf_server.backends.answer import RequestBackend
from gbnf_server.backends.base import BackendEvent, Completion, Dialect, ModelInfo, Request
from gbnf_server.executors import Workspace
from gbnf_server.planner import Exchange
from tables import new_table, show

SIZES = {
    "pool": (8, 64, 512, 4096),
    "schema": (8, 64, 512),
    "history": (1, 8, 64, 512),
    "parallel": (1, 8, 64, 512),
}
WORDS = ("invoice", "photo", "ticket", "route", "sensor", "order", "song", "branch", "meal", "shift", "lamp")


class Known(RequestBackend):
    """A server that calls the tool that a request names."""

    name = "known"
    dialect: Dialect = "gbnf"

    _info = ModelInfo(name="known")
    _context_length = 1 << 20

    async def count_tokens(self, request: Request) -> int:
        """See `Backend`."""
        return sum(len(str(message["content"])) for message in request.messages) // 4

    def clear_prompt_cache(self) -> None:
        """See `Backend`."""

    def close(self) -> None:
        """See `Backend`."""

    async def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
        """Yield the call that the last message names."""
        asked = str(request.messages[-1]["content"])
        name, number = asked.split()[-2:]
        yield Completion(json.dumps({"name": name, "arguments": {"field_0": int(number)}}), "stop")


def tool(number: int, properties: int = 4) -> Tool:
    """Return a tool; a call of the first one ends the run."""
    noun = WORDS[number % len(WORDS)]
    fields = {
        f"field_{place}": {"type": "integer", "description": f"Part {place} of the {noun}"}
        for place in range(properties)
    }
    described = Tool.from_mapping(
        {
            "name": f"{noun}_{number}",
            "description": f"Looks up {noun} number {number}.",
            "args": {"type": "object", "properties": fields, "required": ["field_0"]},
            "offer": {"terminal": not number},
            "run": {"effect": "read"},
        }
    )
    return replace(described, function=lambda _arguments, _context: {"done": True})


def cpu_ms(work: Callable[[], Any]) -> float:
    """Return the CPU time of some work in ms."""
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1000


def costs(kind: str, size: int, folder: Path, repeat: int) -> tuple[float, float]:
    """Return the cost of the first request and of a later one, in ms."""
    tools = [tool(number) for number in range(size if kind == "pool" else 8)]
    if kind == "schema":
        tools = [tool(number, size) for number in range(8)]
    runner = Planner(tools, Known(), PlannerOptions(max_tools=16), context=Context(Workspace(folder)))
    history = [Exchange(f"look up number {number}", f"It is {number}.") for number in range(size)]
    earlier = history if kind == "history" else ()
    wanted = tools[0].name

    def query(number: int) -> str:
        return f"look up this: {wanted} {number}"

    def run(number: int) -> None:
        outcome = runner.run(query(number), history=earlier).outcome
        assert outcome == "answered", outcome

    async def together(number: int) -> None:
        await asyncio.gather(*(runner.arun(query(number * size + place)) for place in range(size)))

    if kind != "parallel":
        first = cpu_ms(partial(run, 0))
        later = [cpu_ms(partial(run, number)) for number in range(1, repeat)]
        return first, statistics.median(later)
    first = cpu_ms(partial(run, 0))
    rounds = range(1, max(2, repeat * 2 // size))
    return first, statistics.median(
        cpu_ms(partial(asyncio.run, together(number))) / size for number in rounds
    )


def main(
    repeat: Annotated[int, typer.Option(min=2, help="Requests of each row.")] = 15,
) -> None:
    """Measure, and print the table."""
    with tempfile.TemporaryDirectory() as folder:
        costs("pool", 8, Path(folder), 2)  # imports
    table = new_table("|size|first request, ms|later requests, ms|slope")
    for kind, sizes in SIZES.items():
        last: tuple[int, float] | None = None
        for size in sizes:
            with tempfile.TemporaryDirectory() as folder:
                first, later = costs(kind, size, Path(folder), repeat)
            slope = "" if last is None else f"{math.log(later / last[1]) / math.log(size / last[0]):.2f}"
            table.add_row(kind, f"{size:,}", f"{first:.1f}", f"{later:.2f}", slope)
            last = size, later
    show(table)


if __name__ == "__main__":
    typer.run(main)
