"""Values of a type are those that a text has: what a grammar of a text accepts, judged by its own values."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter

from gbnf import compile_pool
from gbnf.tools import Tool
from gbnf_server import Extraction, Extractor, InProcess, extract_many
from gbnf_server.planner.extraction import _Target
from gbnf_server.planner.spans.values import taken_spans, with_spans
from support.by_hand import completion, drive_by_hand, resolved
from support.effort import scaled
from support.models import make_model

TODAY = dt.date(2026, 11, 21)
dates = st.dates(dt.date(1990, 1, 1), dt.date(2060, 12, 31))


class Currency(Enum):
    EUR = "EUR"
    GBP = "GBP"
    USD = "USD"


class Bill(BaseModel):
    seller: str = ""
    issued: dt.date
    due: dt.date | None = None
    total: Decimal
    currency: Currency = Currency.EUR
    items: int | None = None
    weight_kg: float | None = None
    email: str | None = None
    note: str | None = None


class Visit(BaseModel):
    start: dt.time
    at: dt.datetime | None = None
    minutes: int | None = Field(None, description="How long it takes")
    length: dt.timedelta | None = None
    bills: list[Bill] = Field(default=[], max_length=2)


def restricted(type_: Any, text: str) -> Tool:
    return with_spans(_Target.of(type_, "").tool, text, TODAY)


def possible(type_: Any, text: str, **given: Any) -> bool:
    """Whether a call with these arguments, in the type's order, is in the grammar of a text."""
    tool = restricted(type_, text)
    grammar = compile_pool([tool], property_order="declared", final_answer=False)
    return grammar.match(json.dumps({"name": tool.name, "arguments": given}, separators=(",", ":"))).complete


def bill(**given: Any) -> dict[str, Any]:
    names = ("seller", "issued", "due", "total", "currency", "items", "weight_kg", "email", "note")
    nullable = ("due", "items", "weight_kg", "email", "note")
    return {name: given.get(name) for name in names if name in given or name in nullable}


@given(dates, dates, dates, st.integers(1, 10**6))
def test_only_values_of_the_text_are_possible(
    one: dt.date, other: dt.date, third: dt.date, cents: int
) -> None:
    text = f"Of {one:%d.%m.%Y}, to be paid by {other} at the latest: € {cents / 100:.2f}"
    for day in (one, other, third):
        is_there = day in (one, other)
        assert possible(Bill, text, **bill(issued=str(day), total=cents / 100)) == is_there
    assert not possible(Bill, text, **bill(issued=str(one), total=cents))


@pytest.mark.parametrize(
    ("text", "fields", "is_possible"),
    [
        ("3 March 2026, £76.50", {"currency": "GBP"}, True),
        ("3 March 2026, £76.50", {"currency": "EUR"}, False),
        ("3 March 2026, 76.50", {"currency": "EUR"}, True),  # it is not said
        ("3 March 2026, £76.50", {"due": "2026-03-03"}, False),  # the only date is that of issue
        ("3 March 2026, £76.50, due 5 May 2026", {"due": "2026-05-05"}, True),
        ("3 March 2026, £76.50 for 3 items", {"items": 3}, True),
        ("3 March 2026, £76.50 for 3 items", {"items": 76}, False),
        ("3 March 2026, £76.50, 2 boxes, 4.5 kg", {"weight_kg": 4.5}, True),
        ("3 March 2026, £76.50, 2 boxes, 4.5 kg", {"weight_kg": 2}, False),
        ("3 March 2026, £76.50, 2 boxes", {"weight_kg": 2}, False),
        ("3 March 2026, £76.50, ann@shop.example", {"email": "ann@shop.example"}, True),
        ("3 March 2026, £76.50, ann@shop.example", {"email": "ann@shop"}, False),
        ("3 March 2026, £76.50", {"email": "ann@shop.example"}, False),
        ("3 March 2026, £76.50", {"note": "anything at all"}, True),
        ("3 March 2026, £76.50, Harbour Tools Ltd.", {"seller": "Harbour Tools Ltd"}, True),
        ("3 March 2026, £76.50, Harbour Tools Ltd.", {"seller": "Harbour Tools Inc"}, False),
        ("3 March 2026, £76.50, Harbour Tools Ltd.", {"seller": " Harbour"}, False),
        ("3 March 2026, £76.50, Dr. Okafor", {"seller": "Dr. Okafor"}, True),
    ],
)
def test_fields_take_what_fits_them(text: str, fields: dict[str, Any], is_possible: bool) -> None:
    assert possible(Bill, text, **bill(issued="2026-03-03", total=76.5, **fields)) == is_possible


