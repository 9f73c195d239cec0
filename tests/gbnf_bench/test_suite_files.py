"""Suites: those that ship, what a fault says, and the Python notation."""

from __future__ import annotations

import json
import tomllib
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from gbnf.tools import Tool
from gbnf_bench.cases import COMPLEXITIES, read_case
from gbnf_bench.dsl import call, case, contains, load_python, load_suites, suite
from gbnf_bench.errors import InvalidSuiteError
from gbnf_bench.metrics import METRICS
from gbnf_bench.suite_files import bundled_suites, load_suite, read_suite, suites_path


def _read(**arguments: Any) -> dict[str, Any]:
    return {"name": "read_files", "arguments": arguments}


READ = _read(paths=["a.txt"])


@pytest.mark.slow
@pytest.mark.parametrize("name", bundled_suites())
def test_a_bundled_case_is_the_same_when_its_source_is_read_again(name: str) -> None:
    found = load_suite(name)
    assert found.name == name
    assert found.description
    for one in found.cases:
        again = read_case(json.loads(json.dumps(one.source)))
        fields = [field for field in one.__slots__ if field != "source"]
        assert [getattr(again, field) for field in fields] == [getattr(one, field) for field in fields]


def test_the_representative_suite_has_ten_cases_of_every_complexity() -> None:
    suite = load_suite("representative")
    assert len(suite.cases) == 10
    assert {one.complexity for one in suite.cases} == {*COMPLEXITIES}
    by_path = load_suite(suites_path() / "representative.toml")
    assert [one.id for one in by_path.cases] == [one.id for one in suite.cases]


