"""A planner over typed functions: their calls are executed, undone and awaited like those of executors."""

from __future__ import annotations

import asyncio
import datetime as dt
from pathlib import Path

from gbnf import load_tools, tool
from gbnf_server.executors import Context, ExecutorError, Write
from gbnf_server.planner import Planner, PlannerOptions
from support.by_hand import ANSWER, call
from support.executors import snapshot, world
from support.scripts import Script
from support.toys import Driver


@tool
def note(day: dt.date, text: str, context: Context) -> str:
    """Write a note."""
    context.change(Write(f"{day}.txt", text.encode()))
    return f"noted for {day:%A}"


@tool(effect="read")
async def ask_oracle(question: str) -> dict[str, list[str]]:
    """Ask."""
    if not question:
        raise ExecutorError("the question is empty")
    await asyncio.sleep(0)
    return {"entries": [question]}


CALLS = (
    call("note", day="2026-11-22", text="x"),
    call("ask_oracle", question=""),
    call("ask_oracle", question="why"),
    ANSWER,
)


def test_functions_are_called(tmp_path: Path, driver: Driver) -> None:
    context = world(tmp_path)
    before = snapshot(tmp_path)
    planner = Planner(
        load_tools([note, ask_oracle]),
        Script({"note it": CALLS}),
        PlannerOptions(filter=False),
        context=context,
    )
    run = driver(planner, "note it")
    assert run.outcome == "answered"
    noted, refused, asked, _ = run.steps
    assert noted.result == {"result": "noted for Sunday"}
    assert refused.error == "the question is empty"
    assert asked.result == {"entries": ["why"]}
    assert (tmp_path / "2026-11-22.txt").read_text() == "x"
    context.journal.undo_last_turn("another")
    assert snapshot(tmp_path) == before
