"""What a model, a tool, a server, a manifest or a file says reaches no pipe and no terminal as a command."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import stat
import subprocess
import sys
import threading
import tty
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.cli import main
from gbnf_server.cli.output import escape_control_characters, escape_line
from gbnf_server.cli.run_progress import AnswerPrinter
from gbnf_server.planner import TextWritten
from support.server import PROPS, Reply, completion, scripted
from support.toys import make_tool

CONTROLS = (
    *("\x1b", "\x1b]0;", "\x1b[7777m", "\x00", "\x07", "\x08", "\x0b", "\x0c", "\r", "\x7f", "\x85", "\x9b"),
    *("\u2028", "\u2029", "\u202a", "\u202e", "\u2066", "\u2069", "\u206f", "\U000e0041"),
)
EVIL = "".join(f"ev{control}il " for control in CONTROLS)
FOREIGN = (
    *("\u200d", "\u200c", "\u200f", "é", "日本", "👩‍👩‍👧"),
    *("\u00ad", "\ue000", "\ufeff", "a\tb\nc", "नी", "\u00a0"),
)
"""What joins and parts letters stays: without it, words and emoji fall apart."""


@pytest.mark.parametrize("control", CONTROLS)
def test_a_control_character_is_escaped_as_in_json(control: str) -> None:
    assert json.loads(f'"{escape_control_characters(control)}"') == control
    assert escape_line(f"a{control}b\n\t") == f"a{escape_control_characters(control)}b\\n\\t"


@pytest.mark.parametrize("text", FOREIGN)
def test_other_text_is_unchanged(text: str) -> None:
    assert escape_control_characters(text) == text


def test_the_line_ends_of_windows_are_line_ends() -> None:
    assert escape_control_characters("a\r\nb\rc") == "a\nb\\u000dc"


@given(st.text(st.characters() | st.sampled_from(list("\x1b\r\n\u202e[]m"))))
def test_no_control_character_remains(text: str) -> None:
    for char in escape_control_characters(text):
        assert char in "\n\t" or unicodedata.category(char) not in {"Cc", "Cs", "Zl", "Zp"}
        assert unicodedata.bidirectional(char) not in {
            *("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        }


@given(st.dictionaries(st.text(), st.text() | st.lists(st.text())))
def test_json_keeps_its_value(value: Any) -> None:
    assert json.loads(escape_control_characters(json.dumps(value, ensure_ascii=False))) == value


@given(st.lists(st.text(st.sampled_from(list("a\x1b[31m\u202e\n")), min_size=1), max_size=5))
def test_a_stream_is_as_safe_as_a_whole_text(pieces: list[str]) -> None:
    from datetime import UTC, datetime

    shown, typist = io.StringIO(), AnswerPrinter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", shown)
        for piece in pieces:
            typist.show(TextWritten(datetime.now(UTC), 1, "call", piece, piece))
    assert shown.getvalue() == escape_control_characters("".join(pieces))


Look = Callable[..., str]


@pytest.fixture(params=["pipe", "terminal"])
def look(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Look:
    """Run a command line, whose stdout and stderr are a pipe or a terminal; all that reaches it."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "5000")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> str:
        ours, theirs = pty.openpty() if request.param == "terminal" else os.pipe()
        if request.param == "terminal":
            tty.setraw(theirs)
        shown: list[bytes] = []
        reader = threading.Thread(target=_read_all, args=(ours, shown))
        reader.start()
        with (
            os.fdopen(theirs, "w", encoding="utf-8", newline="") as stdout_console,
            monkeypatch.context() as patch,
        ):
            for name in ("stdout", "stderr"):
                patch.setattr(sys, name, stdout_console)
            patch.setattr(sys, "stdin", io.StringIO())
            with pytest.raises(SystemExit):
                main([str(argument) for argument in arguments])
        reader.join()
        os.close(ours)
        text = b"".join(shown).decode()
        if request.param == "pipe":
            assert "\x1b" not in text
        return text

    return run


