"""A credential goes to the calls that ask for it, and is nowhere else: not on disk, not in any text."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.tools import Tool
from gbnf_server.executors import Context, ScriptedPerson, Workspace, run_executor
from gbnf_server.executors.results import redact_result
from gbnf_server.executors.secrets import HANDLE_PREFIX, Secrets
from gbnf_server.planner import Event, Planner, PlannerOptions
from gbnf_server.planner.batch import Batch, BatchRequest, BatchResult
from gbnf_server.system.errors import ExecutorError
from support.by_hand import ANSWER, BY_NAME, call
from support.executors import world
from support.scripts import HANDLE, Copying
from support.toys import make_tool

PASSWORD = 'pass word/+"\\&<é>'
SPELLINGS = [
    PASSWORD,
    json.dumps(PASSWORD)[1:-1],
    repr(PASSWORD)[1:-1],
    "pass%20word",
    "pass+word",
    "pass word",
]
FORM = call(
    "get_inputs",
    title="Log in",
    dialog=[
        {"var": "user", "prompt": "User?", "schema": {"kind": "text"}},
        {"var": "password", "prompt": "Password?", "schema": {"kind": "credentials"}},
    ],
)
WORD = {"properties": {"word": {"type": "string"}}, "required": ["word"]}
ASKS = """
from gbnf_server.executors import ExecutorError, Field, Form
password = context.ask(Form("F", (Field("password", "Password?", "credentials"),)))["password"]
"""


INTO_EVERY_PIPE = """
for descriptor in range(3, 50):
    try:
        os.write(descriptor, password.encode() + b"\\n")
    except OSError:
        pass
