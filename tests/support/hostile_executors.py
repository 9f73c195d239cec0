"""Executors that do what they should not, as a table: each ends in an `ExecutorError`, and leaves nothing."""

from __future__ import annotations

import os
import signal
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gbnf.tools import Tool

MARK = "HOSTILE"
"""A variable of the environment by which everything that a hostile executor starts is found."""

_HEAD = """
import json, os, resource, signal, socket, subprocess, sys, threading, time
from gbnf_server.executors import ExecutorError, Field, Form, Write


def pipe(data):
    # the connection with the runner, among all descriptors that this process has
    for descriptor in range(3, 50):
        try:
            os.write(descriptor, data)
        except OSError:
            pass


def forever():
    while True:
        time.sleep(60)


def changing(context, then):
    # changes two files, and does something in the middle of it
    journal = context.journal
    with journal.locked():
        changes = [Write("kept.txt", b"changed"), Write("new/file.txt", b"new")]
        journal.apply(changes, turn=context.turn, tool=context.tool, action=then)


def run(arguments, context):
"""


@dataclass(frozen=True, slots=True)
class Hostile:
    """`body`: the code of `run`; `says`: a pattern of the error. Limits as in a manifest."""

    name: str
    body: str
    says: str
    timeout_s: float = 60.0
    memory_mb: int = 512
    max_result_kb: int = 64

    def made(self, folder: Path) -> Tool:
        folder.mkdir(exist_ok=True)
        code = _HEAD + textwrap.indent(textwrap.dedent(self.body), "    ")
        (folder / "executor.py").write_text(code)
        mapping = {
            "name": "hostile",
            "description": "Hostile.",
            "args": {"type": "object"},
            "run": {
                "timeout_s": self.timeout_s,
                "memory_mb": self.memory_mb,
                "max_result_kb": self.max_result_kb,
                "env": [MARK],
            },
        }
        return Tool.from_mapping(mapping, folder / "manifest.toml")


def _writes(name: str, data: bytes, says: str = "sent an invalid message") -> Hostile:
    return Hostile(name, f"pipe({data!r})\nforever()", says)


def _dies_of(number: int) -> Hostile:
    # whoever runs the tests may ignore it, as `nohup` does, and SIGKILL has no handler
    default = "" if number == signal.SIGKILL else f"signal.signal({number}, signal.SIG_DFL), "
    body = f"changing(context, lambda: ({default}os.kill(os.getpid(), {number}), forever()))"
    return Hostile(f"dies_of_{number}", body, "was killed by SIG", timeout_s=0)


_SLEEPER = "[sys.executable, '-c', 'import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(90)']"
_CHILD = f"subprocess.Popen({_SLEEPER})\n"
_SESSION = f"subprocess.Popen({_SLEEPER}, start_new_session=True)\n"
_DAEMON = f"""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: os.execv(sys.executable, {_SLEEPER})
    os._exit(0)
os.wait()
"""
_DEADLY = [signal.SIGHUP, signal.SIGILL, signal.SIGABRT, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM]
_DEADLY += [signal.SIGXCPU, getattr(signal, "SIGRTMAX", signal.SIGUSR1)]
"""Of each kind one: of a terminal, of faults, of limits, and one without a name of its own."""

_BIG = 4_000_000

