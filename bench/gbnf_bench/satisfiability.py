"""Check whether a case can pass: whether valid calls match the expected ones, and what is deleted exists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gbnf.tools import Tool
from gbnf_bench.cases import ExpectedCall, InitialState, expected_states
from gbnf_bench.errors import KeyPath, SuiteFieldError
from gbnf_bench.expectations import is_satisfiable
from gbnf_bench.snapshots import OUTBOX
from gbnf_server.executors.calendar_file import FILE as CALENDAR


def check_call(call: ExpectedCall, tool: Tool, at: KeyPath) -> None:
    """Raise SuiteFieldError if no valid call of the tool matches; the arguments must exist."""
    args = dict(tool.model_args())
    filled = {target for name, target in tool.step_references.items() if name in call.known}
    needed = [name for name in args.get("required", ()) if name not in filled]
    groups = args.pop("requires_one_of", ())
    choices = [{"anyOf": [{"required": [name]} for name in group]} for group in groups]
    args = {**args, "required": needed, "allOf": [*args.get("allOf", ()), *choices]}
    possible = is_satisfiable(args, call.schema())
    for key in ("optional_arguments",) if possible else ("arguments", "optional_arguments"):
        for name, expectation in getattr(call, key).items():
            alone = {"properties": {name: expectation}, "required": [name]}
            if expectation and not is_satisfiable(args, alone):
                raise SuiteFieldError(
                    (*at, key, name), expectation.get("const"), f"no valid call of {call.name} meets this",
                    "Expect a value that the tool's schema accepts.",
                )  # fmt: skip
    if possible:
        return
    missing = [f"Expect {name}." for name in needed if name not in call.known] + [
        f"Expect at least one of {', '.join(group)}." for group in groups if not call.known.keys() & {*group}
    ]
    raise SuiteFieldError(
        (*at, "arguments"), None, f"no valid call of {call.name} has only these arguments",
        " ".join(missing) or "See the tool's schema.",
    )  # fmt: skip


def check_gone(table: Mapping[str, Any], before: InitialState) -> None:
    """Raise SuiteFieldError if more events or messages are expected to be gone than exist.

    With earlier calls this is unknown, and not checked.
    """
    if before.calls or any(path == CALENDAR or path.startswith(f"{OUTBOX}/") for path in before.files):
        return
    for after, at in expected_states(table):
        for key, there in (("gone_events", len(before.events)), ("gone_messages", 0)):
            if len(after.get(key, ())) > there:
                raise SuiteFieldError(
                    (*at, key), after[key], f"before the run there are {there} of these",
                    "Add them to before (events, or calls that create them), or remove them.",
                )  # fmt: skip
