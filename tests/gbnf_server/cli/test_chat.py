"""`gbnf chat`: a conversation with the bundled model, piped and at a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gbnf_server.cli.errors import ExitCode
from support.command_line import Gbnf
from support.server import Reply, completion, scripted
from support.toys import make_tool


@pytest.mark.slow
def test_requests_and_commands(gbnf: Gbnf, tmp_path: Path) -> None:
    work = tmp_path / "work"
    asked = "create a folder trips\n\n/tools\n/help\n/nope\nwhat time is it?\n/quit\nnever read"
    result = gbnf("chat", "--workspace", work, stdin=asked)
    assert result.code == ExitCode.SUCCESS
    assert len(result.out.splitlines()) == 2
    assert "trips" in result.out
    assert (work / "trips").is_dir()
    assert "get_now  Tell the current date" in result.err
    assert "unknown command /nope" in result.err
    assert result.err.count("/undo   forget") == 2
    assert "never read" not in result.err


@pytest.mark.slow
def test_undo_takes_back_a_request_and_its_changes_only(gbnf: Gbnf, tmp_path: Path) -> None:
    work = tmp_path / "work"
    gbnf("run", "create a folder older", "--workspace", work)
    script = ["create a folder trips", "what time is it?", "/undo", "/undo", "/undo"]
    result = gbnf("chat", "--workspace", work, "--quiet", stdin="\n".join(script))
    assert result.err.splitlines()[1:] == [
        "forgotten: what time is it?",
        "forgotten: create a folder trips",
        "removed folder 'trips'",
        "there is no request to undo",
    ]
    assert (work / "older").is_dir()
    assert not (work / "trips").exists()


@pytest.mark.slow
@pytest.mark.parametrize("line", ["delete \udcff", "echo"])
def test_a_piped_conversation_without_an_answer_fails(
    gbnf: Gbnf, no_smollm2: None, tmp_path: Path, line: str
) -> None:
    make_tool(tmp_path / "tools", "echo")
    options = ["--workspace", tmp_path / "work", "--manifests", tmp_path / "tools"]
    result = gbnf("chat", *options, "--max-tokens", 1, stdin=line)  # every call is cut
    assert result.code == ExitCode.FAILURE
    assert "Traceback" not in result.err


class Terminal:
    """A terminal with `gbnf chat` in it."""

    def __init__(self, folder: Path, *options: object) -> None:
        self._main, child = pty.openpty()
        command = [sys.executable, "-m", "gbnf_server", "chat", "--workspace", str(folder / "work")]
        command += map(str, options)
        self.process = subprocess.Popen(
            command,
            stdin=child,
            stdout=child,
            stderr=child,
            cwd=folder,
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509  # it gets a terminal of its own in no other way
            env={**os.environ, "TERM": "dumb"},
        )
        os.close(child)
        self._text = ""
        threading.Thread(target=self._read, daemon=True).start()

    def type(self, text: str) -> None:
        os.write(self._main, text.encode())

    def expect(self, pattern: str) -> None:
        """Wait for a text, and forget what is before its end."""
        deadline = time.monotonic() + 120
        while (found := re.search(pattern, self._text)) is None:
            assert time.monotonic() < deadline, self._text
            time.sleep(0.05)
        self._text = self._text[found.end() :]

    def _read(self) -> None:
        try:
            while data := os.read(self._main, 4096):
                self._text += data.decode(errors="replace")
        except OSError:
            pass


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.slow
def test_at_a_terminal_ctrl_c_ends_a_line_and_ctrl_d_the_conversation(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.expect("/help lists the commands")
    terminal.expect("> ")
    terminal.type("half a request\x03")
    terminal.expect("> ")
    terminal.type("create a folder trips\n")
    terminal.expect("Created trips")
    terminal.expect("> ")
    assert (tmp_path / "work" / "trips").is_dir()
    terminal.type("\x04")
    assert terminal.process.wait(120) == ExitCode.SUCCESS


@pytest.mark.slow
def test_at_a_terminal_ctrl_c_ends_a_request_and_the_conversation_goes_on(tmp_path: Path) -> None:
    make_tool(tmp_path / "tools", "linger", "time.sleep(300)", timeout_s=600)
    call = '{"name": "linger", "arguments": {}}'
    event = {**completion(call).body, "stop": True}
    with scripted(completion=[Reply(200, f"data: {json.dumps(event)}\n\n")]) as script:
        terminal = Terminal(tmp_path, "--server", script.url, "--manifests", tmp_path / "tools")
        terminal.expect("> ")
        terminal.type("go\n")
        terminal.expect("linger  {}")
        terminal.type("\x03")
        terminal.expect("interrupted: linger was running")
        terminal.expect("> ")
        terminal.type("/undo\n")
        terminal.expect("there is no request to undo")
        terminal.expect("> ")  # what is typed before it is read by another mode of the terminal
        terminal.type("\x04")
        assert terminal.process.wait(120) == ExitCode.SUCCESS
    [(_, body)] = [(path, body) for path, body in script.asked if path == "/completion"]
    assert "ask_user" in json.dumps(body["grammar"])  # there is a person to ask


@pytest.mark.slow
@pytest.mark.parametrize("command", ["chat", "run", "batch"])
def test_an_uncertain_call_is_not_executed_without_a_person(gbnf: Gbnf, tmp_path: Path, command: str) -> None:
    work, asked = tmp_path / "work", "create a folder trips"
    (tmp_path / "asked.jsonl").write_text(json.dumps(asked))
    requests: dict[str, list[object]] = {"run": [asked], "batch": [tmp_path / "asked.jsonl"]}
    given = requests.get(command, [])
    for limit, is_made in ((1, False), (0, True)):
        gbnf(command, *given, "--workspace", work, "--confirm-below", limit, stdin=asked)
        assert (work / "trips").exists() == is_made
        (tmp_path / "asked.results.jsonl.log").unlink(missing_ok=True)
