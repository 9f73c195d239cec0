"""What the tests of MCP share."""

from __future__ import annotations

from pathlib import Path

import pytest

from gbnf_server.executors import AbsentPerson, Context, Workspace


@pytest.fixture
def there(tmp_path: Path) -> Context:
    """Where a tool runs, if nobody can be asked."""
    return Context(Workspace(tmp_path), person=AbsentPerson(), settings={})
