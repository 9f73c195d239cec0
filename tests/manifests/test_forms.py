"""No bundled executor refuses the form of arguments that its own schema allows."""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf import compile_pool, validate_call
from gbnf.tools import Tool, load_manifests
from gbnf_server.executors import Form
from gbnf_server.system.errors import ExecutorError
from gbnf_server.system.folders import manifests_path
from support.effort import scaled
from support.executors import bundled_tools, run_of, world
from support.random_texts import generate

#: Refusals that no keyword of JSON Schema can express, as patterns: what depends on the workspace, on the
#: machine, on the present, on other values, or on bytes; and what no regular language can say.
STATE = "does not exist|is a folder|is not a folder|no folder|File name too long|the path has .* bytes"
REASONS = {
    # parentheses, operators and what they result in
    "compute": "no arithmetic|no value|by zero|too large|two ways|comma for|with one dot|something is missing"
    "|real numbers|give an integer|one is needed here|too many digits|write it with at most",
    "create_dirs": f"{STATE}|is a file",
    "create_events": r"ends before it starts|'[12]\d{3}-\d\d-(29|30|31)[^']*' is no start",  # no such day
    "delete_files": STATE,
    "describe_frame": STATE,
    "find_events_empty": "before they start|is past|is too long|do not fit into",
    "find_files": f"{STATE}|too many alternatives",
    "find_files_google_workspace": "is not connected",
    "get_inputs": "is there twice",
    "get_now": "is no IANA time zone",  # which there are depends on the machine
    "read_files": STATE,
    "undo_last_turn": "nothing to undo",
    "write_files": f"{STATE}|is listed twice",
}
TOOLS = bundled_tools() | {
    tool.name: tool for tool in load_manifests(manifests_path() / "describe_frame" / "on_request.toml")
}


class Willing:
    """A person who answers whatever is asked."""

    def answer(self, form: Form) -> dict[str, Any]:
        plain = {"yes_no": True, "number": 1, "date": "2026-01-01"}
        answers: dict[str, Any] = {}
        for field in form.fields:
            one = field.options[0] if "choice" in field.kind else plain.get(field.kind, "a")
            answers[field.var] = [one] if field.kind == "multi_choice" else one
        return answers

    def approve(self, call: Any) -> bool:
        raise AssertionError(call)


def refusal(tool: Tool, arguments: dict[str, Any]) -> str:
    """Why the executor refuses arguments in an empty workspace; "" if it does not."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            run_of(tool.name)(arguments, world(Path(folder), person=Willing()))
        except ExecutorError as error:
            return str(error)
    return ""


def is_form(name: str, refused: str) -> bool:
    return bool(refused) and not re.search(REASONS.get(name, r"\Z."), refused)


@pytest.mark.parametrize("name", sorted(TOOLS))
@settings(max_examples=scaled(20))
@given(seed=st.integers(0, 2**32))
def test_what_the_schema_allows_has_the_right_form(name: str, seed: int) -> None:
    tool = TOOLS[name]
    call = json.loads(generate(compile_pool([tool]).rules, random.Random(seed)))
    assert validate_call(call, [tool]).ok
    refused = refusal(tool, call["arguments"])
    assert not is_form(name, refused), (refused, call)


#: How the one argument that is tested is given to each executor.
GIVEN: dict[str, Callable[[Any], dict[str, Any]]] = {
    "compute": lambda text: {"expression": text},
    "create_dirs": lambda path: {"paths": [path]},
    "create_events": lambda start: {"title": "a\0b", "location": "c\nd", "starts": [start]},
    "delete_files": lambda path: {"paths": [path]},
    "describe_frame": lambda path: {"path": path},
    "find_events_empty": lambda minutes: {"period": "today", "duration_minutes": minutes},
    "find_files": lambda pattern: {"base_path": ".", "patterns": [pattern]},
    "get_inputs": lambda schema: {"title": "", "dialog": [{"var": "a", "prompt": "", "schema": schema}]},
    "get_now": lambda zone: {"timezone": zone},
    "read_files": lambda path: {"paths": [path]},
    "send_messages": lambda to: {"to": [to], "subject": "a\nb", "body": "c\0"},
    "write_files": lambda path: {"files": [{"path": path, "content": "\0"}]},
}
NO_PATHS = ["", " ", "/etc", "~/x", "~", "..", "a/../b", ".gbnf", "a/.GBNF/x", "a\0", "/"]
WRONG: dict[str, list[Any]] = {
    "create_dirs": NO_PATHS,
    "delete_files": [*NO_PATHS, ".", "././/"],
    "describe_frame": [*NO_PATHS, ".", "././/"],
    "read_files": [*NO_PATHS, ".", "././/"],
    "write_files": [*NO_PATHS, ".", "././/"],
    "compute": ["", "x + 1", "import os", "width * 2", "2 * √x", "sqrt"],
    "create_events": ["today", "tomorrow 9:00", "", "2026-3-5", "2026-03-05T9:00", "2026-13-01"],
    "find_events_empty": [600],
    "find_files": ["/a", "../a", "a/.."],
    "get_now": ["", "Rome, Italy", "europe rome", "/x", "../x", "A/B/C/D"],
    "send_messages": ["", "Anna", "a@", "@b", "a b@c.d", "a@b..c", ".a@b", "a@b\nc"],
}
RIGHT: dict[str, list[Any]] = {
    "compute": ["15% of 200", "200 * 15%", "-2 * (3 + 4)", "√2", "5²", "3 x 4 x 5", "sqrt(16)", "log(8, 2)",
                "2 * pi", "1,234.56 + 1", "1e5 = ?"],
    "create_dirs": ["a", "a/b/", "./a", "a..b", "...", "~a", "x y", "a/~/b"],
    "create_events": ["2026-03-05T09:30", "2026-03-05", "2026-03-05T09:30/10:30", "2026-03-05/2026-03-07",
                      "2026-03-05 09:30:00+01:00/2026-03-05T09:30Z"],
    "find_files": ["*.txt", "a/**/b", "..a"],
    "get_inputs": [{"kind": "choice"}, {"kind": "multi_choice"}, {"kind": "choice", "options": []}],
    "get_now": ["Europe/Rome", "UTC", "Etc/GMT+5", "America/Argentina/Salta", "America/Port-au-Prince"],
    "send_messages": ["me", "a.b@c-d.org", "Zoë M. <z@x.it>", "anna@bücher.example"],
}  # fmt: skip


def cases(table: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    return [(name, value) for name, values in table.items() for value in values]


@pytest.mark.parametrize(("name", "value"), cases(WRONG), ids=ascii)
def test_what_is_refused_for_its_form_is_invalid(name: str, value: Any) -> None:
    arguments = GIVEN[name](value)
    assert not validate_call({"name": name, "arguments": arguments}, [TOOLS[name]]).ok
    assert refusal(TOOLS[name], arguments)


@pytest.mark.parametrize(("name", "value"), cases(RIGHT), ids=ascii)
def test_what_people_write_is_valid_and_executed(name: str, value: Any) -> None:
    arguments = GIVEN[name](value)
    assert validate_call({"name": name, "arguments": arguments}, [TOOLS[name]]).ok
    assert refusal(TOOLS[name], arguments) == ""
