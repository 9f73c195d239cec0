"""Answers fit their field, whoever gives them, and what a model wrote cannot redraw the screen."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rich.console import Console

from gbnf_server.executors import AbsentPerson, Field, Form, ScriptedPerson, TerminalPerson, Workspace
from gbnf_server.executors.person import FIELD_KINDS, FieldKind, check_answer, replace_control_characters
from gbnf_server.system.errors import ExecutorError

OPTIONS = ("Red", "green", "blue, dark")


def field(kind: FieldKind, var: str = "x") -> Field:
    return Field(var, "Which?", kind, OPTIONS if "choice" in kind else ())


@given(st.lists(st.text(min_size=1), min_size=1, max_size=8, unique=True), st.data())
def test_an_option_is_chosen_by_its_text(options: list[str], data: st.DataObject) -> None:
    chosen = data.draw(st.sampled_from(options))
    assert check_answer(Field("x", "?", "choice", tuple(options)), chosen) == chosen
    assert check_answer(Field("x", "?", "multi_choice", tuple(options)), [chosen]) == [chosen]


@given(st.lists(st.text("abc", min_size=1), min_size=1, max_size=30, unique=True), st.data())
def test_an_option_is_chosen_by_its_number(options: list[str], data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(1, len(options)), unique=True))
    chosen = [options[number - 1] for number in numbers]
    choice, several = (Field("x", "?", kind, tuple(options)) for kind in ("choice", "multi_choice"))
    assert [check_answer(choice, f" {number} ") for number in numbers] == chosen
    assert check_answer(several, ", ".join(map(str, numbers))) == chosen


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_read_as_it_is_written(number: float) -> None:
    assume(len(str(number)) < 300)
    assert check_answer(field("number"), str(number)) == number
    assert check_answer(field("number"), number) == number


@given(st.dates())
def test_a_date_is_read_as_it_is_written(date: Any) -> None:
    assert check_answer(field("date"), date.isoformat()) == date.isoformat()


@given(
    st.sampled_from(FIELD_KINDS), st.text() | st.integers() | st.none() | st.booleans() | st.lists(st.text())
)
def test_an_answer_fits_or_is_refused_and_is_then_accepted_again(kind: FieldKind, given_: Any) -> None:
    try:
        value = check_answer(field(kind), given_)
    except ValueError:
        return
    assert check_answer(field(kind), value) == value


@pytest.mark.parametrize(
    ("kind", "given_", "value"),
    [
        ("text", "  a b ", "a b"),
        ("credentials", " p w ", " p w "),
        ("yes_no", "Y", True),
        ("yes_no", False, False),
        ("choice", "RED", "Red"),
        ("choice_with_preview", "3", "blue, dark"),
        ("multi_choice", "1,1, 2", ["Red", "green"]),
        ("multi_choice", "", []),
        ("number", "3,5", 3.5),
        ("number", "1e3", 1000.0),
        ("location", "Via Roma 1, Torino", "Via Roma 1, Torino"),
    ],
)
def test_accepted(kind: FieldKind, given_: Any, value: Any) -> None:
    accepted = check_answer(field(kind), given_)
    assert accepted == value
    assert type(accepted) is type(value)


@pytest.mark.parametrize(
    ("kind", "given_"),
    [
        ("text", " "),
        ("yes_no", "maybe"),
        ("choice", "0"),
        ("choice", "²"),
        ("choice", ""),
        ("multi_choice", "1,9"),
        ("number", "1,234"),
        ("number", "nan"),
        ("number", "1e999"),
        ("number", "١"),
        ("number", True),
        ("date", "2027-02-29"),
        ("date", "20270228"),
    ],
)
def test_refused(kind: FieldKind, given_: Any) -> None:
    with pytest.raises(ValueError, match="answer"):
        check_answer(field(kind), given_)


def test_a_file_path_stays_in_the_workspace(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    assert check_answer(field("file_path"), "./a/b.txt", workspace) == "a/b.txt"
    with pytest.raises(ValueError, match="not allowed"):
        check_answer(field("file_path"), "../b", workspace)


@pytest.mark.parametrize("kind", ["choice", "choice_with_preview", "multi_choice"])
def test_a_choice_needs_options(kind: FieldKind) -> None:
    with pytest.raises(ExecutorError, match="has no options"):
        Field("x", "?", kind)


def test_a_kind_that_is_none() -> None:
    with pytest.raises(ExecutorError, match="'colour' is not a kind of field; use text"):
        Field("x", "?", "colour")  # type: ignore[arg-type]  # what a foreign manifest may ask for


@given(st.text())
def test_nothing_printable_moves_the_cursor(text: str) -> None:
    shown = replace_control_characters(text)
    assert len(shown) == len(text)
    assert not set(shown) & {"\x1b", "\r", "\x08", "\x9b", "\u202e", "\u2066"}


# ── a scripted person, and nobody ───────────────────────────────────────────────────────────────────────────


def test_answers_given_beforehand_are_checked() -> None:
    person = ScriptedPerson({"x": "2", "y": "maybe"})
    assert person.answer(Form("F", (field("choice"),))) == {"x": "green"}
    with pytest.raises(ExecutorError, match="scripted answer for 'y': 'maybe'"):
        person.answer(Form("F", (field("yes_no", "y"),)))
    with pytest.raises(ExecutorError, match="there is no scripted answer for 'z'"):
        person.answer(Form("F", (field("text", "z"),)))


def test_approvals_given_beforehand() -> None:
    assert ScriptedPerson().approve({"name": "a"})
    assert not ScriptedPerson(approvals=False).approve({"name": "a"})
    only_a = ScriptedPerson(approvals=lambda call: bool(call["name"] == "a"))
    assert [only_a.approve({"name": name}) for name in "ab"] == [True, False]


def test_without_a_person_only_prior_approval_counts() -> None:
    with pytest.raises(ExecutorError, match="the call requires approval"):
        AbsentPerson().approve({"name": "delete_files"})
    assert AbsentPerson(approve_all=True).approve({"name": "delete_files"})


# ── a terminal ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], io.StringIO]:
    """What is typed at the standard input; gives what the terminal shows."""

    def typed(text: str) -> io.StringIO:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        return io.StringIO()

    return typed


def test_the_terminal_asks_until_the_answer_fits(
    tmp_path: Path, typing: Callable[[str], io.StringIO]
) -> None:
    screen = typing("9\nred\nmaybe\ny\n2,1\ntoday\n2026-12-24\n../x\nnotes.txt\n")
    person = TerminalPerson(console=Console(file=screen, width=100), workspace=Workspace(tmp_path))
    kinds: tuple[FieldKind, ...] = ("choice", "yes_no", "multi_choice", "date", "file_path")
    fields = tuple(Field(kind, f"[red]{kind}?", kind, OPTIONS if "choice" in kind else ()) for kind in kinds)
    assert person.answer(Form("[bold]A form", fields)) == {
        "choice": "Red",
        "yes_no": True,
        "multi_choice": ["green", "Red"],
        "date": "2026-12-24",
        "file_path": "notes.txt",
    }
    shown = screen.getvalue()
    assert "[bold]A form" in shown
    assert "[red]choice? [1-3]:" in shown
    assert "'maybe': answer yes or no" in shown


def test_a_preview_shows_the_beginning_of_a_file(
    tmp_path: Path, typing: Callable[[str], io.StringIO]
) -> None:
    workspace = Workspace(tmp_path)
    (tmp_path / "a.txt").write_text("\n".join(f"line {number}" for number in range(20)))
    screen = typing("1\n")
    person = TerminalPerson(console=Console(file=screen), workspace=workspace)
    options = ("a.txt", "missing.txt", "../out")
    assert person.answer(Form("F", (Field("x", "?", "choice_with_preview", options),))) == {"x": "a.txt"}
    assert "line 4" in screen.getvalue()
    assert "line 5" not in screen.getvalue()


@pytest.mark.parametrize(
    ("typed", "approved"), [("y\n", True), ("\n", False), ("n\n", False), ("what\nyes\n", True)]
)
def test_approval_is_asked_with_the_whole_call(
    typing: Callable[[str], io.StringIO], typed: str, approved: bool
) -> None:
    screen = typing(typed)
    person = TerminalPerson(console=Console(file=screen))
    assert person.approve({"name": "delete_files", "arguments": {"paths": ["a\x1b[2K.txt"]}}) is approved
    assert "delete_files" in screen.getvalue()
    assert "\x1b" not in screen.getvalue()


def test_approval_of_everything_asks_nothing() -> None:
    screen = io.StringIO()
    assert TerminalPerson(console=Console(file=screen), approve_all=True).approve({"name": "delete_files"})
    assert screen.getvalue() == ""


def test_a_closed_input_is_an_error(typing: Callable[[str], io.StringIO]) -> None:
    person = TerminalPerson(console=Console(file=typing("")))
    with pytest.raises(ExecutorError, match="closed the input"):
        person.answer(Form("F", (field("text"),)))


@pytest.mark.slow
def test_a_credential_is_not_echoed() -> None:
    code = (
        "from gbnf_server.executors import *; import sys;"
        "form = Form('Login', (Field('user', 'User', 'text'), Field('key', 'Key', 'credentials')));"
        "answers = TerminalPerson().answer(form);"
        "sys.exit(0 if answers == {'user': 'anna', 'key': 'hunter2'} else 1)"
    )
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
    )
    os.close(terminal)
    screen = b""
    for prompt, answer in ((b"User", b"anna\n"), (b"Key", b"hunter2\n")):
        while prompt not in screen:
            screen += os.read(controller, 1000)
        while not screen.rstrip().endswith(b":"):
            screen += os.read(controller, 1000)
        while prompt == b"Key" and termios.tcgetattr(controller)[3] & termios.ECHO:
            time.sleep(0.01)  # what is typed before the echo is off is thrown away
        os.write(controller, answer)
    try:
        while chunk := os.read(controller, 1000):
            screen += chunk
    except OSError:  # Linux: the other end is closed
        pass
    os.close(controller)
    assert process.wait() == 0
    assert b"anna" in screen
    assert b"hunter2" not in screen