class Loose(BaseModel):
    level: int | str = 1
    ret: dt.date | Literal["tbc"] = "tbc"
    stars: int = Field(3, ge=1, le=5)
    urgency: Literal[1, 2, 3] = 1
    count: int = 0
    year: int | None = None
    price: float | None = None


@pytest.mark.parametrize(
    ("text", "field", "value", "is_possible"),
    [
        ("Level: high, 3 items", "level", "high", True),
        ("back on 5 March 2026, or to be confirmed", "ret", "tbc", True),
        ("broke after 2 days", "stars", 1, True),
        ("broke after 2 days, and cost 9 euro", "count", 5, True),
        ("broke after 2 days, 3 of them", "count", 5, False),
        ("down for 2 hours", "urgency", 3, True),
        ("from 5 March 2026, 120 minutes", "year", 2026, True),
        ("from 5 March 2026, for 120 minutes", "price", 120, False),  # which is no amount
        ("from 5 March 2026", "price", None, True),
        ("sold at 20 euros each", "price", 20, True),
        ("sold at 20 euros each", "price", 2, False),
    ],
)
def test_what_may_be_something_else_is_left_to_the_model(
    text: str, field: str, value: Any, is_possible: bool
) -> None:
    given = dict.fromkeys(("year", "price")) | {field: value}
    order = [name for name in Loose.model_fields if name in given]
    assert possible(Loose, text, **{name: given[name] for name in order}) == is_possible


@pytest.mark.parametrize("type_", [["string", "null"], None])
def test_null_stays_possible_however_a_schema_allows_it(type_: Any) -> None:
    day = {"type": "string", "format": "date"}
    end = {"type": type_, "format": "date"} if type_ else {"oneOf": [day, {"type": "null"}]}
    schema = {"type": "object", "properties": {"start": day, "end": end}, "required": ["start"]}
    text = "The contract starts on 5 March 2026, no end date."
    assert possible(schema, text, start="2026-03-05", end=None)
    assert not possible(schema, text, start="2026-03-06", end=None)


def test_a_date_that_is_not_read_may_be_written() -> None:
    assert possible(
        Bill, "Paid £7 on 3 March 2026, due the 5/4", **bill(issued="2026-03-03", total=7, due=None)
    )
    assert possible(Node, "4 euro, about 5/4", value={"total": 4, "day": "2026-04-05"})


def test_a_type_that_needs_more_than_a_text_has_is_left_to_the_model() -> None:
    days = {
        "type": "array",
        "items": {"type": "string", "format": "date"},
        "minItems": 2,
        "uniqueItems": True,
    }
    schema = {"type": "object", "properties": {"days": days}, "required": ["days"]}
    driven = drive_by_hand(
        [_Target.of(schema, "").tool],
        [completion(json.dumps({"name": "value", "arguments": {"days": ["2026-03-05", "2026-03-06"]}}))],
        query="on 5 March 2026 and the day after",
        options=resolved(spans=True, required=("value",), terminal=("value",), property_order="declared"),
    )
    assert driven.run.outcome == "answered"


def test_what_a_text_does_not_have_is_left_to_the_model() -> None:
    assert possible(Bill, "no date, nothing", **bill(issued="1999-01-01", total=3))


@pytest.mark.parametrize(
    ("fields", "is_possible"),
    [
        ({"start": "09:30", "at": "2026-05-14T09:30:00", "minutes": 45, "length": "PT45M"}, True),
        ({"start": "09:31"}, False),
        ({"start": "09:30", "at": "2026-05-15T09:30:00"}, False),
        ({"start": "09:30", "minutes": 44}, False),
        ({"start": "09:30", "bills": [bill(issued="2026-05-14", total=7)]}, True),
        ({"start": "09:30", "bills": [bill(issued="2026-05-15", total=7)]}, False),
    ],
)
def test_times_durations_and_nested_values(fields: dict[str, Any], is_possible: bool) -> None:
    text = "On 14 May 2026 at half past nine, for 45 minutes; 7 euro."
    names = ("start", "at", "minutes", "length")
    given = {name: fields.get(name) for name in names} | {"bills": fields.get("bills", [])}
    assert possible(Visit, text, **given) == is_possible


