"""What the tests of MCP share."""

from __future__ import annotations

from pathlib import Path

import pytest

from gbnf_server.executors import AbsentPerson, Context, Workspace


@pytest.fixture
def brief_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait long for a server that does not end with its input, as its test knows."""
    monkeypatch.setattr("gbnf_server.mcp.stdio._EXIT_S", 0.2)


@pytest.fixture
def there(tmp_path: Path) -> Context:
    """Where a tool runs, if nobody can be asked."""
    return Context(Workspace(tmp_path), person=AbsentPerson(), settings={})
