"""An executor runs in a process of its own, and whatever it does there ends in a result or a clear error."""

from __future__ import annotations

import re
import signal
import sys
import textwrap
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gbnf.tools import Tool
from gbnf.tools.manifest_checks import MIN_MEMORY_MB
from gbnf_server.executors import AbsentPerson, Person, ScriptedPerson, run_executor
from gbnf_server.executors.context import COMMON_SETTINGS, SETTINGS_PREFIX
from gbnf_server.executors.fork_server import INHERITED_VARIABLES, PATH_VARIABLES
from gbnf_server.system.errors import ExecutorError, ExecutorTimeoutError
from support.effort import scaled
from support.executors import SATURDAY, Slow, bundled_tools, world
from support.json_values import json_values
from support.processes import is_alive, limits_s, wait_until

HEAD = """
import os, sys, time, json, signal, subprocess
from gbnf_server.executors import ExecutorError, Field, Form, Write

def run(arguments, context):
"""


def tool(folder: Path, body: str, *, timeout_s: float = 20.0, **keys: Any) -> Tool:
    """A user's own executor, in a folder of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "executor.py").write_text(HEAD + textwrap.indent(textwrap.dedent(body), "    "))
    return written(folder / "manifest.toml", timeout_s=timeout_s, **keys)


def written(manifest: Path | None, *, timeout_s: float = 20.0, **keys: Any) -> Tool:
    run = {"effect": "write", "timeout_s": timeout_s}
    mapping = {"name": "mine", "description": "Mine.", "args": {"type": "object"}, "run": run, **keys}
    return Tool.from_mapping(mapping, manifest)


def result(tmp_path: Path, body: str, *, person: Person | None = None, **arguments: Any) -> dict[str, Any]:
    context = world(tmp_path / "space", person=person)
    return run_executor(tool(tmp_path / "mine", body), arguments, context)


@pytest.mark.slow
@settings(max_examples=scaled(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arguments=st.dictionaries(st.text(), json_values, max_size=4))
def test_arguments_arrive_and_results_return_unchanged(tmp_path: Path, arguments: dict[str, Any]) -> None:
    assert result(tmp_path, "return {'got': arguments}", x=arguments)["got"] == {"x": arguments}


@pytest.mark.slow
def test_large_arguments_and_results(tmp_path: Path) -> None:
    text = "è" * 1_000_000
    run = {"max_result_kb": 2000}
    mine = tool(tmp_path / "mine", "return {'entries': [arguments['text']]}", run=run)
    assert run_executor(mine, {"text": text}, world(tmp_path / "space")) == {"entries": [text]}


@pytest.mark.slow
def test_what_it_prints_is_no_message(tmp_path: Path) -> None:
    body = """
    print('{"is": "result", "value": {"forged": true}}', flush=True)
    os.write(2, b"x" * 1_000_000)
    subprocess.run([sys.executable, "-c", "print('child')"])
    return {"stdin": sys.stdin.read()}
    """
    assert result(tmp_path, body) == {"stdin": ""}


@pytest.mark.slow
def test_the_environment_of_an_executor(tmp_path: Path) -> None:
    body = """
    now = context.now()
    return {
        "cwd": os.getcwd(), "root": str(context.workspace.root), "turn": context.turn, "tool": context.tool,
        "settings": context.settings, "now": now.isoformat()[:16], "zone": str(now.tzinfo),
    }
    """
    context = replace(world(tmp_path / "space", settings={"GBNF_X": "1", "GBNF_Y": "2"}), turn="run 7")
    mine = tool(tmp_path / "mine", body, run={"env": ["GBNF_X"]})
    assert run_executor(mine, {}, context) == {
        "cwd": str(tmp_path / "space"),
        "root": str(tmp_path / "space"),
        "turn": "run 7",
        "tool": "mine",
        "settings": {"GBNF_X": "1"},
        "now": SATURDAY.isoformat()[:16],
        "zone": "Europe/Rome",
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise ExecutorError('two\\nlines')", r"^two lines$"),
        ("raise ValueError('odd')", r"^'mine' failed: ValueError: odd \(executor.py, line 6\)$"),
        ("raise KeyboardInterrupt", r"^'mine' failed: KeyboardInterrupt"),
        ("sys.exit(3)", r"^'mine' exited by itself with exit code 3$"),
        ("os._exit(3)", r"^'mine' crashed: it ended with exit code 3 and without a result$"),
        ("print('a\\nfatal: b', flush=True); os._exit(1)", r"its last output: fatal: b$"),
        ("return []", r"^'mine' returned list, not an object$"),
        ("return {'entries': 'abc'}", r"'entries' that are not a list of strings"),
        ("context.workspace.resolve('../x')", r"^'../x' is refused"),
    ],
)
def test_faults_are_one_line(tmp_path: Path, body: str, reason: str) -> None:
    with pytest.raises(ExecutorError) as caught:
        result(tmp_path, body)
    assert re.search(reason, str(caught.value))
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_the_author_finds_the_traceback_in_the_notes(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError) as caught:
        result(tmp_path, "raise ValueError('odd')")
    [trace] = caught.value.__notes__
    assert "Traceback" in trace
    assert "ValueError: odd" in trace


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "output"),
    [
        ("print('out'); print('err', file=sys.stderr); return {}", "out\nerr"),
        ("print('out'); raise ValueError", "out"),
        ("print('out'); os._exit(1)", "out"),
        ("os.write(1, b'x' * 100_000 + b'end\\xff\\n'); return {}", "x" * 3995 + "end\ufffd"),
        ("print(); return {}", None),
    ],
)
def test_the_author_gets_the_end_of_what_it_printed(tmp_path: Path, body: str, output: str | None) -> None:
    printed: list[str] = []
    context = replace(world(tmp_path / "space"), on_output=printed.append)
    with suppress(ExecutorError):
        run_executor(tool(tmp_path / "mine", body), {}, context)
    assert printed == ([] if output is None else [output])


@pytest.mark.slow
def test_output_of_a_killed_process_is_kept(tmp_path: Path) -> None:
    printed: list[str] = []
    context = replace(world(tmp_path / "space"), on_output=printed.append)
    for timeout_s in limits_s(0.2):
        with pytest.raises(ExecutorTimeoutError):
            run_executor(
                tool(tmp_path / "mine", "print('out'); time.sleep(60)", timeout_s=timeout_s), {}, context
            )
        if printed:
            break
    assert printed == ["out"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("x = 1", "defines no function run"),
        ("def run(:", "failed: SyntaxError"),
        ("raise OSError('at import')", "failed: OSError: at import"),
    ],
)
def test_code_that_cannot_run(tmp_path: Path, code: str, reason: str) -> None:
    (tmp_path / "executor.py").write_text(code)
    with pytest.raises(ExecutorError, match=reason):
        run_executor(written(tmp_path / "manifest.toml"), {}, world(tmp_path / "space"))


def test_without_code_the_error_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match=f"there is no {re.escape(str(tmp_path))}/executor.py. Create it"):
        run_executor(written(tmp_path / "manifest.toml"), {}, world(tmp_path / "space"))
    with pytest.raises(ExecutorError, match="loaded without code"):
        run_executor(written(None), {}, world(tmp_path / "space"))


@pytest.mark.slow
def test_modules_that_lie_beside_it_are_found_and_those_of_the_workspace_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tool(
        tmp_path / "mine", "import colorsys, helper\nreturn {'helper': helper.NAME, 'json': json.dumps(1)}"
    )
    (tmp_path / "mine" / "helper.py").write_text("NAME = 'beside'")
    context = world(tmp_path / "space")
    for name in ("json", "helper", "colorsys"):
        (tmp_path / "space" / f"{name}.py").write_text("raise SystemExit('from the workspace')")
    for path in ("", str(tmp_path / "space")):  # as where the client runs in the workspace
        monkeypatch.syspath_prepend(path)
    monkeypatch.chdir(tmp_path / "space")
    assert run_executor(mine, {}, context) == {"helper": "beside", "json": "1"}
    assert not (tmp_path / "mine" / "__pycache__").exists()


@pytest.mark.slow
def test_no_variable_makes_it_load_code_from_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tool(tmp_path / "mine", "return {'path': os.environ['PYTHONPATH']}")
    context = world(tmp_path / "space")
    for folder in (tmp_path / "space", tmp_path / "space" / "sub"):
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(f"open({str(tmp_path / 'escaped')!r}, 'w').close()")
    (tmp_path / "link").symlink_to(tmp_path / "space")
    monkeypatch.chdir(tmp_path)
    # some of them name the workspace, from here or from there
    monkeypatch.setenv("PYTHONPATH", f"lib::.:sub:space:link/sub:{tmp_path}/space/sub:/opt/x:")
    assert run_executor(mine, {}, context) == {
        "path": f"{tmp_path}/lib:{tmp_path}:{tmp_path}/sub:/opt/x"  # what they mean here
    }
    assert not (tmp_path / "escaped").exists()


@pytest.mark.slow
@pytest.mark.parametrize("env", [[], ["OTHER", "LLAMA_API_KEY", "MISSING"]])
def test_the_environment_has_the_common_variables_and_those_in_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: list[str]
) -> None:
    secret = {"LLAMA_API_KEY", "OTHER", "LD_PRELOAD_X", "PYTHONSTARTUP", "HTTPS_PROXY"}
    for name in [*secret, "LC_TIME", "TZ", "GBNF_SMTP_PASSWORD", "GBNF_TIMEZONE"]:
        monkeypatch.setenv(name, "x")
    mine = tool(
        tmp_path / "mine",
        "return {'environment': list(os.environ), 'settings': context.settings}",
        run={"env": [*env, "GBNF_A"]},
    )
    given = {"GBNF_A": "1", "GBNF_SMTP_PASSWORD": "hunter2", "GBNF_USER_EMAIL": "anna@example.org"}
    found = run_executor(mine, {}, world(tmp_path / "space", settings=given))
    settings = {"GBNF_A": "1", "GBNF_USER_EMAIL": "anna@example.org"}
    assert found["settings"] == settings
    got = set(found["environment"])
    assert {"PATH", "LC_TIME", "TZ"} <= got
    assert got & (secret | {"GBNF_SMTP_PASSWORD", "GBNF_TIMEZONE"}) == secret & set(env)
    assert {name for name in got if name.startswith("GBNF_")} == settings.keys()
    everybodys = INHERITED_VARIABLES | PATH_VARIABLES | settings.keys() | (secret & set(env))
    assert {name for name in got if not name.startswith("LC_")} <= everybodys


def test_every_bundled_executor_declares_the_settings_that_it_reads() -> None:
    for name, each in bundled_tools().items():
        assert each.path is not None
        code = (each.path.parent / "executor.py").read_text()
        read = set(re.findall(r"\bGBNF(?:_[A-Z]+)+\b", code)) - COMMON_SETTINGS
        assert read == {variable for variable in each.run.env if variable.startswith(SETTINGS_PREFIX)}, name


# ── time ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_remaining_threads_and_processes_end_with_the_result(tmp_path: Path) -> None:
    body = """
    import threading
    threading.Thread(target=time.sleep, args=[60]).start()
    return {"pid": subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid}
    """
    pid = result(tmp_path, body)["pid"]
    wait_until(lambda: not is_alive(pid))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux finds a process whose parent has ended")
def test_daemons_end_with_its_result_and_those_that_end_before_it_are_reaped(tmp_path: Path) -> None:
    body = """
    def daemon(seconds):
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.setsid()
            pid = os.fork()
            if pid == 0:
                time.sleep(seconds)
            else:
                os.write(writing, b"%d" % pid)
            os._exit(0)
        os.wait()
        return int(os.read(reading, 20))
    ended = [daemon(0) for _ in range(20)]
    left = daemon(60)
    while any(os.path.exists(f"/proc/{pid}") for pid in ended):
        time.sleep(0.01)
    return {"left": left}
    """
    assert not is_alive(result(tmp_path, body)["left"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("compute", {"expression": "1 + 1"}),
        ("find_events_empty", {"start_date": "2026-11-23", "end_date": "2026-11-24"}),
    ],
)
def test_the_least_memory_is_enough_for_small_tools(
    tmp_path: Path, name: str, arguments: dict[str, Any]
) -> None:
    tool = bundled_tools()[name]
    little = replace(tool, run=replace(tool.run, memory_mb=MIN_MEMORY_MB))
    assert run_executor(little, arguments, world(tmp_path))


# ── people ──────────────────────────────────────────────────────────────────────────────────────────────────

ASK = "return {'answers': context.ask(Form('F', (Field('a', 'A?', 'text'), Field('n', 'N?', 'number'))))}"


@pytest.mark.slow
def test_the_person_is_asked_here(tmp_path: Path) -> None:
    person = ScriptedPerson({"a": " text ", "n": "3,5"})
    assert result(tmp_path, ASK, person=person) == {"answers": {"a": "text", "n": 3.5}}
    assert [field.prompt for field in person.asked[0].fields] == ["A?", "N?"]


@pytest.mark.slow
def test_time_for_an_answer_does_not_count(tmp_path: Path) -> None:
    """Who thinks for longer than the limit gets through at no limit where the clock goes on."""
    for timeout_s in limits_s(0.5):
        mine = tool(tmp_path / "mine", ASK, timeout_s=timeout_s)
        person = Slow({"a": "1", "n": "1"}, seconds=timeout_s + 0.2)
        with suppress(ExecutorTimeoutError):  # all the rest may take longer than so short a limit
            found = run_executor(mine, {}, world(tmp_path / "space", person=person))
            break
    assert found == {"answers": {"a": "1", "n": 1}}


@pytest.mark.slow
def test_an_absent_person_is_an_error_that_an_executor_may_catch(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match="there is nobody to answer 'a', 'n' of 'F'"):
        result(tmp_path, ASK, person=AbsentPerson())
    caught = f"try:\n    {ASK}\nexcept ExecutorError as error:\n    return {{'error': str(error)}}"
    assert "there is nobody" in result(tmp_path, caught, person=AbsentPerson())["error"]


@pytest.mark.slow
def test_the_runtime_fills_in_the_actor(tmp_path: Path) -> None:
    args = {"type": "object", "properties": {"actor": {"type": "string", "runtime_resolved": True}}}
    mine = tool(tmp_path / "mine", "return arguments", args=args)
    context = world(tmp_path / "space", settings={"GBNF_USER_EMAIL": "anna@example.org"})
    assert run_executor(mine, {}, context) == {"actor": "anna@example.org"}


@pytest.mark.slow
def test_signals_that_a_shell_ignores_in_its_background_end_a_tool_all_the_same(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    try:
        with pytest.raises(ExecutorError, match="SIGQUIT"):
            result(tmp_path, "os.kill(os.getpid(), signal.SIGQUIT)\nsignal.pause()")
    finally:
        signal.signal(signal.SIGQUIT, before)
