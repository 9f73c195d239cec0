"""What tests of real clients share: `gbnf serve` as a process, a tool, and a judge of what a client reads."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from support.answers import undeclared

ENFORCEMENT = "x_gbnf"
UNDECLARED = {ENFORCEMENT, "max_model_len"}
"""The fields that no type of the clients declares; the context length is named as by vLLM."""


@contextmanager
def gateway_process(folder: Path, *options: str) -> Iterator[str]:
    """Run `gbnf serve`, and yield its URL; check that it ends well, and that no request failed in it.

    `folder`: where its log is written.
    """
    log = folder / "log.txt"
    command = [sys.executable, "-m", "gbnf_server", "serve", "--port", "0", *options]
    with (
        log.open("w", encoding="utf-8") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:"), log.read_text("utf-8")
            yield url
        finally:
            process.terminate()
            status = process.wait(60)
    text = log.read_text("utf-8")
    requests = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert (status, [each for each in requests if each.get("status", 500) >= 500]) == (0, []), text


def declared(value: Any) -> Any:
    """Return what a client has read, after its own types have validated it and declare all of its fields.

    The packages construct their values without validation.
    """
    assert isinstance(value, BaseModel)
    assert [path for path in undeclared(value) if path.rpartition(".")[2] not in UNDECLARED] == []
    type(value).model_validate(value.model_dump(exclude_unset=True))
    return value


QUESTION = "create a folder trips"
"""What the demonstration model answers with a call of `create_dirs`, then with a text."""
PATHS: dict[str, Any] = {
    "type": "object",
    "properties": {"paths": {"type": "array", "items": {"type": "string"}}},
    "required": ["paths"],
    "additionalProperties": False,
}
CREATED = '{"entries": ["trips"]}'
"""The result of the call."""


def folder_tool() -> tuple[Callable[..., dict[str, list[str]]], list[list[str]]]:
    """Return the tool as a function, and the list of the paths that it is called with."""
    called: list[list[str]] = []

    def create_dirs(paths: list[str]) -> dict[str, list[str]]:
        """Create folders."""
        called.append(paths)
        return {"entries": paths}

    return create_dirs, called


class Weather(BaseModel):
    """An answer that is short whatever the model is."""

    city: Literal["Rome", "Oslo"]
    rain: bool