CASE_FAULTS: list[tuple[dict[str, Any], str, str]] = [
    ({"now": "2026-11-21T10:32:00+00:00"}, "now", "no offset"),
    ({"now": datetime(2026, 11, 21, 10, 32, tzinfo=UTC)}, "now", "no offset"),
    ({"before": {"files": {"../a.txt": ""}}}, "before.files.../a.txt", "inside the workspace"),
    ({"before": {"folders": ["a", "/b"]}}, "before.folders[2]", "inside the workspace"),
    ({"before": {"files": {"a": "", "a/b": ""}}}, "before.files.a", "a/b needs a folder"),
    ({"before": {"files": {"a": ""}, "folders": ["a"]}}, "before.files.a", "a needs a folder"),
    ({"after": {"files": {"/a.txt": ""}}}, "after.files./a.txt", "inside the workspace"),
    ({"after": {"files": {"a": "", "./a": ""}}}, "after.files../a", "named twice"),
    ({"after": [{}, {"folders": ["."]}]}, "after[2].folders[1]", "inside the workspace"),
    ({"after": {"gone": ["a/../b"]}}, "after.gone[1]", "inside the workspace"),
    ({"after": {"gone": ["a/"], "files": {"a/b": ""}}}, "after.gone[1]", "a/b is expected to exist"),
    ({"max_steps": 1}, "max_steps", "take 2 steps"),
    ({"calls": [READ, READ], "max_steps": 2}, "max_steps", "take 3 steps"),
    (
        {"before": {"calls": [READ, {"name": "write_files", "arguments": {"nope": 1}}]}},
        "before.calls[2].arguments",
        "nope",
    ),
    ({"before": {"calls": [{"name": "reed"}]}}, "before.calls[1].name", "no tool"),
    ({"answer": {"contain": {}}}, "answer.contain", "Did you mean contains?"),
    ({"answer": 5}, "answer", "the value is a text"),
    ({"answer": {"anyOf": [{"type": "array"}, {"const": 5}]}}, "answer", "no such value is accepted"),
    ({"answer": {"allOf": [{"pattern": "a"}, {"const": 5}]}}, "answer", "no such value is accepted"),
    ({"answer": {"allOf": []}}, "answer.allOf", "non-empty array"),
    ({"after": {"files": {"a.txt": {"content": "x"}}}}, "after.files.a.txt.content", "unknown keyword"),
    ({"after": {"files": {"a.txt": ["x"]}}}, "after.files.a.txt", "the value is a text"),
    (
        {"after": {"events": [{"title": {"patern": "x"}}]}},
        "after.events[1].title.patern",
        "Did you mean pattern?",
    ),
    ({"after": {"events": [{"start": "2026-11-24 18:00"}]}}, "after.events[1].start", "2026-11-24T18:00"),
    ({"after": {"events": [{"end": "2026-11-24T18:00:00"}]}}, "after.events[1].end", "2026-11-24T18:00"),
    ({"after": {"events": [{"end": "2026-13-24"}]}}, "after.events[1].end", "2026-11-24"),
    ({"after": [{}, {"messages": [{"to": "a@b"}]}]}, "after[2].messages[1].to", "an array of addresses"),
    ({"after": {"messages": [{"to": {"const": [5]}}]}}, "after.messages[1].to", "no such value"),
    ({"after": {"messages": [{"subject": ["a"]}]}}, "after.messages[1].subject", "the value is a text"),
    ({"after": {"gone_events": [{"title": "x"}]}}, "after.gone_events", "there are 0 of these"),
    ({"after": {"gone_messages": [{"to": ["a@b"]}]}}, "after.gone_messages", "there are 0 of these"),
    ({"step": 3}, "step", "Did you mean steps?"),
    ({"complexity": "hard"}, "complexity", "ambiguous"),
    ({"steps": [3, 2]}, "steps", "[minimum, maximum]"),
    ({"id": "Not so"}, "id", "hyphens"),
    ({"plans": [[READ]]}, "plans", "both given"),
    ({"pool": ["get_now"]}, "calls[1].name", "no tool of the pool"),
    ({"pool": ["none"]}, "pool", "no tool of this name"),
    ({"decoys": ["none"]}, "decoys", "There are none"),
    ({"first": ["none"]}, "first", "no tool"),
    ({"calls": [_read(path=1)]}, "calls[1].arguments.path", "Did you mean paths?"),
    ({"calls": [_read(from_step=1)]}, "calls[1].arguments.from_step", "Count the expected calls from 1"),
    (
        {"calls": [{**READ, "optional_arguments": {"paths": {}}}]},
        "calls[1].optional_arguments.paths",
        "is in arguments too",
    ),
    ({"after": {"messages": [{"body": {"pattern": "("}}]}}, "after.messages[1].body.pattern", "regular"),
    ({"after": {"file": {}}}, "after", "files"),
    ({"now": "noon"}, "now", "2026-11-21T10:32"),
    ({"timezone": "Rome"}, "timezone", "Europe/Rome"),
    (
        {"before": {"events": [{"title": "t", "start": "2026-01-02", "end": "2026-01-01"}]}},
        "before.events[1]",
        "does not end after it starts",
    ),
    (
        {"calls": [{"name": "get_now", "optional_arguments": {"timezone": 5}}]},
        "calls[1].optional_arguments.timezone",
        "no valid call",
    ),
    ({"steps": 1}, "steps", "the calls and the answer take 2 steps"),
    ({"calls": [READ, READ], "steps": [2, 5]}, "steps", "take 3 steps"),
]

