"""What the runner and its child process say to each other: JSON, one value a line, over two pipes.

    parent -> child    one `start`, then an `answer` for each `ask`
    child -> parent    any number of `ask`, then one `result` or `error`

Every message is an object with the key ``is`` and the keys listed at its constructor. The executor's own
standard streams are other pipes, so that what it prints cannot be taken for a message.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gbnf_server.executors.person import Field, Form

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gbnf_server.executors.context import Context

RESULT_LIMIT = 16 * 1024 * 1024
"""Longest message, in bytes: a larger result is an executor's fault, not a reason to fill the memory."""


def encode(message: Mapping[str, Any]) -> bytes:
    """One line. Raises ValueError or TypeError where the message is no JSON value, NaN included."""
    return json.dumps(message, allow_nan=False).encode("ascii") + b"\n"


def start(code: str, arguments: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """`context` without its person, who stays in the parent; its clock goes on from what it shows."""
    return {
        "is": "start",
        "code": code,
        "arguments": arguments,
        "workspace": str(context.workspace.root),
        "turn": context.turn,
        "tool": context.tool,
        "settings": dict(context.settings),
        "now": context.now().isoformat(),
        "zone": context.timezone.key,
    }


def ask(form: Form) -> dict[str, Any]:
    fields = [
        {"var": each.var, "prompt": each.prompt, "kind": each.kind, "options": each.options}
        for each in form.fields
    ]
    return {"is": "ask", "title": form.title, "fields": fields}


def asked(message: Mapping[str, Any]) -> Form:
    fields = (
        Field(each["var"], each["prompt"], each["kind"], tuple(each["options"])) for each in message["fields"]
    )
    return Form(message["title"], tuple(fields))


def answer(values: Mapping[str, Any]) -> dict[str, Any]:
    return {"is": "answer", "values": dict(values)}


def refusal(text: str) -> dict[str, Any]:
    """The person did not answer; the executor sees it as an `ExecutorError`."""
    return {"is": "answer", "error": text}


def result(value: Mapping[str, Any]) -> dict[str, Any]:
    return {"is": "result", "value": value}


def error(text: str, trace: str = "") -> dict[str, Any]:
    """`trace`: the traceback of an exception that the executor did not raise on purpose."""
    return {"is": "error", "text": text, "trace": trace}
