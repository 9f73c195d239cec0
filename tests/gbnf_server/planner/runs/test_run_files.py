"""Files of runs: each kind is read, and of a damaged one it is said where it is damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.inspect.pages.run_view import view_run
from gbnf_server.planner.runs.run_files import RunFileError, parse_runs, read_runs
from support.command_line import Gbnf, gbnf
from support.json_values import json_values

__all__ = ["gbnf"]

TRACE = ['{"', "sampled", 0.1, 9, 0.5, 0.8, [["{", 0.6, "grammar"], ['{"', 0.5, None]]]
AT = "2026-01-02T03:04:05+00:00"
STEP = {"number": 1, "text": "{}", "call": None, "error": "it is no call", "refusal": "unparsed"}
CALLED = {
    "event": "model_called", "at": AT, "step": 1, "text": "{}", "finish_reason": "stop",
    "usage": {"prompt_tokens": 1, "completion_tokens": 1}, "timings": {"prompt_s": 0.1}, "duration_s": 0.2,
}  # fmt: skip
RUN: dict[str, Any] = {
    "outcome": "exhausted", "answer": None, "error": "no answer", "query": "go", "turn": "t", "steps": [STEP],
    "warnings": [], "started_at": AT, "duration_s": 1.5,
    "events": [{"event": "step_started", "at": AT, "step": 1, "tools": ["a"], "refers_to": []}, CALLED],
    "decodings": [
        {"text": "{}", "finish_reason": "stop", "step": 1, "grammar": "root ::= [a]", "trace": [TRACE]},
    ],
}  # fmt: skip


def changed(value: Any, path: tuple[Any, ...], to: Any) -> Any:
    """The value with another one in it; without one, if it is `...`."""
    copy = json.loads(json.dumps(value))
    inside = copy
    for step in path[:-1]:
        inside = inside[step]
    if to is ...:
        del inside[path[-1]]
    else:
        inside[path[-1]] = to
    return copy


def test_the_example_is_read() -> None:
    [run] = parse_runs(json.dumps(RUN), "run.json")
    assert run.run is not None
    assert (run.query, run.run.outcome, len(run.events)) == ("go", "exhausted", 2)
    assert (run.run.prompt_tokens, run.run.completion_tokens, run.run.cached_tokens) == (0, 0, 0)
    assert (len(run.decodings[0].trace), run.decodings[0].seed) == (1, 0)
    assert parse_runs(json.dumps(RUN, indent=1), "run.json") == (run,)


@pytest.mark.parametrize(
    ("path", "to", "where", "message"),
    [
        (("outcome",), ..., "/outcome", "is missing"),
        (("outcome",), "won", "/outcome", '"won"'),
        (("query",), 3, "/query", "must be strings"),
        (("turn",), ..., "/turn", "Field required"),
        (("started_at",), "soon", "/started_at", '"soon"'),
        (("steps",), {}, "/steps", "{}"),
        (("steps", 0, "number"), "x", "/steps/0/number", '"x"'),
        (("steps", 0, "refusal"), "x", "/steps/0/refusal", '"x"'),
        (("events",), {}, "/events", "must be a list, got {}"),
        (("events", 1), 7, "/events/1", "7 is no event"),
        (("events", 1, "event"), "no", "/events/1", '"no" is no event'),
        (("events", 1, "finish_reason"), "no", "/events/1/finish_reason", '"no"'),
        (("decodings",), 1, "/decodings", "must be a list, got 1"),
        (("decodings", 0), [], "/decodings/0", "[]"),
        (("decodings", 0, "trace"), {}, "/decodings/0/trace", "{}"),
        (("decodings", 0, "trace", 0), [], "/decodings/0/trace/0", "a list of 7 values: token, kind"),
        (("decodings", 0, "trace", 0, 0), 1, "/decodings/0/trace/0", "1 is no token"),
        (("decodings", 0, "trace", 0, 0), {"bytes": "xx"}, "/decodings/0/trace/0", "xx"),
        (("decodings", 0, "trace", 0, 1), "x", "/decodings/0/trace/0/kind", '"x"'),
        (("decodings", 0, "trace", 0, 4), 2, "/decodings/0/trace/0", "2 is no probability"),
        (("decodings", 0, "trace", 0, 4), True, "/decodings/0/trace/0", "true is no probability"),
        (("decodings", 0, "trace", 0, 6), 2, "/decodings/0/trace/0", "lists of 3 values"),
        (("decodings", 0, "trace", 0, 6, 0, 2), "me", "/decodings/0/trace/0/candidates/0/refused_by", '"me"'),
    ],
)
def test_a_damaged_file_says_where(path: tuple[Any, ...], to: Any, where: str, message: str) -> None:
    with pytest.raises(RunFileError) as raised:
        parse_runs(json.dumps(changed(RUN, path, to)), "run.json")
    told = str(raised.value)
    assert told.startswith("run.json, /")
    assert f"{where}" in told
    assert message in told
    assert "gbnf run --record" in told


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "must be an object"),
        ('"x"', "must be an object"),
        ('{"batch": "1"}', "has no runs yet"),
        ('{"batch": "1"}\n{"id": 3}', "line 2, /id: must be a string, got 3"),
        ('{"batch": "1"}\n{"id": "a", "kind": "run"}', "line 2, /run"),
        (
            '{"batch": "1"}\n{"id": "a", "kind": "model call", "reply": {"text": 3}}',
            "line 2, /reply/text",
        ),
        ('{"event": "run_started"}', "line 1, /at"),
        ('{"id": "1", "query": "x", "outcome": "answered"}\n{', "line 2 is not JSON"),
    ],
)
def test_other_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(RunFileError) as raised:
        parse_runs(text, "run.json")
    assert message in str(raised.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RunFileError, match="cannot be read"):
        read_runs(tmp_path / "no.json")
    (tmp_path / "bytes").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(RunFileError, match="not UTF-8: invalid start byte at byte 7"):
        read_runs(tmp_path / "bytes")


def paths(value: Any) -> list[tuple[Any, ...]]:
    """Every path in a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(), *((step, *rest) for step, member in inside for rest in paths(member))]


