"""The command line as a process: pipes, a terminal, Ctrl-C, and the README's first command as written."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gbnf_server.llama.demo_model import model_path
from support.models import make_model
from support.toys import make_tool

GBNF = [sys.executable, "-m", "gbnf_server"]
README = Path(__file__).parents[3] / "README.md"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights, which only a grammar makes sensible."""
    return make_model(tmp_path_factory.mktemp("model") / "tiny.gguf", context=4096)


@pytest.mark.slow
def test_a_pipe_may_be_closed_early() -> None:
    done = subprocess.run(
        f"{shlex.join(GBNF)} compile | head -c 20", shell=True, capture_output=True, check=True, text=True
    )
    assert done.stdout == 'root ::= "{\\"name\\":"'[:20]
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_ctrl_c_exits_with_130_and_rolls_back_the_running_change(tmp_path: Path, model: Path) -> None:
    body = """
    from gbnf_server.executors import Write

    def wait():
        (context.workspace.root / "begun").touch()
        time.sleep(60)

    journal = context.journal
    with journal.locked():
        journal.apply([Write("half.txt", b"half")], turn=context.turn, tool="t", action=wait)
    return {}
    """
    make_tool(tmp_path / "tools", "half", body)
    command = [*GBNF, "run", "go", "--model", str(model), "--manifests", str(tmp_path / "tools")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as process:
        while not (tmp_path / "gbnf-workspace" / "begun").exists():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"interrupted: half was running; its changes to the workspace were rolled back\n" in said
    assert b"Traceback" not in said
    assert not (tmp_path / "gbnf-workspace" / "half.txt").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("typed", "fault"), [(b"y\n", None), (b"\n", "denied")])
def test_at_a_terminal_the_person_is_asked(
    tmp_path: Path, model: Path, typed: bytes, fault: str | None
) -> None:
    make_tool(tmp_path / "tools", "careful", confirm=True)
    options = ["--model", str(model), "--manifests", str(tmp_path / "tools"), "--max-steps", "1", "--json"]
    command = [*GBNF, "run", "go", *options, "--no-ask-user", "--require", "*"]
    terminal, other_end = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(
        command, stdin=other_end, stdout=subprocess.PIPE, stderr=other_end, cwd=tmp_path, env=environment
    ) as process:
        os.close(other_end)
        shown = _read_until(terminal, b"Allow it?")
        assert b"careful" in shown
        assert b"\x1b[" in shown
        os.write(terminal, typed)
        _read_until(terminal, b"exhausted")
        assert process.stdout is not None
        run = json.load(process.stdout)
    os.close(terminal)
    assert process.returncode == 1
    assert [step["fault"] for step in run["steps"]] == [fault]


def _read_until(terminal: int, mark: bytes) -> bytes:
    shown = b""
    while mark not in shown:
        assert select.select([terminal], [], [], 60)[0], f"nothing more came after {shown!r}"
        shown += os.read(terminal, 4096)
    return shown


@pytest.mark.slow
@pytest.mark.skipif(not model_path().is_file(), reason="there is no embedded model yet")
def test_the_readmes_first_command_as_written(tmp_path: Path) -> None:
    [command, *_] = re.findall(r"gbnf run (.*)$", README.read_text("utf-8"), re.MULTILINE)
    done = subprocess.run(
        [*GBNF, "run", *shlex.split(command)], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "answered" in done.stderr
    workspace = tmp_path / "gbnf-workspace"
    made = [path for path in workspace.rglob("*") if ".gbnf" not in path.relative_to(workspace).parts]
    assert made, "the first command should leave something to look at"