@pytest.mark.parametrize("text", ["09:30", "09:30:00", "09:30:00Z"])
def test_a_time_of_day_needs_no_offset(text: str) -> None:
    assert TypeAdapter(dt.time).validate_json(json.dumps(text))
    tool = _Target.of(Visit, "").tool
    call = {"name": tool.name, "arguments": {"start": text}}
    assert compile_pool([tool], final_answer=False).match(json.dumps(call)).complete


class Node(BaseModel):
    total: float
    day: dt.date | None = None
    children: list[Node] = []


def test_a_recursive_type_has_values_of_the_text_at_its_first_level() -> None:
    tool = restricted(Node, "4,20 euro on 3 March 2026")
    grammar = compile_pool([tool], property_order="declared", final_answer=False)
    for total, is_possible in ((4.2, True), (42, False)):
        value = {"total": total, "day": "2026-03-03"}
        call = {"name": tool.name, "arguments": {"value": value}}
        assert grammar.match(json.dumps(call)).complete == is_possible


def test_a_schema_with_many_references_to_itself_takes_little_time() -> None:
    properties = {f"p{number}": {"type": "array", "items": {"$ref": "#/$defs/N"}} for number in range(12)}
    inner = {"type": "object", "properties": properties | {"day": {"type": "string", "format": "date"}}}
    schema = {**inner, "$defs": {"N": inner}}
    assert len(json.dumps(restricted(schema, "on 3 March 2026").args)) < 20_000


def test_the_span_of_each_value_is_known() -> None:
    text = "Sept. 4th, 2026: 1.284,90 € for three items"
    value = {"issued": "2026-09-04", "total": 1284.9, "currency": "EUR", "items": 3, "due": None}
    schema = _Target.of(Bill, "").schema
    assert taken_spans(value, schema, text, TODAY) == {
        "/issued": "Sept. 4th, 2026",
        "/total": "1.284,90",
        "/currency": "€",
        "/items": "three",
    }


class Stay(BaseModel):
    arrival: dt.date
    nights: int
    price: float | None = None


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with InProcess(make_model(tmp_path_factory.mktemp("model") / "tiny.gguf", context=4096)) as opened:
        yield opened


def test_a_model_of_random_weights_takes_values_of_the_text(model: InProcess, tmp_path: Path) -> None:
    extractor = Extractor(Stay, model, temperature=2.0)
    for seed in range(scaled(8)):
        arrival, nights = dt.date(2026, 1 + seed % 12, 3), seed + 2
        text = f"We arrive on {arrival:%d/%m/%Y} for {nights} nights, 640 euros in total, room 12."
        found = extractor.extract(text)
        assert found.value == Stay(arrival=arrival, nights=nights, price=found.value.price)
        assert found.value.price in (640, None)
        assert found.spans["/arrival"] == f"{arrival:%d/%m/%Y}"
        assert 0 <= found.probabilities.get("/price", 1) <= 1
    log = tmp_path / "log"
    results = [next(extract_many(Stay, [text], model=model, log=log)) for _ in range(2)]
    first, again = (each.spans for each in results if isinstance(each, Extraction))
    assert first == again != {}


def test_the_order_of_day_and_month_may_be_asked_for(model: InProcess) -> None:
    orders: tuple[Literal["month"] | None, ...] = (None, "month")
    assert taken_spans("2026-12-25", {"format": "date"}, "25/12/2026", TODAY, "month") == {"": "25/12/2026"}
    for order, day in zip(orders, (dt.date(2026, 4, 3), dt.date(2026, 3, 4)), strict=True):
        found = Extractor(dt.date, model, date_order=order, temperature=2.0).extract("on 03/04/2026")
        assert found.value == day
        assert found.spans == {"": "03/04/2026"}


def test_spans_can_be_turned_off(model: InProcess) -> None:
    text = "Nothing is said of the year; 3/4/2026 is a date."
    free = (Extractor(dt.date, model, spans=False, seed=seed, temperature=2.0) for seed in range(4))
    assert {extractor.extract(text).value for extractor in free} != {dt.date(2026, 4, 3)}
    assert Extractor(dt.date, model, temperature=2.0).extract(text).value == dt.date(2026, 4, 3)