@given(st.sampled_from(paths(RUN)[1:]), json_values | st.just(...))
def test_whatever_is_in_it_a_file_is_shown_or_refused(path: tuple[Any, ...], to: Any) -> None:
    text = json.dumps(changed(RUN, path, to))
    try:
        runs = parse_runs(text, "run.json")
    except RunFileError:
        return
    for run in runs:
        view_run(run)


@pytest.mark.slow
def test_every_kind_of_file_that_commands_write(gbnf: Gbnf, tmp_path: Path) -> None:
    options = ["--workspace", tmp_path / "work", "--yes", "--quiet"]
    ask = "create a folder trips"
    printed = gbnf("run", ask, *options, "--record", tmp_path / "record.json", "--json")
    (tmp_path / "json.json").write_text(printed.out, "utf-8")
    (tmp_path / "stream.jsonl").write_text(gbnf("run", ask, *options, "--json", "--stream").out, "utf-8")
    (tmp_path / "requests.jsonl").write_text(f"{json.dumps(ask)}\n" * 2, "utf-8")
    assert gbnf("batch", tmp_path / "requests.jsonl", *options, "--out", tmp_path / "out.jsonl").code == 0
    record = json.loads((tmp_path / "record.json").read_text("utf-8"))
    as_printed = json.loads(printed.out)
    assert as_printed.pop("hints") == []  # what the command says of a run, no part of it
    assert as_printed.items() <= record.items()
    assert record.keys() - as_printed.keys() == {"decodings"}

    names = {"record.json": 1, "json.json": 1, "stream.jsonl": 1, "out.jsonl": 2, "out.jsonl.log": 2}
    for name, count in names.items():
        runs = read_runs(tmp_path / name)
        assert len(runs) == count
        for run in runs:
            assert run.query == ask
            assert run.run is not None
            view = view_run(run)
            assert view.outcome == "answered"
            assert [step.title for step in view.steps] == ["Step 1", "Step 2"]
            tools = [entry.label for step in view.steps for entry in step.entries if entry.kind == "tool"]
            assert tools == ["create_dirs"]
            calls = [entry for step in view.steps for entry in step.entries if entry.kind == "model"]
            assert [entry.text for entry in calls] == [step.text for step in run.run.steps]
            for decoding in run.decodings:
                assert decoding.finish_reason == "stop"
                assert decoding.usage.completion_tokens > 0 < decoding.timings.prompt_s
            if name in ("record.json", "out.jsonl.log"):
                assert [entry.decoding for entry in calls] == [0, 1]
    [run] = read_runs(tmp_path / "record.json")
    assert [len(each.trace) > 3 for each in run.decodings] == [True, True]
