"""What `gbnf run` says would help a run without an answer: a table of runs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gbnf_server.cli.run_progress import run_hints
from gbnf_server.system.errors import ExecutorError
from support.by_hand import ANSWER, NOW, POOL, Reply, call, completion, drive_by_hand, resolved

CREATE = call("create_dirs", paths=["trips"])
PROSE = "I will look it up."


@pytest.mark.parametrize(
    ("texts", "replies", "expected"),
    [
        ([NOW, ANSWER], [{}], []),
        ([NOW, NOW, PROSE], [{}, {}], ["--terminal get_now", "--max-tools", "gbnf tune", "--model"]),
        ([CREATE, CREATE, CREATE], [ExecutorError("no")] * 3, ["--max-tools", "--model"]),
        ([NOW, CREATE, call("compute", expression="1 + 1")], [{}] * 3, []),  # it only needs more steps
    ],
)
def test_what_would_help(texts: Sequence[str], replies: Sequence[Reply], expected: Sequence[str]) -> None:
    driven = drive_by_hand(
        POOL,
        [completion(text) for text in texts],
        replies=replies,
        options=resolved(max_steps=3, salvage=True),
    )
    hints = run_hints(driven.run, driven.events)
    assert len(hints) == len(expected)
    assert all(option in hint for option, hint in zip(expected, hints, strict=True))


def test_few_tools_are_not_too_many() -> None:
    pool = [tool for tool in POOL if tool.name in {"get_now", "compute"}]
    driven = drive_by_hand(pool, [completion(PROSE)] * 3, options=resolved())
    assert driven.run.outcome == "blocked"
    assert not any("--max-tools" in hint for hint in run_hints(driven.run, driven.events))