def _read_all(file: int, shown: list[bytes]) -> None:
    try:
        while piece := os.read(file, 4096):
            shown.append(piece)
    except OSError:  # the other end of a terminal was closed
        return


def check(text: str) -> None:
    """The foreign text is there, as text. A console leaves some control characters out, which is as well."""
    assert re.search(r"ev\\+(u00|x)1bil", text), text
    assert not [control for control in CONTROLS if f"ev{control}il" in text]


def streamed(text: str) -> Reply:
    """An answer in pieces of one character, so that every sequence is split."""
    events = [*({"content": char, "stop": False} for char in text), {**completion("").body, "stop": True}]
    return Reply(200, "".join(f"data: {json.dumps(event)}\n\n" for event in events))


def tool(body: str) -> str:
    return f"from gbnf_server.system.errors import ExecutorError\n{body}"


ANSWER = json.dumps({"name": "final_answer", "arguments": {"message": EVIL}})
PING = [completion(json.dumps({"name": "ping", "arguments": {}})), completion("done")]


@pytest.mark.parametrize(
    ("replies", "options", "body"),
    [
        ([completion(ANSWER)], [], ""),
        ([completion(ANSWER)], ["--json"], ""),
        ([completion(ANSWER)], ["--quiet"], ""),
        ([streamed(ANSWER)], ["--stream"], ""),
        ([streamed(ANSWER)], ["--stream", "--json"], ""),
        (PING, [], tool(f"return {{'entries': [{EVIL!r}]}}")),
        (PING, [], tool(f"return {{'found': {EVIL!r}}}")),
        (PING, [], tool(f"raise ExecutorError({EVIL!r})")),
        ([completion(f"{{{EVIL}")], [], ""),  # what is refused
        ([completion(f'{{"name": "ping", "arguments": {{"{EVIL}": 1}}}}')], [], ""),
        ([Reply(400, {"error": {"message": EVIL}})], [], ""),
    ],
)
def test_run_shows_what_a_model_a_tool_and_a_server_say(
    look: Look, tmp_path: Path, replies: list[Any], options: list[str], body: str
) -> None:
    make_tool(tmp_path / "tools", "ping", *([body] if body else []))
    with scripted(completion=list(replies)) as script:
        source = ("--server", script.url, "--manifests", "tools", "--call-format=text")
        check(look("run", "ping", *source, *options))


def test_batch_shows_an_id(look: Look, tmp_path: Path) -> None:
    make_tool(tmp_path / "tools", "ping")
    for identity in ("[link=file:///x]" + EVIL, "ev\x1bil"):
        (tmp_path / "asked.jsonl").write_text(json.dumps({"id": identity, "query": "ping"}) + "\n")
        with scripted(completion=[completion("done")]) as script:
            shown = look("batch", "asked.jsonl", "--server", script.url, "--manifests", "tools")
        assert not [control for control in CONTROLS if f"ev{control}il" in shown]


def _evil_manifest(folder: Path, **args: Any) -> None:
    make_tool(folder, "ping", args=args)
    path = folder / "ping" / "manifest.toml"
    path.write_text(path.read_text().replace("The tool ping.", _toml(EVIL)))


def _toml(text: str) -> str:
    return "".join(f"\\U{ord(char):08x}" if not char.isprintable() else char for char in text)


@pytest.mark.parametrize("options", [[], ["--json"], ["--findings"]], ids=["table", "json", "findings"])
def test_manifests_shows_descriptions_and_findings(look: Look, tmp_path: Path, options: list[str]) -> None:
    _evil_manifest(tmp_path / "tools", properties={"a": {"type": "string", "not": {"enum": ["ev\x1bil"]}}})
    check(look("manifests", "tools", *options))


