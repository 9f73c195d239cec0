"""A log is read again as it was written; a line that nobody has written is an error that names it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.system.append_log import AppendLog, LogDamagedError

values = st.recursive(
    st.none() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=40,
)


@given(written=st.lists(values, max_size=5), left=st.binary(max_size=9))
def test_what_was_appended_is_read_in_order(
    written: list[Any], left: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    with AppendLog(path) as log:
        for value in written:
            log.append(value)
    with path.open("ab") as file:  # the beginning of a line, as an interruption leaves it
        file.write(left.replace(b"\n", b""))
    with AppendLog(path) as log:
        assert log.values == written


@pytest.mark.parametrize("line", ["{", "nothing", "[" * 200_000 + "]" * 200_000, json.dumps({"n": 1}) + "}"])
def test_a_line_that_is_no_value_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "log").write_text(f'{{"n": 1}}\n{line}\n')
    with pytest.raises(LogDamagedError) as raised:
        AppendLog(tmp_path / "log")
    assert raised.value.line == 2
