"""What a file of requests may hold, and what is said where it may not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.planner.batch import BatchFileError, BatchRequest, read_requests

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@given(
    requests=st.lists(st.builds(BatchRequest, TEXTS, TEXTS, TEXTS), min_size=1, unique_by=lambda one: one.id)
)
def test_what_is_written_is_read(
    requests: list[BatchRequest], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("requests") / "file.jsonl"
    lines = [
        json.dumps({"id": one.id, "query": one.query, "workspace": one.workspace}, ensure_ascii=False)
        for one in requests
    ]
    path.write_text("\n".join(lines), "utf-8")
    assert read_requests(path) == tuple(requests)


def test_a_line_may_be_a_text_and_its_number_names_it(tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text('"one"\n\n{"query": "two", "id": 7}\n"three"\n')
    assert [(one.id, one.query) for one in read_requests(path)] == [
        ("1", "one"),
        ("7", "two"),
        ("4", "three"),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no requests"),
        ("what time is it\n", "line 1: Expecting value"),
        ('"a"\n{"quary": "b"}\n', "line 2: 'quary' is unknown. Use query, id, workspace"),
        ('{"id": "x"}', "line 1: 'query' is missing"),
        ('{"query": "  "}', "line 1: 'query' is missing"),
        ('{"query": "a", "id": []}', "'id' is neither a string nor an integer"),
        ('{"query": "a", "workspace": 1}', "'workspace' is not a string"),
        ('{"query": "a", "id": "2"}\n"b"', "line 2: the id '2' is a duplicate"),
        ('"a"\n"b \\ud83d"', "line 2: a string contains half of a surrogate pair"),
        ('{"query": "a", "id": "\\udc00"}', "line 1: a string contains half of a surrogate pair"),
        ('{"query": "a", "query": "b"}', "line 1: the key 'query' occurs twice"),
        ("[1]", "line 1: \\[1\\] is neither"),
        ("[" * 100_000, "line 1"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text(text)
    with pytest.raises(BatchFileError, match=says) as raised:
        read_requests(path)
    assert str(path) in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BatchFileError, match=r"none\.jsonl"):
        read_requests(tmp_path / "none.jsonl")
