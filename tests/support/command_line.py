"""The command line called in this process."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from gbnf_server.cli import main


@dataclass(frozen=True)
class CommandResult:
    """The exit status of a command and its output."""

    code: int
    out: str
    err: str


Gbnf = Callable[..., CommandResult]


@pytest.fixture
def gbnf(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Gbnf:
    def call(*arguments: object, stdin: str = "") -> CommandResult:
        monkeypatch.setattr(
            sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode(errors="surrogateescape")))
        )
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return CommandResult(int(left.value.code or 0), said.out, said.err)

    return call
