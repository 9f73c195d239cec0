"""Every schema made to blow up ends in a grammar that llama.cpp reads, or in an error, in bounded memory."""

from __future__ import annotations

import pytest

from bombs import BOMBS, MEMORY_MIB, Task, defuse, vocabulary
from isolation import Finished, isolated

# Newer Pythons warn of forks beside threads, which pytest-xdist has; the children here touch none.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]

#: Far more than any takes, even beside other work: what this stops is a hang.
LIMIT_S = 60.0


def test_bombs_are_defused() -> None:
    tasks = [Task(name, ("declared", "any")[number % 2]) for number, name in enumerate(BOMBS)]
    vocabulary()
    outcomes = dict(isolated(defuse, tasks, jobs=1, limit_s=LIMIT_S, memory_mib=MEMORY_MIB))
    errors = set()
    for index, task in enumerate(tasks):
        outcome = outcomes[index]
        assert isinstance(outcome, Finished), f"{task.name}, {task.order}: {outcome}"
        if outcome.value["error"]:
            errors.add(task.name)
    assert errors == {"patterns that backtrack"}, "no value of it matches, and all others have values"