FAULTS: list[tuple[dict[str, Any], str, str]] = [
    ({"cases": []}, "cases", "[]"),
    ({}, "the file", "cases is missing"),
    ({"cases": [{"calls": [READ]}]}, "cases[1]", "query is missing"),
    ({"cases": [{"query": " \n", "calls": [READ]}]}, "cases[1].query", "not blank"),
    ({"cases": [{"query": "q"}]}, "cases[1]", "nothing is expected"),
    ({"cases": [{"query": "q", "answer": "a", "steps": 2}]}, "cases[1]", "no tool is expected to come first"),
    ({"cases": [{"query": "q", "answer": "a", "first": ["get_now"]}]}, "cases[1]", "number of steps"),
    ({"cases": [{"query": "q", "abstain": True, "calls": [READ]}]}, "cases[1].abstain", "Remove calls"),
    ({"cases": [{"query": "q", "calls": [{"name": "reed"}]}]}, "cases[1].calls[1].name", "read_files"),
    (
        {"cases": [{"query": "q", "plans": [[READ], [{**READ, "arguments": {"paths": {"pattern": "["}}}]]}]},
        "cases[1].plans[2][1].arguments.paths.pattern",
        "a regular expression",
    ),
    ({"cases": [{"query": "q", "answer": {"any": 1}}]}, "cases[1].answer.any", "{const = …}"),
    *(
        ({"cases": [{"query": "q", "calls": [READ], **keys}]}, f"cases[1].{key}", said)
        for keys, key, said in CASE_FAULTS
    ),
    *(
        (
            {"cases": [{"query": "q", "calls": [READ, {"name": name, "arguments": arguments}]}]},
            f"cases[1].calls[2].arguments{key}",
            said,
        )
        for name, arguments, key, said in [
            ("write_files", {}, "", "Expect files."),
            ("delete_files", {}, "", "Expect at least one of paths, from_step."),
            ("write_files", {"files": "a.txt"}, ".files", "no valid call of write_files"),
            ("create_dirs", {"paths": {"enum": ["a", [1]]}}, ".paths", "no valid call"),
            ("find_events_empty", {"period": "never"}, ".period", "no valid call"),
            ("find_events_empty", {"period": {}, "limit": {"minimum": 21}}, ".limit", "no valid call"),
            (
                "compute",
                {"expression": {"allOf": [{"pattern": "^a"}, {"pattern": "^b"}]}},
                ".expression",
                "no valid call",
            ),
        ]
    ),
    ({"cases": [{"query": "q", "calls": [READ]}] * 2}, "cases[2].id", "Use another id"),
    ({"defaults": {"id": "x"}, "cases": [{"query": "q", "calls": [READ]}]}, "defaults", "Remove them"),
    (
        {"decoys": [{"name": "get_now", "args": {}}], "cases": [{"query": "q", "calls": [READ]}]},
        "decoys[1].name",
        "another tool has this name",
    ),
    (
        {"decoys": [{"name": "a b", "args": {}}], "cases": [{"query": "q", "calls": [READ]}]},
        "decoys[1].name",
        "a b",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("content", "key", "said"), FAULTS, ids=[f"{key}-{said}" for _, key, said in FAULTS])
def test_a_fault_names_its_location_and_a_hint(content: dict[str, Any], key: str, said: str) -> None:
    with pytest.raises(InvalidSuiteError) as caught:
        read_suite(content, "x.toml")
    [error] = caught.value.errors
    text = str(caught.value).split("\n  ")[1]
    assert text.startswith(f"x.toml: {key}: ")
    assert said in text
    assert error.hint


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("write_files", {"files": {}}),
        ("write_files", {"files": {"items": {"properties": {"content": {"pattern": "b"}}}}}),
        ("write_files", {"files": {"allOf": [{"contains": {"const": {"path": "a", "content": "b"}}}]}}),
        ("delete_files", {"from_step": 1}),
        ("create_events", {"title": {}, "from_step": 1}),
        ("create_dirs", {"paths": {"enum": ["a", ["a"]]}}),
        ("find_events_empty", {"start_date": {"pattern": "^2026-02"}}),
    ],
)
def test_a_call_that_can_be_made_is_no_fault(name: str, arguments: dict[str, Any]) -> None:
    read_suite({"cases": [{"query": "q", "calls": [READ, {"name": name, "arguments": arguments}]}]}, "x.toml")


def test_a_group_of_arguments_may_be_met_by_an_optional_one() -> None:
    optional = {"paths": ["a"], "from_step": 1}
    call = {"name": "delete_files", "optional_arguments": optional}
    read_suite({"cases": [{"query": "q", "calls": [READ, call]}]}, "x.toml")