@pytest.mark.parametrize("options", [[], ["--json"], ["--report"]], ids=["text", "json", "report"])
def test_compile_prints_a_grammar_and_what_it_leaves_open(
    look: Look, tmp_path: Path, options: list[str]
) -> None:
    evil = "".join(f"ev{control}il " for control in CONTROLS if control not in "\x7f\U000e0041")  # TOML's
    properties = {evil: {"enum": [evil]}, "b": {"not": {"enum": [evil]}, "format": evil}}
    make_tool(tmp_path / "tools", "ping", args={"properties": properties, "required": [evil]})
    check(look("compile", "tools", *options))


def test_check_shows_a_text(look: Look, tmp_path: Path) -> None:
    (tmp_path / "a.gbnf").write_text('root ::= "a\\n" "b"')
    check(look("check", "--no-engine", "a.gbnf", f"a\n{EVIL}"))
    check(look("check", "--no-engine", "a.gbnf", "a\nev\x1bil"))


def test_errors_show_a_name_or_a_line_of_a_file(look: Look, tmp_path: Path) -> None:
    check(look("check", f"{EVIL.replace(chr(0), '')}.gbnf", "a"))
    (tmp_path / "a.gbnf").write_text("root ::= \x1b[7777m")
    assert "\x1b[7777m" not in look("check", "a.gbnf", "a")
    (tmp_path / "manifest.toml").write_text(
        f'name = "{_toml(EVIL)}"\ndescription = "d"\n[args]\ntype = "object"\n'
    )
    check(look("manifests", "manifest.toml"))
    check(look("manifests", EVIL.replace("\0", "")))


@pytest.mark.parametrize(
    "arguments",
    [
        ["tune", "--strategy", EVIL],
        ["bench", "--suite", "ev\x1bil.toml"],
        ["run", "a", "--image", "ev\x1bil.png"],
    ],
    ids=["a rung", "a suite", "an image"],
)
def test_errors_show_what_was_given(look: Look, arguments: list[str]) -> None:
    check(look(*arguments))


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--markdown"]], ids=["tables", "markdown"])
def test_bench_shows_runs(look: Look, tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "a.toml").write_text('[[cases]]\nquery = "what time is it"\ncalls = [{ name = "get_now" }]\n')
    props = Reply(200, {**PROPS, "model_path": EVIL, "build_info": EVIL})
    with scripted(props=[props], completion=[completion(ANSWER)]) as script:
        source = ("--suite", "a.toml", "--server", script.url)
        shown = look("bench", *source, "--configuration", "text", "--label", "one", *options)
        shown += look("bench", "score", "gbnf-bench/one.json", *options)
    assert "converged" in shown
    assert not [control for control in CONTROLS if f"ev{control}il" in shown]
    check(look("bench", "--suite", "a.toml", "--server", EVIL))


def test_tune_shows_a_model(look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GBNF_PROFILES", str(tmp_path / "profiles"))
    make_tool(tmp_path / "tools", "ping")
    props = Reply(200, {**PROPS, "model_path": EVIL})
    with scripted(props=[props], completion=[completion("done")]) as script:
        shown = look("tune", "--server", script.url, "--manifests", "tools", "--strategy", "text")
        shown += look("run", "ping", "--server", script.url, "--manifests", "tools")
    check(shown)


def test_server_start_shows_a_log(look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "llama-server"
    program.write_text(f"#!{sys.executable}\nimport sys\nprint({EVIL!r}, file=sys.stderr)\nsys.exit(3)\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("GBNF_LLAMA_SERVER", str(program))
    check(look("server", "start", "--port", "0"))


@pytest.mark.slow
def test_an_unforeseen_error_is_shown_without_control_characters() -> None:
    program = (
        "import gbnf_server.cli.app as app\n"
        "from gbnf_server.cli import main\n"
        "def fail(**_): raise LookupError('a\\x1b[2Jb')\n"
        "app.app = fail\n"
        "main(['run'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "LookupError" in done.stderr
    assert "\x1b" not in done.stderr
