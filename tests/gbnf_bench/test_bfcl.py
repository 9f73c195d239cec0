"""The function-calling leaderboard: its format, its rules, its grammars. All data here is made up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf import compile_pool
from gbnf_bench.bfcl.ast_checker import call_fault, fault, right_calls
from gbnf_bench.bfcl.files import LeaderboardEntry, read_folder
from gbnf_bench.bfcl.functions import tools_of
from gbnf_bench.bfcl.grammar_checks import compile_all
from gbnf_bench.bfcl.peer import Peer
from gbnf_bench.bfcl.results import gain_table, table
from gbnf_bench.bfcl.runner import GradedAnswer, LeaderboardRun, answer_of
from gbnf_bench.configurations import LEADERBOARD, STRATEGIES, Configuration, named
from gbnf_bench.errors import ResultsFileError
from gbnf_bench.run_log import RunLog
from gbnf_bench.runner import RunOptions
from gbnf_server.backends.base import ModelInfo
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.model_traits import ModelTraits
from gbnf_server.cli import main
from gbnf_server.llama.demo_model import model_path
from support.oracle import engine
from support.scripts import Told
from support.server import Reply, require_llama_server, scripted
from support.smollm2 import model_file, requires_smollm2
from support.tool_formats import FAMILIES

WEATHER = {
    "name": "weather.get",
    "description": "Tell the weather.",
    "parameters": {
        "type": "dict",
        "properties": {
            "city": {"type": "string", "description": "The city"},
            "days": {"type": "integer", "default": 1},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city"],
    },
}
AREA = {
    "name": "triangle_area",
    "description": "The area of a triangle.",
    "parameters": {
        "type": "dict",
        "properties": {
            "base": {"type": "float"},
            "height": {"type": "float"},
            "points": {"type": "array", "items": {"type": "tuple", "items": {"type": "float"}}},
            "labels": {"type": "array", "items": {"type": "string"}},
            "style": {
                "type": "dict",
                "properties": {"colour": {"type": "string"}, "width": {"type": "integer"}},
            },
            "marks": {"type": "array", "items": {"type": "dict", "properties": {"at": {"type": "integer"}}}},
            "exact": {"type": "boolean"},
            "note": {"type": "any"},
        },
        "required": ["base", "height"],
    },
}
BASE: dict[str, list[Any]] = {"base": [3.0], "height": [4, 5]}
ENOUGH = {"base": 3, "height": 4}

RULES: list[tuple[dict[str, Any], dict[str, list[Any]], dict[str, Any], bool]] = [
    (WEATHER, {"city": ["Rome", "Rome, Italy"]}, {"city": "Rome"}, True),
    (WEATHER, {"city": ["Rome", "Rome, Italy"]}, {"city": "rome italy"}, True),
    (WEATHER, {"city": ["Rome, Italy"]}, {"city": "Rome"}, False),
    (WEATHER, {"city": ["St. John's"]}, {"city": 'st john"s'}, True),
    (WEATHER, {"city": ["Rome"], "days": ["", 1]}, {"city": "Rome"}, True),
    (WEATHER, {"city": ["Rome"], "days": ["", 1]}, {"city": "Rome", "days": 1}, True),
    (WEATHER, {"city": ["Rome"], "days": ["", 1]}, {"city": "Rome", "days": 2}, False),
    (WEATHER, {"city": ["Rome"], "days": [2]}, {"city": "Rome"}, False),
    (WEATHER, {"city": ["Rome"]}, {"city": "Rome", "days": 1}, False),
    (WEATHER, {"city": ["Rome"]}, {"city": "Rome", "land": "Italy"}, False),
    (WEATHER, {"city": ["", "Rome"]}, {}, False),  # required, whatever the answer says
    (WEATHER, {"city": ["Rome"], "days": [2]}, {"city": "Rome", "days": 2.0}, False),
    (WEATHER, {"city": ["Rome"], "days": [1]}, {"city": "Rome", "days": True}, False),
    (WEATHER, {"city": ["Rome"], "days": ["days_left"]}, {"city": "Rome", "days": "days_left"}, True),
    (WEATHER, {"city": ["Rome"], "days": ["days_left"]}, {"city": "Rome", "days": "Days left"}, False),
    (AREA, {}, {}, True),  # an integer will do for a float
    (AREA, {}, {"base": 3.0, "height": 5.0}, True),
    (AREA, {}, {"base": "3"}, False),
    (AREA, {"exact": [True]}, {"exact": True}, True),
    (AREA, {"exact": [True]}, {"exact": "true"}, False),
    (AREA, {"labels": [["Point A", "Point B"]]}, {"labels": ["point a", "point-b"]}, True),
    (AREA, {"labels": [["Point A", "Point B"]]}, {"labels": ["Point B", "Point A"]}, False),
    (AREA, {"labels": [["A"], ["B"]]}, {"labels": ["B"]}, True),
    (AREA, {"labels": [["A"]]}, {"labels": [1]}, False),
    (AREA, {"labels": ["", ["A"]]}, {"labels": []}, True),  # the leaderboard goes through "" as a list
    (AREA, {"labels": [["A"], ""]}, {"labels": []}, True),
    (AREA, {"labels": [["A"]]}, {"labels": []}, False),
    (AREA, {"labels": ["", ["A"]]}, {"labels": [""]}, False),
    (AREA, {"labels": ["", ["A"]]}, {"labels": ""}, False),
    (AREA, {"marks": ["", [{"at": [1]}]]}, {"marks": []}, True),
    (AREA, {"marks": [[{"at": [1]}]]}, {"marks": []}, False),
    (AREA, {"style": ["", {"colour": ["red"]}]}, {"style": {}}, False),
    (AREA, {"labels": [["A"]]}, {"labels": "A"}, False),
    (AREA, {"style": [{"colour": ["red"], "width": ["", 2]}]}, {"style": {"colour": "Red"}}, True),
    (AREA, {"style": [{"colour": ["red"], "width": [2]}]}, {"style": {"colour": "red"}}, False),
    (AREA, {"style": [{"colour": ["red"]}]}, {"style": {"colour": "red", "width": 2}}, False),
    (AREA, {"style": ["", {"colour": ["red"]}]}, {"style": {"colour": "red"}}, True),
    (AREA, {"marks": [[{"at": [1]}, {"at": [2, 3]}]]}, {"marks": [{"at": 1}, {"at": 3}]}, True),
    (AREA, {"marks": [[{"at": [1]}, {"at": [2]}]]}, {"marks": [{"at": 2}, {"at": 1}]}, False),
    (AREA, {"marks": [[{"at": [1]}]]}, {"marks": [{"at": 1}, {"at": 1}]}, False),
    (AREA, {"note": [7]}, {"note": 7}, True),
    (AREA, {"note": ["a"]}, {"note": "A"}, True),
    (AREA, {"note": ["a"]}, {"note": 7}, False),
]  # fmt: skip


@pytest.mark.parametrize(("function", "expected", "arguments", "right"), RULES)
def test_the_rules_for_one_call(
    function: dict[str, Any], expected: dict[str, list[Any]], arguments: dict[str, Any], right: bool
) -> None:
    if function is AREA:
        expected, arguments = {**BASE, **expected}, {**ENOUGH, **arguments}
    found = call_fault(function, expected, (function["name"], arguments))
    assert (found is None) is right, found


def _entry(category: str, *expected: dict[str, Any]) -> LeaderboardEntry:
    return LeaderboardEntry("x", category, ({"role": "user", "content": "q"},), (WEATHER, AREA), expected)


ROME, PARIS = ({"weather.get": {"city": [city]}} for city in ("Rome", "Paris"))
CALL_ROME, CALL_PARIS = (("weather.get", {"city": city}) for city in ("Rome", "Paris"))


@pytest.mark.parametrize(
    ("entry", "calls", "right"),
    [
        (_entry("simple_python", ROME), [CALL_ROME], True),
        (_entry("simple_python", ROME), [], False),
        (_entry("multiple", ROME), [CALL_ROME, CALL_ROME], False),
        (_entry("multiple", ROME), [("triangle_area", {"city": "Rome"})], False),
        (_entry("parallel", ROME, PARIS), [CALL_PARIS, CALL_ROME], True),
        (_entry("parallel", ROME, PARIS), [CALL_ROME, CALL_ROME], False),
        (_entry("live_parallel_multiple", ROME, PARIS), [CALL_ROME], False),
        (_entry("irrelevance"), [], True),
        (_entry("live_irrelevance"), [CALL_ROME], False),
        (_entry("live_relevance"), [CALL_ROME], True),
        (_entry("live_relevance"), [], False),
    ],
)
def test_the_rules_for_many(entry: LeaderboardEntry, calls: list[Any], right: bool) -> None:
    assert (fault(entry, calls) is None) is right


TEXTS = st.text(alphabet="Ab ,.'-", min_size=1, max_size=6).filter(lambda text: text.strip(" ,.-") != "")


@given(st.lists(TEXTS, min_size=1, max_size=3), st.lists(st.integers(1, 9), max_size=2), st.booleans())
def test_the_described_calls_are_right(cities: list[str], days: list[int], optional: bool) -> None:
    values: dict[str, list[Any]] = {"city": cities}
    if days:
        values["days"] = [*([""] if optional else []), *days]
    entry = _entry("simple_python", {"weather.get": values})
    calls = list(right_calls(entry))
    assert len(calls) == 1 + len(cities) - 1 + max(0, len(days) - 1) + bool(days and optional)
    assert any("days" not in arguments for _, arguments in calls) == (not days or optional)
    for call in calls:
        assert fault(entry, [call]) is None


def _write(folder: Path, category: str, entries: Sequence[tuple[Any, Any, Any]]) -> None:
    (folder / "possible_answer").mkdir(exist_ok=True)
    questions, answers = [], []
    for number, (question, functions, truth) in enumerate(entries):
        name = f"{category}_{number}"
        turns = [[{"role": "user", "content": question}]]
        questions.append({"id": name, "question": turns, "function": functions})
        answers.append({"id": name, "ground_truth": truth})
    for path, lines in (
        (folder / f"BFCL_v4_{category}.json", questions),
        (folder / "possible_answer" / f"BFCL_v4_{category}.json", answers),
    ):
        if path.parent == folder or "irrelevance" not in category:
            path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    _write(
        tmp_path,
        "simple_python",
        [
            ("How is Rome?", [WEATHER], [ROME]),
            ("Area?", [AREA], [{"triangle_area": {**BASE, "marks": [[{"at": [1]}], ""]}}]),
        ],
    )
    _write(tmp_path, "parallel", [("Rome and Paris?", [WEATHER, AREA], [ROME, PARIS])])
    _write(tmp_path, "irrelevance", [("Sing a song.", [AREA], None)])
    _write(tmp_path, "simple_java", [("x", [WEATHER], [ROME])])
    return tmp_path


def test_a_folder_is_read(folder: Path) -> None:
    found = read_folder(folder)
    assert {name: len(entries) for name, entries in found.entries.items()} == {
        "simple_python": 2, "parallel": 1, "irrelevance": 1,
    }  # fmt: skip
    assert found.left_out == ("simple_java",)
    assert [entry.kind for entries in found.entries.values() for entry in entries] == [
        "one",
        "one",
        "several",
        "none",
    ]
    assert len(read_folder(folder, categories=["simple_python"], limit=1).entries["simple_python"]) == 1


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("BFCL_v4_parallel.json", "{", "line 1"),
        ("BFCL_v4_parallel.json", '{"id": "x", "question": []}', "function"),
        ("BFCL_v4_parallel.json", '{"id": "x", "question": [], "function": []}', "format"),
        ("possible_answer/BFCL_v4_parallel.json", '{"id": "parallel_1", "ground_truth": []}', "parallel_0"),
        (
            "possible_answer/BFCL_v4_parallel.json",
            '{"id": "parallel_0", "ground_truth": [{"f": {}}]}',
            "calls f",
        ),
        ("possible_answer/BFCL_v4_parallel.json", None, "is missing"),
    ],
)
def test_a_broken_file_is_named(folder: Path, path: str, text: str | None, said: str) -> None:
    if text is None:
        (folder / path).unlink()
    else:
        (folder / path).write_text(text)
    with pytest.raises(ResultsFileError, match=said) as caught:
        read_folder(folder)
    assert "BFCL_v4_parallel.json" in str(caught.value)


def test_a_line_ends_at_its_line_feed(folder: Path) -> None:
    path = folder / "BFCL_v4_parallel.json"
    entry = json.loads(path.read_text())
    entry["question"][0][0]["content"] = "one\u2028two\x85three"
    path.write_bytes(json.dumps(entry, ensure_ascii=False).encode() + b"\r\n\r\n")
    [read] = read_folder(folder, categories=["parallel"]).entries["parallel"]
    assert read.messages[0]["content"] == "one\u2028two\x85three"


def test_an_empty_folder_and_an_unknown_category_say_what_to_do(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ResultsFileError, match="bfcl_eval/data"):
        read_folder(tmp_path / "empty")
    with pytest.raises(ResultsFileError, match="there are simple"):
        read_folder(folder, categories=["sql"])
    with pytest.raises(ResultsFileError, match="'simple_java' is not run; run are simple"):
        read_folder(folder, categories=["simple_java"])
    with pytest.raises(ResultsFileError, match="no file of the category"):
        read_folder(folder, categories=["multiple"])


@pytest.mark.parametrize(
    "parameter",
    [
        {"type": "array", "items": {"type": "string"}, "enum": ["a", "b"]},
        {"type": "integer", "enum": ["1", "2"]},
        {"type": "dict"},
        {"type": "tuple", "items": {"type": "float"}},
        {"type": "HashMap", "properties": {"a": {"type": "String"}}, "required": ["a", "gone"]},
        {"type": "string", "minimum": "0", "pattern": "(", "format": "date"},
        {"type": "any", "description": ["no", "text"]},
        {"description": "of no type"},
        {"type": ["string", "null"]},
        {"type": "array", "items": [{"type": "string"}]},
    ],
)
def test_every_function_has_a_grammar(parameter: dict[str, Any]) -> None:
    function = {
        "name": "f",
        "parameters": {"type": "dict", "properties": {"p": parameter}, "required": ["p", "q"]},
    }
    [tool] = tools_of([function]).values()
    engine().check(str(compile_pool([tool])))


def test_names_that_no_tool_can_have_are_changed_and_found_again() -> None:
    functions = [
        {"name": name, "parameters": {"type": "dict", "properties": {}}}
        for name in ("a b", "a_b", "_x", "final_answer", "è")
    ]
    tools = tools_of([*functions, functions[0]])
    assert list(tools) == ["a b", "a_b", "_x", "final_answer", "è"]
    assert len({tool.name for tool in tools.values()}) == 5


def test_grammars_take_right_calls_and_refuse_foreign_arguments(folder: Path) -> None:
    for entries in read_folder(folder).entries.values():
        result = compile_all(entries, engine())
        assert result.faults == []
        assert result.counts["compiled"] == result.counts["pools"] == len(entries)
        assert result.counts["right"] == result.counts["accepted"]
        assert result.counts["foreign"] == result.counts["foreign_refused"]
        assert bool(result.counts["foreign"]) == (entries[0].kind != "none")


def test_a_question_without_functions_has_a_grammar_too() -> None:
    result = compile_all([LeaderboardEntry("x", "live_irrelevance", (), (), ())], engine())
    assert (result.counts["compiled"], result.faults) == (1, [])


def test_the_tables_have_a_line_for_each_category(folder: Path) -> None:
    told: Any = Told()
    leaderboard_run = LeaderboardRun(
        read_folder(folder), named(["none", "grammar"], STRATEGIES), told, model="m", options=RunOptions()
    )
    answers = {}
    for question in leaderboard_run.jobs:
        right = question.configuration.name == "grammar" and question.entry.category == "parallel"
        calls = (CALL_PARIS, CALL_ROME) if right else (CALL_ROME,)
        answers[question] = GradedAnswer(calls, None if right else "wrong", right, not right, 10, 0.5)
    cells = table(answers)
    assert cells.heads == (
        "category", "configuration", "calls", "valid", "right names", "right [95 %]", "truncated", "tokens",
        "s",
    )  # fmt: skip
    none, one = "0 = 0% [0%–66%]", "0 = 0% [0%–79%]"
    assert cells.rows == (
        ("simple_python (2)", "free text", "2", "0", "–", none, "2", "10", "0.5"),
        ("simple_python (2)", "grammar", "2", "0", "–", none, "2", "10", "0.5"),
        ("parallel (1)", "free text", "1", "0", "0", one, "1", "10", "0.5"),
        ("parallel (1)", "grammar", "1", "1", "1", "1 = 100% [21%–100%]", "0", "10", "0.5"),
        ("irrelevance (1)", "free text", "1", "0", "–", one, "1", "10", "0.5"),
        ("irrelevance (1)", "grammar", "1", "0", "–", one, "1", "10", "0.5"),
    )
    assert gain_table(answers).rows == (
        ("simple_python (2)", "0"), ("parallel (1)", "+100"), ("irrelevance (1)", "0"),
    )  # fmt: skip


def test_an_expected_call_that_its_schema_forbids_is_counted_as_invalid() -> None:
    entry = LeaderboardEntry(
        "x", "simple_python", (), (WEATHER,), ({"weather.get": {"city": ["Rome"], "unit": ["kelvin"]}},)
    )
    result = compile_all([entry], engine())
    assert (result.counts["invalid"], result.counts["refused"]) == (1, 0)


def _text(name: str, **arguments: Any) -> str:
    return json.dumps({"name": name, "arguments": arguments})


DONE = _text("final_answer", message="done")


@pytest.mark.parametrize(
    ("texts", "right"),
    [
        (
            (_text("weather.get", city="rome"), _text("weather.get", city="Paris"), DONE),
            {"simple_python_0", "parallel_0"},
        ),
        ((DONE,), {"irrelevance_0"}),
        (("no call at all",), {"irrelevance_0"}),
        ((_text("triangle_area", base=3, height=4, marks=[{"at": 1}]), DONE), {"simple_python_1"}),
        ((_text("triangle_area", base="3"), DONE), set()),
        ((_text("triangle_area", base=3, height=4, deep=1), DONE), set()),
    ],
)  # fmt: skip
def test_answers_of_a_model_are_scored(
    folder: Path, tmp_path: Path, texts: tuple[str, ...], right: set[str]
) -> None:
    backend: Any = Told(*texts)
    leaderboard_run = LeaderboardRun(
        read_folder(folder), named(["none"], STRATEGIES), backend, model="m", options=RunOptions()
    )
    with RunLog(tmp_path / "a.jsonl") as log:
        assert len(list(leaderboard_run.run_all(log))) == 4
        assert leaderboard_run.remaining(log) == ()
        answers = {
            each.entry.id: answer_of(each.entry, log.records[each.key, each.fingerprint])
            for each in leaderboard_run.jobs
        }
    with RunLog(tmp_path / "a.jsonl") as log:
        assert {
            each.entry.id: answer_of(each.entry, log.records[each.key, each.fingerprint])
            for each in leaderboard_run.jobs
        } == answers
    assert {name for name, answer in answers.items() if answer.fault is None} == right


def _graded(
    folder: Path,
    log: Path,
    configurations: Sequence[Configuration],
    backend: Any,
    *,
    categories: Sequence[str] = (),
    **options: Any,
) -> dict[tuple[str, str], GradedAnswer]:
    leaderboard = read_folder(folder, categories=categories, limit=1)
    leaderboard_run = LeaderboardRun(
        leaderboard, configurations, backend, model="m", options=RunOptions(**options)
    )
    with RunLog(log) as opened:
        return {
            (question.entry.category, question.configuration.name): answer_of(question.entry, record)
            for question, record in leaderboard_run.run_all(opened)
        }


def test_every_strategy_runs_and_equal_requests_are_sent_once(folder: Path, tmp_path: Path) -> None:
    backend: Any = Told("```json\n" + _text("weather.get", city="Rome") + "\n```")
    table = named(["none", "text", "grammar"], STRATEGIES)
    done = _graded(folder, tmp_path / "a.jsonl", table, backend)
    free, text = done["simple_python", "none"], done["simple_python", "text"]
    assert (free.calls, free.valid, free.fault) == ((), False, "0 calls, expected 1")
    assert (text.calls, text.valid, text.fault) == ((CALL_ROME,), True, None)
    assert (free.tokens, free.seconds) == (text.tokens, text.seconds) == (10, 0.03)
    # a request each for free text and the grammar; the parsed calls of "parallel" lead to further ones
    assert backend.asked.count("How is Rome?") == 2


@pytest.mark.parametrize(
    ("arguments", "valid"),
    [({"city": "Rome"}, True), ({"city": 1}, False), ({"city": "Rome", "a": 1}, False)],
)
def test_valid_is_what_jsonschema_accepts(
    folder: Path, tmp_path: Path, arguments: dict[str, Any], valid: bool
) -> None:
    backend: Any = Told(json.dumps({"name": "weather.get", "arguments": arguments}))
    done = _graded(folder, tmp_path / "a.jsonl", named(["none"], STRATEGIES), backend)
    answer = done["simple_python", "none"]
    assert (answer.calls, answer.valid) == ((("weather.get", arguments),), valid)


def test_a_search_for_tools_is_no_call_of_a_function(tmp_path: Path) -> None:
    functions = [{**WEATHER, "name": f"weather{number}"} for number in range(20)]
    _write(tmp_path, "multiple", [("How is Rome?", functions, [{"weather19": {"city": ["Rome"]}}])])
    backend: Any = Told(_text("find_tools", query="weather19"), _text("weather19", city="Rome"))
    done = _graded(tmp_path, tmp_path / "a.jsonl", named(["none"], STRATEGIES), backend)
    answer = done["multiple", "none"]
    assert (answer.calls, answer.fault) == ((("weather19", {"city": "Rome"}),), None)


@pytest.mark.slow
@requires_smollm2
def test_every_call_of_a_real_model_is_valid_with_the_grammar(folder: Path, tmp_path: Path) -> None:
    [grammar] = named(["grammar"], STRATEGIES)
    asked: Any = {"categories": ["simple_python", "irrelevance"], "max_tokens": 40}
    with InProcess(str(model_file()), threads=1, context_length=1024) as backend:
        done = _graded(folder, tmp_path / "a.jsonl", [grammar], backend, **asked)
    called = done["simple_python", "grammar"]
    assert called.calls, "the grammar of a category that expects a call has no final_answer"
    assert all(answer.valid or not answer.calls for answer in done.values())


def _bench(arguments: str) -> int:
    with pytest.raises(SystemExit) as exited:
        main(["bench", *arguments.split()])
    return int(exited.value.code or 0)


@pytest.mark.slow
def test_the_command_line(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _bench(f"--bfcl {folder} --compile-only") == 0
    assert "simple_python" in capsys.readouterr().out
    command = f"--bfcl {folder} --configuration grammar --out {tmp_path}/out -q --limit 1 --max-tokens 8"
    command += f" --model {model_path()}"  # a small one
    assert _bench(command) == 0
    assert "irrelevance (1)" in capsys.readouterr().out
    [stored] = (tmp_path / "out").glob("*.json")
    assert len(json.loads(stored.read_text())["answers"]) == 3
    stored.unlink()
    stored.mkdir()
    (tmp_path / "file").touch()
    for out, said in [("out", f"{stored.name} can't be written: Is a directory"), ("file", "is in the way")]:
        assert _bench(f"{command} --out {tmp_path / out}") == 4
        error = capsys.readouterr().err
        assert said in error
        assert "use another --out" in error


CALLED = {
    "choices": [
        {
            "finish_reason": "tool_calls",
            "message": {
                "content": None,
                "tool_calls": [{"function": {"name": "weather.get", "arguments": '{"city": "Rome"}'}}],
            },
        }
    ],
    "usage": {"completion_tokens": 9},
}
SAID = {"choices": [{"finish_reason": "length", "message": {"content": "Rome is"}}]}
BROKEN = {"choices": [{"message": {"tool_calls": [{"function": {"name": "a", "arguments": "{"}}]}}]}


@pytest.mark.parametrize(
    ("answer", "calls", "truncated", "problem"),
    [
        (Reply(200, CALLED), (CALL_ROME,), False, None),
        (Reply(200, SAID), (), True, "0 calls, expected 1"),
        (Reply(200, BROKEN), (), False, "HTTP 200"),
        (Reply(500, {"error": "Failed to parse input"}), (), False, "HTTP 500"),
        (Reply(200, "no JSON"), (), False, "HTTP 200"),
    ],
)
def test_the_answers_of_a_peer_are_graded_as_ours(
    folder: Path, tmp_path: Path, answer: Reply, calls: tuple[Any, ...], truncated: bool, problem: str | None
) -> None:
    configurations = named(["peer-auto", "peer-required"], LEADERBOARD)
    with scripted(v1_chat_completions=[answer]) as server:
        server.answers["/v1/chat/completions"] = server.answers.pop("/v1-chat-completions")
        leaderboard_run = LeaderboardRun(
            read_folder(folder, categories=["simple_python"], limit=1),
            configurations,
            Told(),
            model="m",
            options=RunOptions(),
            peer=Peer(server.url, "key"),
        )
        with RunLog(tmp_path / "a.jsonl") as log:
            graded = [answer_of(each.entry, record) for each, record in leaderboard_run.run_all(log)]
    assert [body["tool_choice"] for _, body in server.asked] == ["auto", "required"]
    for each in graded:
        assert (each.calls, each.truncated) == (calls, truncated)
        assert (each.fault is None) if problem is None else problem in str(each.fault)


def test_a_llama_server_is_started_as_a_peer(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_llama_server()
    asked = ["--bfcl", str(folder), "--category", "simple_python", "--limit", "1", "--max-tokens", "16"]
    named_ones = ["--configuration", "peer-required", "--configuration", "grammar"]
    model = ["--model", str(model_path()), "--peer", "llama-server", "--out", str(tmp_path)]
    with pytest.raises(SystemExit) as exited:
        main(["bench", *asked, *named_ones, *model])
    assert exited.value.code == 0
    printed = capsys.readouterr().out
    assert "peer-required" in printed
    assert "grammar" in printed


@pytest.mark.parametrize(
    ("text", "template", "any_syntax"),
    [
        ("```json\n" + _text("weather.get", city="Rome") + "\n```", False, True),
        ("<tool_call>\n" + _text("weather.get", city="Rome") + "\n</tool_call>", True, True),
        ("It is sunny.", False, False),
    ],
)
def test_free_text_is_read_as_the_template_writes_it_or_in_any_syntax(
    folder: Path, tmp_path: Path, text: str, template: bool, any_syntax: bool
) -> None:
    backend: Any = Told(text)
    backend.model = ModelInfo(traits=ModelTraits(tool_format=FAMILIES[0].form))
    table = named(["template", "any-syntax"], LEADERBOARD)
    done = _graded(folder, tmp_path / "a.jsonl", table, backend, categories=["simple_python"])
    assert {name: bool(graded.calls) for (_, name), graded in done.items()} == {
        "template": template,
        "any-syntax": any_syntax,
    }