def test_paths_are_those_of_a_snapshot() -> None:
    table = {"files": {"./a//b.txt": "x"}, "folders": ["trips/"]}
    one = read_suite(
        {"cases": [{"query": "q", "calls": [READ], "before": table, "after": {**table, "gone": ["old/"]}}]},
        "x.toml",
    ).cases[0]
    assert list(one.before.files) == list(one.after[0].files) == ["a/b.txt"]
    assert one.before.folders == one.after[0].folders == ("trips",)
    assert one.after[0].gone == ("old",)


def test_whole_numbers_may_have_a_point() -> None:
    keys = {"steps": 2.0, "max_steps": 5.0, "person": {"choose": 2.0}}
    [one] = read_suite({"cases": [{"query": "q", "calls": [READ], **keys}]}, "x.toml").cases
    numbers = [one.least_steps, one.most_steps, one.max_steps, one.script.choose]
    assert numbers == [2, 4, 5, 2]
    assert all(type(each) is int for each in numbers)


def test_ids_of_queries_in_other_scripts_differ() -> None:
    queries = ("что дальше", "который час", "5 евро", "5 долларов", "perché no")
    made = suite("s", *(case(query, calls=[READ]) for query in queries))
    ids = [one.id for one in made.cases]
    assert len(set(ids)) == len(ids)
    assert ids[-1] == "perche-no"
    assert [one.id for one in suite("s", case(queries[0], calls=[READ])).cases] == ids[:1]


def test_every_fault_is_reported_at_once() -> None:
    content = {"cases": [{"query": "q"}, {"query": "r", "calls": [{"name": "reed"}]}]}
    with pytest.raises(InvalidSuiteError, match="2 faults"):
        read_suite(content, "x.toml")
    wrong = {"name": "read_files", "arguments": {"path": 1, "size": 2}}
    content = {
        "decoys": [{"name": "a b", "args": {}}],
        "cases": [
            {"query": 3, "steps": "many", "calls": [READ]},
            {"query": "q"},
            {"query": "r", "calls": [{"name": "reed"}, wrong, READ], "first": ["none", "read_files"]},
            {"query": "s", "calls": [READ], "pool": ["get_now", "one", "two"]},
            {"query": "t", "calls": [READ], "before": {"calls": [{"name": "reed"}, {"name": "read_files"}]}},
        ],
    }
    with pytest.raises(InvalidSuiteError) as caught:
        read_suite(content, "x.toml")
    assert [error.key for error in caught.value.errors] == [
        "cases[1].query", "cases[1].steps",
        "cases[2]",
        "cases[3].calls[1].name", "cases[3].calls[2].arguments.path", "cases[3].calls[2].arguments.size",
        "cases[3].first",
        "cases[4].pool", "cases[4].pool",
        "cases[5].before.calls[1].name", "cases[5].before.calls[2].arguments",
        "decoys[1].name",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"), [(b"a = ", "invalid TOML"), (b"\xff\xfe", "not valid UTF-8"), (None, "representative")]
)
def test_an_unreadable_file_says_what_to_do(tmp_path: Path, text: bytes | None, said: str) -> None:
    path = tmp_path / "x.toml"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(InvalidSuiteError, match=said):
        load_suite(path)


@pytest.mark.parametrize(("file", "name"), [("My_suite", "my-suite"), ("è", "suite")])
def test_a_suite_without_a_name_has_its_files(tmp_path: Path, file: str, name: str) -> None:
    path = tmp_path / f"{file}.toml"
    path.write_text("[[cases]]\nquery = 'q'\ncalls = [{name = 'get_now'}]\n")
    assert load_suite(path).name == name


