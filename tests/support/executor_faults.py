"""An executor whose process follows a drawn schedule: it changes files, asks, and fails at any point."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from hypothesis import strategies as st

from gbnf.tools import Tool
from gbnf_server.executors import AbsentPerson, ExecutorError, Form

_CODE = """
import os, signal, subprocess, sys, time
from gbnf_server.executors import Field, Form, Write

def ask(context, what):
    return context.ask(Form(f"{what} {os.getpid()} {os.getppid()}", (Field("a", "A?", "text"),)))["a"]

def forever():
    while True:
        time.sleep(60)

ENDS = {
    "exits": lambda: os._exit(3),
    "is_killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "kills_its_supervisor": lambda: (os.kill(os.getppid(), signal.SIGKILL), forever()),
    "hangs": forever,
    "raises": lambda: 1 / 0,
    "closes_everything": lambda: (os.closerange(0, 100), forever()),
}

def run(arguments, context):
    for step, value in arguments["schedule"]:
        if step == "changes":
            context.change(Write(f"{value}.txt", b"new"), Write("common.txt", str(value).encode()))
        elif step == "asks":
            try:
                ask(context, value)
            except BaseException as error:
                print(type(error).__name__)
        elif step == "prints":
            os.write(1, b"x" * value)
        elif step == "leaves_a_process":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(90)"], start_new_session=value)
        elif step == "closes":
            files = {"its_input": context.person._messages, "its_output": context.person._pipe}
            os.close(files.get(value, sys.stdout).fileno())
        elif step == "ends":
            ENDS[value]()
        elif step == "ends_in_a_change":
            journal = context.journal
            with journal.locked():
                changes = [Write("half.txt", b"half"), Write("common.txt", b"half")]
                journal.apply(changes, turn=context.turn, tool=context.tool, action=ENDS[value])
    return {"done": True}
"""

_ARGS = {"type": "object", "properties": {"schedule": {"type": "array", "items": {"type": "array"}}}}
ENDS = ["exits", "is_killed", "kills_its_supervisor", "hangs", "raises", "closes_everything"]
_steps = st.one_of(
    st.tuples(st.just("changes"), st.integers(0, 3)),
    st.tuples(st.just("asks"), st.sampled_from(["answer", "refuse", "kill", "kill_supervisor"])),
    st.tuples(st.just("prints"), st.sampled_from([1, 100_000])),
    st.tuples(st.just("leaves_a_process"), st.booleans()),
    st.tuples(st.just("closes"), st.sampled_from(["its_input", "its_output", "stdout"])),
)
_ends = st.tuples(st.sampled_from(["ends", "ends_in_a_change"]), st.sampled_from(ENDS))
schedules: st.SearchStrategy[list[tuple[str, Any]]] = st.builds(
    lambda steps, end: [*steps, *end], st.lists(_steps, max_size=4), st.lists(_ends, max_size=1)
)
"""What an executor does, in order; without an end, it returns."""


def may_hang(schedule: list[tuple[str, Any]]) -> bool:
    """Whether only its time limit ends the executor, or may do so."""
    return any(value in {"hangs", "closes_everything"} for _, value in schedule)


def executor(folder: Path, timeout_s: float) -> Tool:
    folder.mkdir(exist_ok=True)
    (folder / "executor.py").write_text(_CODE)
    run = {"effect": "write", "timeout_s": timeout_s}
    mapping = {"name": "faulty", "description": "Faulty.", "args": _ARGS, "run": run}
    return Tool.from_mapping(mapping, folder / "manifest.toml")


def running_in(folder: Path) -> list[psutil.Process]:
    """The processes that run in a folder or below it."""

    def runs(process: psutil.Process) -> bool:
        try:
            return process.status() != psutil.STATUS_ZOMBIE and process.cwd().startswith(str(folder))
        except psutil.Error:
            return False

    return [process for process in psutil.process_iter() if runs(process)]


class FaultyPerson(AbsentPerson):
    """A person who answers as the executor's form says; meanwhile its process, or its supervisor, may end."""

    def answer(self, form: Form) -> dict[str, Any]:
        what, pid, supervisor = form.title.split()
        if what.startswith("kill"):
            with suppress(ProcessLookupError):  # it has ended since it asked
                os.kill(int(pid if what == "kill" else supervisor), signal.SIGKILL)
        if what == "refuse":
            raise ExecutorError("there is nobody")
        return {"a": "x"}
