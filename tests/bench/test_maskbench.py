"""What becomes of a case, for each way that a contender can go."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from corpus import Case, Instance, load_cases
from gbnf.findings import Finding
from gbnf_server.system.errors import GrammarRefusedError
from isolation import Crashed, Finished, TimedOut
from maskbench import CLASSES, _result, judge, summarise


class Lister:
    """A contender that supports only enums, and accepts what the schema lists under `accepts`."""

    name = "lister"
    errors: tuple[type[Exception], ...] = (KeyError,)

    def compile(self, schema_text: str) -> Any:
        return json.loads(schema_text)["accepts"]

    def load(self, compiled: Any) -> Callable[[str], bool]:
        if not compiled:
            raise GrammarRefusedError("it is empty")
        return lambda text: json.loads(text) in compiled

    def report(self, compiled: Any) -> tuple[bool, list[Finding]]:
        findings = [Finding("", "/maximum", "maximum", "unenforced", "too far")] if 7 in compiled else []
        return not findings, findings


def case(accepts: list[int] | None, *instances: tuple[int, bool]) -> Case:
    schema = {"type": "integer", "maximum": 5} | ({} if accepts is None else {"accepts": accepts})
    return Case("Some---case", schema, tuple(Instance(valid, data) for data, valid in instances))


@pytest.mark.parametrize(
    ("judged", "outcome", "unexplained"),
    [
        pytest.param(case([1, 2], (1, True), (9, False)), "pass", [], id="all right"),
        pytest.param(case([1]), "pass", [], id="no instances"),
        pytest.param(case([1], (2, True)), "rejects valid", [], id="one too few"),
        pytest.param(case([9], (9, False)), "accepts invalid", ["maximum at /maximum"], id="one too many"),
        pytest.param(case([7], (7, False)), "accepts invalid", [], id="one too many, as reported"),
        pytest.param(
            case([9], (2, True), (9, False)), "rejects valid", ["maximum at /maximum"], id="wrong both ways"
        ),
        pytest.param(case(None, (1, True)), "compile error", [], id="no grammar"),
        pytest.param(case([], (1, True)), "engine refused", [], id="no engine"),
    ],
)
def test_judge(judged: Case, outcome: str, unexplained: list[str]) -> None:
    result = judge(judged, Lister())
    assert (result.outcome, result.unexplained) == (outcome, unexplained)
    assert result.outcome in CLASSES


def test_what_ends_a_process_is_an_outcome() -> None:
    some = case([1])
    assert _result(some, Crashed("SIGSEGV", 1.0)).outcome == "crashed"
    assert _result(some, TimedOut(20.1)).outcome == "timed out"
    passed = {"id": "a", "collection": "b", "outcome": "pass"}
    assert _result(some, Finished(passed)).collection == "b"


def test_summary_counts_each_case_once() -> None:
    results = [judge(case([9], (9, False)), Lister()), judge(case([7], (7, False)), Lister())]
    summary = summarise([*results, judge(case([1]), Lister())])
    assert summary["classes"]["accepts invalid"] == 2
    assert sum(summary["classes"].values()) == summary["cases"] == 3
    assert summary["collections"] == {"Some": summary["classes"]}
    assert summary["accepts_invalid_unexplained"] == summary["exact_but_accepts_invalid"] == ["Some---case"]


def test_cases_are_read(tmp_path: Any) -> None:
    lines = [{"id": f"BFCL_java_{n}", "schema": {}, "tests": [{"valid": True, "data": n}]} for n in range(5)]
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    cases = load_cases(path, every=2)
    assert [each.id for each in cases] == ["BFCL_java_0", "BFCL_java_2", "BFCL_java_4"]
    assert cases[1] == Case("BFCL_java_2", {}, (Instance(valid=True, data=2),))
    assert {each.collection for each in cases} == {"BFCL"}
    assert Case("Github_easy---o39429", {}, ()).collection == "Github_easy"