def test_toml_times_are_times(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(
        "[[cases]]\nquery = 'what day is it'\nnow = 2027-03-05T09:30:00\nanswer = {pattern = 'Friday'}\n"
        "first = ['get_now']\nsteps = 2\n"
    )
    [one] = load_suite(path).cases
    assert f"{one.now:%Y-%m-%dT%H:%M %Z}" == "2027-03-05T09:30 CET"


def test_a_python_suite_equals_its_toml_form() -> None:
    toml = r"""
        [[cases]]
        query = "email anna@example.com that the train is late"
        answer = { pattern = "sent" }

        [[cases.calls]]
        name = "send_messages"
        arguments.to = ["anna@example.com"]
        arguments.subject = {}
        optional_arguments.body = { pattern = '(?i)train\.' }
        optional_arguments.from_step = { minimum = 1 }
    """
    read = read_suite({"name": "mine", **tomllib.loads(toml)}, "x.toml")
    made = suite(
        "mine",
        case(
            "email anna@example.com that the train is late",
            calls=[
                call(
                    "send_messages",
                    to=["anna@example.com"],
                    subject={},
                    optional_arguments={"body": contains("train."), "from_step": {"minimum": 1}},
                )
            ],
            answer={"pattern": "sent"},
        ),
    )
    assert made.name == read.name
    assert [one.plans for one in made.cases] == [one.plans for one in read.cases]
    assert [one.answer for one in made.cases] == [one.answer for one in read.cases]
    assert [one.id for one in made.cases] == [one.id for one in read.cases]


def test_a_python_file_gives_its_suites(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from gbnf_bench.dsl import call, case, suite\n"
        "SUITE = suite('mine', case('what time is it', calls=[call('get_now')]))\n"
    )
    [found] = load_python(path)
    assert (found.name, len(found.cases)) == ("mine", 1)
    path.write_text("")
    with pytest.raises(InvalidSuiteError, match="defines no suite"):
        load_python(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\ny = (", "line 2: SyntaxError"),
        ("x = 1\nnothing()\n", "line 2: NameError: name 'nothing'"),
        ("import sys\nsys.exit(0)\n", "line 2: SystemExit: 0"),
    ],
)
def test_a_python_file_that_fails_says_where(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(InvalidSuiteError, match=rf"mine\.py: the file: {said}"):
        load_python(path)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            "answer={'pattern': re.compile('a')}",
            r"cases\[1\]\.answer\.pattern: a compiled regular expression",
        ),
        ("pool={'get_now'}", r"cases\[1\]\.pool: this is a set"),
        ("answr='a'", r"cases\[1\]\.answr: unknown key"),
    ],
)
def test_a_fault_in_python_names_file_suite_and_location(tmp_path: Path, keys: str, said: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import re\nfrom gbnf_bench.dsl import call, case, suite\n"
        f"S = suite('mine', case('what time is it', calls=[call('get_now')], {keys}))\n"
    )
    with pytest.raises(InvalidSuiteError, match=rf"mine\.py, suite 'mine': {said}"):
        load_python(path)


def test_a_python_file_is_read_with_the_given_tools_and_each_suite_once(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from gbnf_bench.dsl import call, case, suite\n"
        "SUITE = suite('mine', case('ping it', calls=[call('ping', host='a.b')]))\nDEFAULT = SUITE\n"
    )
    args = {"type": "object", "properties": {"host": {"type": "string"}}}
    ping = Tool.from_mapping({"name": "ping", "description": "Ping a host.", "args": args})
    assert [one.name for one in load_suites([str(path)], [ping])] == ["mine"]
    with pytest.raises(InvalidSuiteError, match="no tool of the pool"):
        load_python(path)


def test_the_page_explains_every_metric() -> None:
    page = (Path(__file__).parents[2] / "docs" / "bench.md").read_text("utf-8")
    heads = {
        line.split("|")[1].strip().removesuffix(", p95") for line in page.splitlines() if line[:2] == "| "
    }
    titles = {metric.title.replace(" p95", " p50") for metric in METRICS}
    assert titles <= {head.removesuffix(" (p95: `compare`)") for head in heads}


def test_the_page_explains_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "bench.md").read_text("utf-8")
    schema = json.loads((files("gbnf_bench") / "suite.schema.json").read_text("utf-8"))
    keys = {*schema["$defs"]["case"]["properties"], *schema["$defs"]["after"]["properties"]}
    keys |= {*schema["$defs"]["case"]["properties"]["before"]["properties"]}
    keys |= {*schema["$defs"]["case"]["properties"]["person"]["properties"]}
    assert {key for key in keys if f"`{key}`" not in page and f"`{key} = " not in page} == set()
