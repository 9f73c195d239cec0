"""A log is read again, however deep its lines are: what is too deep is null, and all else as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.executors.results import without_deep_values
from gbnf_server.system.append_log import MAX_DEPTH, AppendLog, _shallow

values = st.recursive(
    st.none() | st.integers() | st.text() | st.text('[]{}"\\\\'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('[]{}"\\\\'), inner),
    max_leaves=40,
)


def nested(depth: int, core: Any) -> Any:
    value = core
    for level in range(depth):
        value = [level, value, "]"] if level % 2 else {"[": level, "a": value, "z": {}}
    return value


@given(value=values, depth=st.integers(0, MAX_DEPTH + 30))
def test_what_is_too_deep_is_null_and_all_else_as_it_was(value: Any, depth: int) -> None:
    value = nested(depth, value)
    assert json.loads(_shallow(json.dumps(value, ensure_ascii=False).encode())) == without_deep_values(
        value, MAX_DEPTH
    )


@pytest.mark.parametrize("depth", [600, 940, 5000, 200_000])
def test_a_log_of_a_version_that_wrote_any_depth_is_read(tmp_path: Path, depth: int) -> None:
    path = tmp_path / "log"
    path.write_text('{"n": 1, "deep": ' + "[" * depth + "]" * depth + ', "m": 2}\n{"n": 3}\n')
    with AppendLog(path) as log:
        first, second = log.values
        log.append({"n": 4})
    assert (first["n"], first["m"], second) == (1, 2, {"n": 3})
    json.dumps(first)
    with AppendLog(path) as log:
        assert log.values[2] == {"n": 4}