time.sleep(60)
"""


def leaking(folder: Path) -> tuple[Tool, ...]:
    """Tools that get the credential, each in a legitimate way, and then tell everybody."""
    bodies = {
        "returns": 'return {password: [password, {"a": "x" + password}], "entries": [password]}',
        "raises": 'raise ExecutorError("a" * 1990 + password)',
        "fails": "raise ValueError(repr(password))",
        "prints": 'print("b" * 290 + password, flush=True)\nos._exit(1)',
        "times_out": "print(password, flush=True)\ntime.sleep(60)",
        "garbles": INTO_EVERY_PIPE,
    }
    return tuple(
        make_tool(folder, name, ASKS + body, timeout_s=0.5 if name == "times_out" else 30)
        for name, body in bodies.items()
    )


def honest(folder: Path) -> Tool:
    return make_tool(
        folder,
        "log_in",
        """
        import hashlib
        password = context.secret(arguments["word"])
        open("stored.txt", "w").write(password)
        return {"hash": hashlib.sha256(password.encode()).hexdigest()}
        """,
        args=WORD,
    )


def writes(path: str, content: str) -> str:
    return call("write_files", files=[{"path": path, "content": content}])


ATTACK = (
    FORM,
    writes("guessed.txt", "secret:password"),
    writes("copied.txt", HANDLE),
    call("log_in", word=HANDLE),
    call("log_in", word="secret:password"),
    call("log_in", word=f"x{HANDLE}"),
    call("returns"),
    call("raises"),
    call("fails"),
    call("prints"),
    call("times_out"),
    call("garbles"),
    call("read_files", paths=["stored.txt"]),
    ANSWER,
)


def attacked(folder: Path) -> tuple[Planner, Copying, list[Event]]:
    script, events = Copying({"go": ATTACK}), list[Event]()
    tools = (
        *leaking(folder),
        honest(folder),
        *(BY_NAME[name] for name in ("get_inputs", "write_files", "read_files")),
    )
    person = ScriptedPerson({"user": "anna", "password": PASSWORD})
    context = Context(Workspace(folder / "space"), person=person)
    planner = Planner(
        tools,
        script,
        PlannerOptions(max_steps=len(ATTACK), call_format="json"),
        context=context,
        hooks=[events.append],
    )
    return planner, script, events


def leaks(*texts: str) -> list[str]:
    return [spelling for spelling in SPELLINGS for text in texts if spelling in text]


def check_steps(steps: list[dict[str, Any]], folder: Path) -> None:
    by_text = dict(zip(ATTACK, steps, strict=True))
    form = steps[0]["result"]["values"]
    assert form["user"] == "anna"
    handle = form["password"]
    assert handle.startswith(HANDLE_PREFIX)
    assert handle != "secret:password"
    space = folder / "space"
    assert (space / "guessed.txt").read_text() == "secret:password"
    assert (space / "copied.txt").read_text() == handle
    assert by_text[ATTACK[3]]["result"] == {"hash": hashlib.sha256(PASSWORD.encode()).hexdigest()}
    assert "is not the handle of a credential" in by_text[ATTACK[4]]["error"]
    assert "is not the handle of a credential" in by_text[ATTACK[5]]["error"]
    assert by_text[call("returns")]["result"] == {handle: [handle, {"a": "x" + handle}], "entries": [handle]}
    for name in ("raises", "fails", "prints", "times_out", "garbles"):
        assert by_text[call(name)]["fault"] in {"error", "timeout"}, name
    assert handle in json.dumps(by_text[ATTACK[12]]["result"])
    stored = {path for path in space.rglob("*") if path.is_file() and leaks(path.read_text(errors="replace"))}
    assert stored == {space / "stored.txt"}  # which its own code wrote


@pytest.mark.slow
def test_an_attack_leaves_no_credential_in_files_events_and_logs(tmp_path: Path) -> None:
    planner, script, events = attacked(tmp_path)

    async def collected(batch: Batch) -> list[BatchResult]:
        return [result async for result in batch.results()]

    with Batch([BatchRequest("r", "go")], planner, tmp_path / "log") as batch:
        [result] = asyncio.run(collected(batch))
    assert result.run is not None
    assert result.run["outcome"] == "answered"
    check_steps(result.run["steps"], tmp_path)
    tape = (tmp_path / "log").read_text()
    assert "Password?" in tape  # what was asked, so that it can be asked again
    assert events
    told = [json.dumps(event.to_json(), ensure_ascii=False) for event in events]
    shown = json.dumps(result.to_json(), ensure_ascii=False)
    assert not leaks(tape, shown, *told, *script.read, repr(planner.context))


@pytest.mark.slow
def test_the_notes_and_the_output_for_the_author_hold_no_credential(tmp_path: Path) -> None:
    printed: list[str] = []
    for tool in leaking(tmp_path):
        if tool.name == "returns":
            continue
        context = world(tmp_path / "space", person=ScriptedPerson({"password": PASSWORD}))
        with pytest.raises(ExecutorError) as caught:
            run_executor(tool, {}, replace(context, on_output=printed.append))
        assert not leaks(str(caught.value), *getattr(caught.value, "__notes__", ()))
    assert printed
    assert not leaks(*printed)


def test_a_handle_is_of_one_run(tmp_path: Path) -> None:
    context = world(tmp_path / "space")
    handle = context.secrets.keep("hunter2", "Password?")
    assert context.secret(handle) == "hunter2"
    with pytest.raises(ExecutorError, match="is not the handle of a credential of this run"):
        context.for_turn().secret(handle)
    assert handle != context.for_turn().secrets.keep("hunter2", "Password?")


PIECES = 'ab"\\ \n%/é'
values = st.text(min_size=4) | st.text(PIECES, min_size=4, max_size=6)
texts = st.text() | st.text(PIECES)


@given(value=values, before=texts, after=texts)
def test_no_text_around_it_hides_a_credential(value: str, before: str, after: str) -> None:
    secrets = Secrets()
    handle = secrets.keep(value, "?")
    for spelled in (value, json.dumps(value)[1:-1], repr(value)[1:-1]):
        assert not any(value in part for part in secrets.redact(before + spelled + after).split(handle))


@given(value=values, other=texts)
def test_a_text_without_a_credential_is_unchanged(value: str, other: str) -> None:
    secrets = Secrets()
    assert secrets.redact(other) == other
    secrets.keep(value, "?")
    if not any(spelling in other for spelling in secrets._handles):
        assert secrets.redact(other) == other


@pytest.mark.parametrize(
    ("value", "result", "expected"),
    [
        ("1", {"n": 1, "m": 12}, {"n": "H", "m": 12}),
        ("1", {"t": "1", "u": "11", "v": "is 1."}, {"t": "H", "u": "11", "v": "is H."}),
        ("a", {"entries": ["a", "banana"]}, {"entries": ["H", "banana"]}),
        ("123456", {"n": 123456, "t": "x123456x", "b": True}, {"n": "H", "t": "xHx", "b": True}),
        ("true", {"b": True, "t": "true"}, {"b": True, "t": "H"}),
    ],
)  # fmt: skip
def test_short_ones_and_numbers(value: str, result: dict[str, Any], expected: dict[str, Any]) -> None:
    secrets = Secrets()
    handle = secrets.keep(value, "?")
    assert redact_result(result, secrets) == json.loads(json.dumps(expected).replace("H", handle))