HOSTILE: tuple[Hostile, ...] = (
    # what it prints
    Hostile(
        "floods_stdout", "while True: os.write(1, b'x' * 65536)", "was stopped after 0.5 s", timeout_s=0.5
    ),
    Hostile(
        "floods_stderr_with_lines", "while True: os.write(2, b'x\\n' * 30000)", "was stopped", timeout_s=0.5
    ),
    Hostile("prints_garbage_and_dies", "os.write(1, bytes(range(256)) * 99); os._exit(3)", "exit code 3"),
    # what it writes to its connection
    Hostile("floods_the_pipe", "while True: pipe(b'x' * 65536)", "returned more than 64 kB"),
    Hostile("floods_the_pipe_with_lines", "while True: pipe(b'x\\n' * 30000)", "sent an invalid message"),
    Hostile(
        "floods_the_pipe_with_blank_lines", "while True: pipe(b'\\n' * 65536)", "sent an invalid message"
    ),
    Hostile(
        "floods_with_questions",
        "question = json.dumps({'is': 'ask', 'title': 't', 'fields': []}).encode() + b'\\n'\n"
        "while True: pipe(question * 500)",
        "was stopped after 0.5 s",
        timeout_s=0.5,
    ),
    Hostile(
        "floods_with_large_questions",
        "question = json.dumps({'is': 'ask', 'title': 'x' * 60_000, 'fields': []}).encode() + b'\\n'\n"
        "while True: pipe(question * 9)",
        "was stopped after 0.5 s",
        timeout_s=0.5,
    ),
    _writes("writes_words", b"hello\n"),
    _writes("writes_half_a_result", b'{"is": "result", "value": {\n'),
    _writes("writes_a_deep_message", b"[" * 30_000 + b"\n", "nested deeper than 64"),
    Hostile("writes_no_line_end", f"pipe(b'x' * {_BIG})\nforever()", "returned more than 64 kB"),
    # what it returns
    Hostile("returns_too_much", f"return {{'x': 'x' * {_BIG}}}", "returned more than 64 kB"),
    Hostile(
        "returns_20000_deep",
        "x = []\nfor _ in range(20000): x = [x]\nreturn {'x': x}",
        "nested deeper than 64",
    ),
    Hostile("returns_itself", "x = {}\nx['x'] = x\nreturn x", "is not JSON: Circular reference"),
    Hostile("returns_nan", "return {'x': float('nan')}", "is not JSON"),
    Hostile("returns_an_endless_integer", "return {'x': 1 << 100_000}", "is not JSON"),
    Hostile("returns_bytes", "return {'x': b'x'}", "is not JSON"),
    Hostile("raises_a_long_text", f"raise ExecutorError('x ' * {_BIG})", "x x"),
    Hostile("raises_a_long_exception", f"raise ValueError('x' * {_BIG})", "failed: ValueError: xx"),
    Hostile("raises_half_a_character", "raise ExecutorError('a \\ud800 b')", "a \ufffd b"),
    # what it uses
    Hostile("never_answers", "forever()", "was stopped after 0.5 s", timeout_s=0.5),
    Hostile("burns_time", "while True: pass", "was stopped after 0.5 s", timeout_s=0.5),
    Hostile(
        "ignores_sigterm",
        "for number in signal.valid_signals() - {9, 19, 32, 33}:\n"
        "    try: signal.signal(number, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n"
        "forever()",
        "was stopped after 0.5 s",
        timeout_s=0.5,
    ),
    Hostile(
        "eats_memory", "x = []\nwhile True: x.append(bytearray(10_000_000))", "more memory than its 512 MB"
    ),
    Hostile("eats_memory_at_once", "x = bytearray(1 << 40)", "more memory than its 512 MB"),
    Hostile(
        "eats_shared_memory",
        "import mmap\nx = mmap.mmap(-1, 1 << 30)\nfor i in range(0, 1 << 30, 4096): x[i] = 1\nforever()",
        "more memory than its 512 MB",
    ),
    Hostile(
        "eats_memory_in_children",
        "code = 'x = bytearray(220_000_000)\\nimport time\\ntime.sleep(90)'\n"
        "for _ in range(4): subprocess.Popen([sys.executable, '-c', code], start_new_session=True)\n"
        "forever()",
        "more memory than its 512 MB",
    ),
    # how it ends
    *map(_dies_of, _DEADLY),
    Hostile("exits", "changing(context, lambda: os._exit(0))", "ended with exit code 0"),
    Hostile("exits_by_exception", "changing(context, lambda: sys.exit(7))", "exit code 7"),
    Hostile("kills_its_group", "changing(context, lambda: os.killpg(0, 9))", "killed by SIGKILL"),
    Hostile(
        "kills_its_supervisor",
        "changing(context, lambda: (os.kill(os.getppid(), 9), forever()))",
        "killed by SIGKILL",
    ),
    Hostile(
        "stops",
        "changing(context, lambda: os.kill(os.getpid(), signal.SIGSTOP))",
        "was stopped after 1 s",
        timeout_s=1,
    ),
    Hostile(
        "stops_its_supervisor",
        "os.kill(os.getppid(), signal.SIGSTOP)\nforever()",
        "was stopped after 2 s",
        timeout_s=2,  # so that the supervisor is stopped before
    ),
    Hostile(
        "closes_its_pipes_and_lingers",
        "changing(context, lambda: (os.closerange(3, 100), forever()))",
        "closed its connection",
    ),
    Hostile("overflows_the_stack", "def deep(): deep()\ndeep()", "failed: RecursionError"),
    Hostile(
        "reads_at_zero",
        "import ctypes\nctypes.string_at(0)",
        "was killed by SIGSEGV .the fault is in compiled code",
    ),
    # what it leaves behind
    Hostile("leaves_a_child_and_dies", _CHILD + "os._exit(1)", "exit code 1"),
    Hostile("leaves_a_session_and_dies", _SESSION + "os._exit(1)", "exit code 1"),
    Hostile("leaves_a_session_and_fails", _SESSION + "raise ExecutorError('no')", "no"),
    Hostile("leaves_a_daemon_and_dies", _DAEMON + "os._exit(1)", "exit code 1"),
    Hostile("leaves_a_daemon_and_waits", _DAEMON + "forever()", "was stopped after 0.5 s", timeout_s=0.5),
    Hostile("forks_with_its_pipes_and_dies", "if os.fork(): os._exit(4)\nforever()", "exit code 4"),
    Hostile(
        "forks_on_and_on",
        "for _ in range(5):\n    if os.fork() == 0: os.setsid()\nforever()",
        "was stopped after 1 s",
        timeout_s=1,
    ),
)


class Reaped:
    """What this process signals and reaps, in order: a signal to a reaped number is an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reaped: set[int] = set()
        self.signalled: list[int] = []
        for name in ("kill", "killpg"):
            monkeypatch.setattr(os, name, self._signalling(getattr(os, name)))
        if hasattr(signal, "pidfd_send_signal"):  # its descriptor is never another process's
            monkeypatch.setattr(signal, "pidfd_send_signal", self._signalling(signal.pidfd_send_signal))
        waitpid = os.waitpid

        def waited(pid: int, options: int) -> tuple[int, int]:
            found = waitpid(pid, options)
            self.reaped.add(found[0])
            return found

        monkeypatch.setattr(os, "waitpid", waited)

    def _signalling(self, send: Callable[[int, int], None]) -> Callable[[int, int], None]:
        def sending(pid: int, number: int) -> None:
            assert pid not in self.reaped
            if number:
                self.signalled.append(pid)
            send(pid, number)

        return sending
