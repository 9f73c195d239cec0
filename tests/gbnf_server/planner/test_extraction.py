"""Typed answers: the probabilities against llama.cpp's own, the values against pydantic."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from itertools import count, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, assert_type

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, model_validator

from gbnf import Grammar, compile_pool, compile_schema
from gbnf.dialects import call_schema, schema_violation, xgrammar_text
from gbnf.errors import InvalidArgumentError, SchemaError
from gbnf.prompts.messages import Message
from gbnf.schema.models import json_schema_of
from gbnf.testing.derivations import derivations
from gbnf.tool_formats import TextDelta
from gbnf.tools import Tool
from gbnf_server import (
    Extraction,
    ExtractionError,
    Extractor,
    InProcess,
    achoose,
    aextract,
    aextract_many,
    aextract_stream,
    choose,
    extract,
    extract_many,
    extract_stream,
)
from gbnf_server.backends.base import BackendEvent, Completion, Dialect, ModelInfo, Request
from gbnf_server.backends.model_traits import ModelTraits
from gbnf_server.planner.extraction import _chooser
from gbnf_server.planner.runs.run_log import MOST_WAITING, RunLogError
from gbnf_server.system.errors import AnswerTimeoutError, BackendError, ServerResponseError
from support.backends import FakeBackend
from support.effort import scaled
from support.models import make_model
from support.python_types import TYPES
from support.scripts import Script

TEXT = "Ada has two cats."


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=0, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    barks: bool


class Home(BaseModel):
    name: str = Field(max_length=4)
    pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]] = Field(max_length=2)


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Tree(BaseModel):
    size: int
    parts: list[Tree] = []


EVERY_TYPE: dict[str, Any] = TYPES | {
    "a bool": bool,
    "an int": int,
    "a list": list[Size],
    "a union": Cat | Dog | None,
    "a list of trees": list[Tree],
    "a dict of trees": dict[str, Tree],
    "a schema with an identifier": {
        "$id": "https://example.com/tree",
        "type": "array",
        "items": {"$ref": "#tree"},
        "$defs": {"tree": {"$anchor": "tree", "type": "array", "items": {"$ref": "tree"}, "maxItems": 2}},
    },
}


class Answering(FakeBackend):
    """Says one text, as a model of a server that takes grammars of a dialect, and enforces none."""

    enforces_grammar = False
    model = ModelInfo(traits=ModelTraits(gives_logprobs=False))

    def __init__(self, dialect: Dialect) -> None:
        self.dialect, self.text = dialect, ""

    def respond(self, *_given: Any, **_limits: Any) -> Completion:
        return Completion(self.text, "stop")


class Listening(Script):
    """Keeps the messages of each request."""

    def __init__(self, *texts: str) -> None:
        super().__init__({TEXT: texts})
        self.heard: list[Sequence[Message]] = []

    def respond(self, messages: Sequence[Message], **limits: Any) -> Completion:
        self.heard.append(messages)
        return super().respond(messages, **limits)


@dataclass
class Point:
    x: Annotated[int, Field(ge=0, le=3)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    path = make_model(tmp_path_factory.mktemp("model") / "tiny.gguf", context=4096)
    with InProcess(path, parallel=2) as opened:
        yield opened


@pytest.mark.parametrize(
    "type_", [Home, Size, Point, Literal["a", 2], bool, list[Size], Cat | Dog, Point | None, dict[Size, bool]]
)
def test_a_value_has_its_type(model: InProcess, type_: Any) -> None:
    found = extract(type_, TEXT, model=model)
    assert found.value == TypeAdapter(type_).validate_json(json.dumps(found.json))
    assert found.attempts[-1].problem == ""
    assert found.usage.completion_tokens > 0
    assert all(0 <= share <= 1 for share in found.probabilities.values())
    for shares in found.alternatives.values():
        assert math.isclose(sum(shares.values()), 1)


@pytest.mark.parametrize("name", EVERY_TYPE)
def test_a_value_of_every_type_is_read_from_a_server_of_every_dialect(name: str) -> None:
    """The oracles: pydantic's reader, and jsonschema with pydantic's own schema."""
    type_ = EVERY_TYPE[name]
    is_schema = isinstance(type_, dict)
    schema = type_ if is_schema else json_schema_of(type_)
    dialects: tuple[Dialect, ...] = ("gbnf", "json_schema", "none")
    backends = {dialect: Answering(dialect) for dialect in dialects}
    extractors = {
        dialect: Extractor(type_, backend, attempts=1, spans=False) for dialect, backend in backends.items()
    }
    target = extractors["gbnf"]._target
    xgrammar = Grammar.parse(xgrammar_text(compile_pool([target.tool], property_order="declared")))
    joint = call_schema([target.tool])

    def call_of(text: str) -> str:
        arguments = f'{{"value": {text}}}' if target.is_wrapped else text
        return f'{{"name": "{target.tool.name}", "arguments": {arguments}}}'

    @settings(max_examples=scaled(10), deadline=None, suppress_health_check=list(HealthCheck))
    @given(derivations(compile_schema(type_, property_order="declared"), size=60), st.data())
    def law(text: str, data: st.DataObject) -> None:
        assert xgrammar.match(call_of(text)).complete
        assume(schema_violation(schema, text) is None)  # no grammar enforces `uniqueItems`
        for dialect, extractor in extractors.items():
            backends[dialect].text = call_of(text)
            found = extractor.extract(TEXT)
            assert found.json == json.loads(text)
            expected = found.json if is_schema else TypeAdapter(type_).validate_json(text)
            assert repr(found.value) == repr(expected)
        other = data.draw(
            st.sampled_from(["null", "-1", "7.25", '"a"', f"[{text}]", f'{{"a": {text}}}', text])
        )
        is_joint = schema_violation(joint, call_of(other)) is None
        assert is_joint == (schema_violation(schema, other) is None)

    law()


def test_the_probability_of_an_alternative_is_that_of_its_whole_text(model: InProcess) -> None:
    """The oracle: the log-probabilities of the tokens where the grammar allows this text only."""
    found = choose(["on", "of", "offer"], TEXT, model=model)
    texts: dict[str, float] = {}
    extractor = _chooser(["on", "of", "offer"], "", {"model": model})
    for option in found.probabilities:
        only = extractor._planner.tools[0].model_args() | {
            "properties": {"value": {"enum": [option]}},
        }
        tool = Tool("choose", args=only)
        first = _first_request(extractor)
        answer = model.complete(
            Request(first.messages, compile_pool([tool]), max_tokens=200, logprobs=0, evidence=None)
        )
        begins, written = 0, json.dumps(option).encode()
        position = answer.text.encode().index(written)
        total = 0.0
        for each in answer.logprobs:
            if position <= begins < position + len(written):
                total += each.logprob
            begins += len(each.token)
        texts[option] = total
    most = max(texts.values())
    weights = {option: math.exp(score - most) for option, score in texts.items()}
    for option, share in found.probabilities.items():
        assert math.isclose(share, weights[option] / sum(weights.values()), rel_tol=0.05, abs_tol=1e-6)


def _first_request(extractor: Extractor[Any]) -> Request:
    from gbnf_server.planner.drivers import first_request

    return first_request(TEXT, extractor._planner.tools, extractor._planner.options)


def test_what_a_validator_refuses_is_reported_to_the_model() -> None:
    class Even(BaseModel):
        number: int

        @model_validator(mode="after")
        def check(self) -> Even:
            if self.number % 2:
                raise ValueError("it is odd")
            return self

    calls = [json.dumps({"name": "Even", "arguments": {"number": number}}) for number in (3, 4)]
    script = Listening(*calls)
    found = extract(Even, TEXT, model=script)
    assert found.value.number == 4
    assert [bool(each.problem) for each in found.attempts] == [True, False]
    assert "it is odd" in found.attempts[0].problem
    assert any("it is odd" in message["content"] for message in script.heard[1])


def test_the_attempts_are_bounded_and_shown(model: InProcess) -> None:
    class Never(BaseModel):
        number: Annotated[int, Field(ge=0, le=999)]

        @model_validator(mode="after")
        def check(self) -> Never:
            raise ValueError("never")

    with pytest.raises(ExtractionError, match="never") as raised:
        extract(Never, TEXT, model=model, attempts=2)
    assert len(raised.value.attempts) == 2


@pytest.mark.parametrize("dialect", ["json_schema", "none"])
@pytest.mark.parametrize(("written", "clamped"), [("17", 3), ("-1", 0), ("2.5", None), ("2", 2)])
def test_numbers_are_moved_to_their_bounds_only_if_that_is_asked_for(
    dialect: Dialect, written: str, clamped: int | None
) -> None:
    backend = Answering(dialect)
    backend.text = f'{{"name": "Point", "arguments": {{"x": {written}}}}}'
    for clamp in (True, False):
        extractor = Extractor(Point, backend, clamp=clamp)
        if clamped is not None and (clamp or written == str(clamped)):
            assert extractor.extract(TEXT).value.x == clamped
            continue
        with pytest.raises(ExtractionError) as raised:
            extractor.extract(TEXT)
        assert raised.value.outcome == "invalid"


class Failing(FakeBackend):
    """Says an invalid text, and fails after `answers` of them. `cuts`: it has begun an answer then."""

    def __init__(self, error: BackendError, answers: int, *, cuts: bool) -> None:
        self._error, self._answers, self._cuts = error, answers, cuts
        self.asked = 0

    async def generate(self, _request: Request) -> AsyncGenerator[BackendEvent, None]:
        self.asked += 1
        if self.asked > self._answers:
            if self._cuts:
                yield TextDelta("half")
            raise self._error
        yield Completion("no value", "stop")


@pytest.mark.parametrize("answers", [0, 1, 2])
@pytest.mark.parametrize("cuts", [True, False])
@pytest.mark.parametrize("seconds", [60.0, 1e-9])
def test_an_error_says_what_ended_the_attempts(answers: int, cuts: bool, seconds: float) -> None:
    """An error of the server, after attempts that were refused; or the limit of time, before any."""
    backend = Failing(ServerResponseError(400, "broken"), answers, cuts=cuts)
    extractor = Extractor(bool, backend, max_seconds=seconds, attempts=3)
    with pytest.raises(ExtractionError) as raised:
        extractor.extract(TEXT)
    (many,) = extract_many(
        bool, [TEXT], model=Failing(backend._error, answers, cuts=cuts), max_seconds=seconds
    )
    assert isinstance(many, ExtractionError)
    for error in (raised.value, many):
        assert error.outcome == ("error" if seconds > 1 else "hang")
        if seconds > 1:
            assert [each.text for each in error.attempts] == ["no value"] * answers + ["half"] * cuts
            assert all(each.problem for each in error.attempts)


@pytest.mark.parametrize(("failing", "status", "results"), [(2, 500, 5), (3, 500, 0), (1, 401, 0)])
def test_many_texts_outlast_errors_that_are_few(failing: int, status: int, results: int) -> None:
    class Flaky(FakeBackend):
        asked = 0

        async def generate(self, _request: Request) -> AsyncGenerator[BackendEvent, None]:
            self.asked += 1
            if self.asked <= failing:
                raise ServerResponseError(status, "broken")
            yield Completion(GOOD, "stop")

    many = extract_many(bool, ["text"] * 5, model=Flaky(), concurrency=1)
    if not results:
        with pytest.raises(ServerResponseError):
            list(many)
        return
    outcomes = [each.outcome if isinstance(each, ExtractionError) else "value" for each in many]
    assert outcomes == ["error"] * failing + ["value"] * (results - failing)


@pytest.mark.parametrize("ended", [0, 1, 2])
def test_an_answer_that_the_limit_of_time_ends_is_no_invalid_one(ended: int) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    class Slow(Failing):
        async def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
            nonlocal now
            if self.asked == ended:
                now += timedelta(seconds=400)
            async for event in super().generate(request):
                yield event

    extractor = Extractor(bool, Slow(AnswerTimeoutError("late"), ended, cuts=True), attempts=3)
    extractor._planner._clock = lambda: now
    with pytest.raises(ExtractionError) as raised:
        extractor.extract(TEXT)
    assert raised.value.outcome == "hang"
    assert [each.text for each in raised.value.attempts] == ["no value"] * ended + ["half"]


def test_the_outcome_is_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    script = Script({"a": ["no"] * 3, "b": [GOOD]})
    for model in (script, Script({})):  # the second asks nothing
        first, second, blank = extract_many(bool, ["a", "b", " "], model=model, log=log)
        assert isinstance(first, ExtractionError)
        assert isinstance(blank, ExtractionError)
        assert (first.outcome, [each.text for each in first.attempts]) == ("invalid", ["no"] * 3)
        assert (_value(second), blank.outcome) == (True, "error")
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert "invalid" in json.dumps(records)


@pytest.mark.parametrize("type_", [{"enum": [1], "type": "string"}, False])
def test_a_schema_without_values_is_an_error(model: InProcess, type_: Any) -> None:
    with pytest.raises(SchemaError):
        Extractor(type_, model)


def test_bad_input_is_an_error_at_once(model: InProcess, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="no JSON Schema"):
        Extractor(Callable[[int], int], model)
    with pytest.raises(ValueError, match="at least two values"):
        choose(["a"], TEXT, model=model)
    with pytest.raises(ValueError, match="empty"):
        extract(bool, " ", model=model)
    log = tmp_path / "log.jsonl"
    list(extract_many(bool, [TEXT], model=model, log=log))
    with pytest.raises(RunLogError, match=r"log\.jsonl"):
        list(extract_many(Size, [TEXT], model=model, log=log))


def test_many_are_in_order_and_resumed(model: InProcess, tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(5)]
    log = tmp_path / "log.jsonl"
    first = list(extract_many(Home, texts, model=model, log=log, concurrency=2))
    alone = [extract(Home, text, model=model) for text in texts]
    assert [_value(each) for each in first] == [each.value for each in alone]
    lines = log.read_text().splitlines()
    log.write_text("".join(f"{line}\n" for line in lines[:2]) + lines[2][:20])  # as when it was killed
    again = list(extract_many(Home, texts, model=model, log=log))
    assert [_value(each) for each in again] == [_value(each) for each in first]
    assert log.read_text().splitlines()[:2] == lines[:2]
    assert len(log.read_text().splitlines()) == 5
    both = list(extract_many(Home, [texts[0], texts[0]], model=model, log=log))
    assert len(both) == 2


def test_a_type_checker_knows_the_type_of_the_value() -> None:
    """`assert_type` does nothing here: mypy judges it, with the other tests."""
    extraction = extract(bool, "a", model=Script({"a": [GOOD]}))
    assert_type(extraction, Extraction[bool])
    assert extraction.value is True


def test_many_are_asked_at_the_same_time() -> None:
    class Waiting(FakeBackend):
        def __init__(self) -> None:
            self._barrier = asyncio.Barrier(3)

        async def generate(self, _request: Request) -> AsyncGenerator[BackendEvent, None]:
            await self._barrier.wait()  # of each of three requests, until all have come
            yield Completion(GOOD, "stop")

    results = extract_many(bool, ["text"] * 6, model=Waiting(), concurrency=3, max_seconds=60)
    assert [_value(each) for each in results] == [True] * 6


def _value(result: Any) -> Any:
    assert isinstance(result, Extraction)
    return result.value


def test_a_text_without_a_value_does_not_end_the_others() -> None:
    good = '{"name": "bool", "arguments": {"value": true}}'
    script = Script({"a": ["no"] * 3, "b": [good]})
    first, second = extract_many(bool, ["a", "b"], model=script)
    assert isinstance(first, ExtractionError)
    assert _value(second) is True


GOOD = '{"name": "bool", "arguments": {"value": true}}'
CHOSEN = '{"name": "choose", "arguments": {"value": true}}'


class Always(dict[str, Sequence[str]]):
    """A script that has the same text for each request."""

    def __missing__(self, _request: str) -> Sequence[str]:
        return [GOOD]


@pytest.mark.parametrize("blank", ["", " \n", "\ud800"])
def test_a_text_that_cannot_be_asked_does_not_end_the_others(blank: str) -> None:
    first, second, third = extract_many(bool, ["a", blank, "c"], model=Script(Always()))
    assert isinstance(second, ExtractionError)
    assert _value(first) is _value(third) is True


def test_a_value_that_a_validator_refuses_later_does_not_end_the_others() -> None:
    seen: list[int] = []

    class Once(BaseModel):
        number: int

        @model_validator(mode="after")
        def check(self) -> Once:
            if seen.count(self.number):
                raise ValueError("it was there before")
            seen.append(self.number)
            return self

    texts = {name: [json.dumps({"name": "Once", "arguments": {"number": 1}})] for name in "ab"}
    results = list(extract_many(Once, "ab", model=Script(texts), attempts=1))
    assert [type(each) for each in results] == [ExtractionError] * 2


def test_texts_are_taken_as_they_are_needed_and_not_in_the_event_loop() -> None:
    taken: list[int] = []
    chooser = Script({"text 0": [CHOSEN]})

    def texts() -> Iterator[str]:
        for number in count():
            taken.append(number)
            if number == 0:  # which blocks, and needs the event loop
                choose([True, False], "text 0", model=chooser)
            yield f"text {number}"

    with closing(extract_many(bool, texts(), model=Script(Always()), concurrency=2)) as results:
        for _ in range(3):
            assert _value(next(results)) is True
    assert len(taken) <= 3 + MOST_WAITING + 2 * 2


def test_a_model_is_not_opened_in_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def opening(model: Any, **_options: Any) -> Any:
        threads.append(threading.get_ident())
        return model

    async def all_of_them() -> None:
        assert [_value(each) async for each in aextract_many(bool, ["a"], model=Script(Always()))]
        assert [each async for each in aextract_stream(bool, "a", model=Script(Always()))]
        assert (await aextract(bool, "a", model=Script(Always()))).value
        assert (await achoose([True, False], "a", model=Script({"a": [CHOSEN]}))).value

    monkeypatch.setattr("gbnf_server.planner.extraction.open_model", opening)
    asyncio.run(all_of_them())
    assert len(threads) == 4
    assert threading.get_ident() not in threads


def test_a_stream_grows_up_to_the_value(model: InProcess) -> None:
    seen: list[Home] = list(extract_stream(Home, TEXT, model=model))
    assert all(isinstance(each, Home) for each in seen)
    assert seen[-1] == extract(Home, TEXT, model=model).value
    names = [each.name for each in seen if each.name is not None]
    assert all(later.startswith(earlier) for earlier, later in pairwise(names))
    assert len(seen) > 2


def test_each_verb_has_one_for_event_loops(model: InProcess) -> None:
    async def all_of_them() -> None:
        assert (await aextract(Size, TEXT, model=model)).value == extract(Size, TEXT, model=model).value
        assert [_value(each) async for each in aextract_many(Size, [TEXT], model=model)]
        assert [each async for each in aextract_stream(Size, TEXT, model=model)][-1] in Size
        assert (await achoose(Size, TEXT, model=model)).value in Size

    asyncio.run(all_of_them())


VALUES = ["red", "redder", "green", "a b", 'q"', "é", 1, 12, 1.5, False, None]


@settings(max_examples=scaled(40))
@given(st.lists(st.sampled_from(VALUES), min_size=2, unique_by=repr))
def test_any_choices_have_probabilities(model: InProcess, options: list[Any]) -> None:
    found = choose(options, TEXT, model=model)
    assert found.value == max(found.probabilities, key=lambda each: found.probabilities[each])
    assert {json.dumps(each) for each in found.probabilities} == {json.dumps(each) for each in options}
    assert math.isclose(sum(found.probabilities.values()), 1)


class Unconstrained(Listening):
    """A model on a server that takes no grammar."""

    dialect = "none"


class Pick(BaseModel):
    best: int = Field(ge=1, le=3)
    reason: str


@pytest.mark.parametrize(
    "text",
    [
        "2\nIt is short.", "2.\nIt is short.", "2)\nIt is short.", "**2**\nIt is short.", "2 - It is short.",
        "Option 2\nIt is short.", "best: 2\nreason: It is short.", '{"best": 2, "reason": "It is short."}',
        '{"name": "Pick", "arguments": {"best": "2", "reason": "It is short."}}',
    ],
)  # fmt: skip
def test_without_a_grammar_a_value_is_read_from_lines(text: str) -> None:
    model = Unconstrained(text)
    extraction = extract(Pick, TEXT, model=model)
    assert extraction.value == Pick(best=2, reason="It is short.")
    assert [attempt.text for attempt in extraction.attempts] == [text]
    system, asked = model.heard[0]
    assert system["content"].endswith("<best: integer, 1 to 3>\n<reason: string>")
    assert asked["content"] == TEXT


def test_lines_without_the_value_are_reported_to_the_model() -> None:
    texts = "17\nIt is short.", "<best: integer, 1 to 3>\n<reason: string>", "All.", "3\nIt is short."
    model = Unconstrained(*texts)
    extraction = extract(Pick, TEXT, model=model, attempts=4)
    assert extraction.value == Pick(best=3, reason="It is short.")
    problems = [attempt.problem for attempt in extraction.attempts]
    for problem, part in zip(problems, ["at most 3", "placeholder", "missing", ""], strict=True):
        assert part in problem
        assert bool(part) == bool(problem)
    assert [message["content"] for message in model.heard[-1][2::2]] == list(texts[:3])
    with pytest.raises(ExtractionError, match="after 3 attempts"):
        extract(Pick, TEXT, model=Unconstrained(*texts))


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (Literal["spam", "ham"], "Ham.", "ham"),
        (bool, "Yes", True),
        (int, "2 - my pick", 2),
        (date, "2026-03-03", date(2026, 3, 3)),
        (Size, "**small**", Size.SMALL),
        (list[str], "an old pond\na frog\nsplash", ["an old pond", "a frog", "splash"]),
        (int | None, "none", None),
        (Point, "3", Point(3)),
    ],
)
def test_each_flat_type_is_read_from_lines(type_: Any, text: str, value: Any) -> None:
    assert extract(type_, TEXT, model=Unconstrained(text)).value == value


def test_a_choice_is_read_from_a_line() -> None:
    assert choose(["spam", "ham"], TEXT, model=Unconstrained("It is Spam.")).value == "spam"


def test_a_value_with_parts_is_asked_for_as_a_call() -> None:
    call = {"name": "Home", "arguments": {"name": "Ada", "pets": [{"kind": "cat", "lives": 9}]}}
    model = Unconstrained(json.dumps(call))
    assert extract(Home, TEXT, model=model).json == call["arguments"]
    assert "Home(name, pets)" in model.heard[0][0]["content"]


def test_lines_may_be_asked_for_where_there_is_a_grammar() -> None:
    assert extract(Pick, TEXT, model=Listening("2\nIt is short."), call_format="lines").value.best == 2
