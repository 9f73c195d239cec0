"""Compare stored leaderboards: shares over the cases that both have; files of two kinds are distinguished."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_bench.bfcl.results import FORMAT, Grades, compare
from gbnf_bench.comparison import compare_files
from gbnf_bench.configurations import named
from gbnf_bench.dsl import suite
from gbnf_bench.errors import ResultsFileError
from gbnf_bench.results import Results, about
from gbnf_bench.runner import Bench, RunOptions
from support.by_hand import call
from support.scripts import Told

ANSWERS = st.dictionaries(
    st.tuples(st.sampled_from(["simple_python", "irrelevance"]), st.sampled_from("abcdef")), st.booleans()
)


def _stored(folder: Path, label: str, right: dict[tuple[str, str], bool]) -> Path:
    path = folder / f"{label}.json"
    answers: list[dict[str, object]] = [
        {
            "id": name,
            "category": category,
            "configuration": "union",
            "right": good,
            "fault": None,
            "calls": [],
        }
        for (category, name), good in right.items()
    ]
    path.write_text(json.dumps({"format": FORMAT, "label": label, "answers": answers}))
    return path


@given(first=ANSWERS, second=ANSWERS)
def test_only_what_both_have_is_compared(
    tmp_path_factory: pytest.TempPathFactory,
    first: dict[tuple[str, str], bool],
    second: dict[tuple[str, str], bool],
) -> None:
    folder = tmp_path_factory.mktemp("stored")
    grades = [
        Grades.load(_stored(folder, label, right)) for label, right in (("one", first), ("two", second))
    ]
    tables = compare(*grades)
    common = first.keys() & second.keys()
    assert bool(tables) == bool(common)
    for cells in tables:
        *categories, total = cells.rows
        assert total[0] == f"all ({len(common)})"
        assert {row[0].split(" ")[0] for row in categories} == {category for category, _ in common}
        for column, right in ((1, first), (2, second)):
            good = sum(right[key] for key in common)
            assert total[column] == f"{good / len(common):.0%}"


def test_a_change_has_a_sign_an_interval_and_a_verdict(tmp_path: Path) -> None:
    keys = [("simple_python", str(number)) for number in range(20)]
    worse = _stored(tmp_path, "worse", dict.fromkeys(keys, False))
    better = _stored(tmp_path, "better", {key: int(key[1]) < 15 for key in keys})
    [[row, _]] = [cells.rows for cells in compare_files(worse, better)]
    assert row[1:3] == ("0%", "75%")
    assert row[3].startswith("+75 [")
    assert row[4] == "better"
    [[row, _]] = [cells.rows for cells in compare_files(better, worse)]
    assert row[3].startswith("−75 [")
    assert row[4] == "worse"


@pytest.mark.parametrize("content", ['{"format": 1}', '{"format": "bfcl 2"}', "[]", "no JSON"])
def test_two_kinds_of_files_are_distinguished(tmp_path: Path, content: str) -> None:
    graded = _stored(tmp_path, "graded", {("simple_python", "a"): True})
    other = tmp_path / "other.json"
    other.write_text(content)
    for pair in ((graded, other), (other, graded)):
        with pytest.raises(ResultsFileError, match=r"other\.json does not"):
            compare_files(*pair)


def test_a_broken_leaderboard_names_its_file(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps({"format": FORMAT, "label": "x", "answers": [{"id": "a"}]}))
    with pytest.raises(ResultsFileError, match=r"broken\.json is not a JSON file"):
        compare_files(broken, broken)


def _bench(folder: Path, label: str, *cases: Mapping[str, Any]) -> Path:
    """A stored bench of these cases, in each of which the model answers at once."""
    backend: Any = Told(call("final_answer", message="no"))
    made = Bench([suite("s", *cases)], named(["text"]), (), backend, model="m", options=RunOptions())
    records = tuple(made.run(job) for job in made.jobs)
    header = about(label, {"name": "m"}, RunOptions())
    stored = Results(header, named(["text"]), (suite("s", *cases),), {}, records)
    path = folder / f"{label}.json"
    path.write_text(json.dumps(stored.to_json()))
    return path


def test_unpaired_cases_and_configurations_are_listed(tmp_path: Path) -> None:
    one = {"id": "one", "query": "order a pizza", "abstain": True}
    two, three = ({**one, "id": name} for name in ("two", "three"))
    first = _bench(tmp_path, "first", one, two, three)
    second = _bench(tmp_path, "second", one)
    [_, unpaired] = compare_files(first, second)
    assert unpaired.heads == ("", "first", "second")
    assert unpaired.rows == (("cases", "2", "0"),)
    stored = json.loads(second.read_text())
    stored["configurations"].append({"name": "other", "description": "", "settings": {}})
    stored["runs"].append({**stored["runs"][0], "configuration": "other"})
    stored["label"] = "first"
    second.write_text(json.dumps(stored))
    [compared, unpaired] = compare_files(first, second)
    assert compared.heads[1:3] == unpaired.heads[1:] == ("first (1)", "first (2)")
    assert unpaired.rows[0] == ("configurations", "–", "other")
    assert len(compare_files(first, first)) == 1


def test_only_cases_that_are_the_same_are_paired(tmp_path: Path) -> None:
    kept = {"id": "one", "query": "order a pizza", "abstain": True}
    other = {"id": "two", "query": "sing", "abstain": True}
    first = _bench(tmp_path, "first", kept, other)
    second = _bench(tmp_path, "second", kept, {**other, "query": "dance"})
    third = _bench(tmp_path, "third", {**kept, "answer": "yes"}, {**other, "query": "dance"})
    [cells] = compare_files(first, first)
    assert cells.title == "text, 2 cases that both have"
    [cells] = compare_files(first, second)
    assert cells.title == "text, 1 cases that both have; 1 of the same id differ, and are left out"
    with pytest.raises(ResultsFileError, match=r"same id \(2\), and each differs"):
        compare_files(first, third)
