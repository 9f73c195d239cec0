"""Schemas with instances, and patterns with texts: what the grammar accepts, refuses and derives."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from fuzz_targets.common import ORDERS, SEEDS, Target, accepts
from gbnf import compile_schema
from gbnf.errors import SchemaError
from support.oracle import engine
from support.patterns import TEXTS as PATTERN_TEXTS
from support.patterns import patterns, python_finds
from support.random_texts import generate
from support.schemas import DOCUMENTS
from support.values import JSON_VALUES, is_valid, values_near

_WHITESPACE = st.sampled_from(["default", "compact", "spaced", "free"])


@st.composite
def _schema_cases(draw: st.DrawFn) -> dict[str, Any]:
    schema = draw(DOCUMENTS)
    values = draw(st.lists(values_near(schema) | JSON_VALUES, min_size=1, max_size=4))
    options = {"property_order": draw(ORDERS), "whitespace": draw(_WHITESPACE)}
    return {"schema": schema, "values": values, "options": options, "seed": draw(SEEDS)}


def check_schema(case: Mapping[str, Any]) -> str:
    """Check that a grammar accepts valid instances and, if exact, refuses invalid ones and derives none."""
    schema, options = case["schema"], case["options"]
    grammar = _grammar_of(schema, **options)
    if isinstance(grammar, SchemaError):
        for value in case["values"]:
            assert _valid(schema, value) is not True, f"{value!r} is valid, but: {grammar}"
        return "no grammar"
    engine().check(grammar)
    for value in case["values"]:
        valid = _valid(schema, value)
        if valid:
            is_declared = options["property_order"] == "declared"
            spellings = _spellings(value, options["whitespace"], orders=is_declared)
            accepted = any(accepts(grammar, text) for text in spellings)
            assert accepted or _is_departure(schema, value), f"the valid {value!r} is refused"
        elif valid is False and grammar.exact:
            for text in itertools.islice(_spellings(value, options["whitespace"], orders=False), 2):
                if _valid(schema, json.loads(text)) is False:  # in draft 4, 1.0 and 1 are two values
                    assert not accepts(grammar, text), f"the invalid {text} is accepted, and none is reported"
    for shift in range(3):
        text = generate(grammar.rules, random.Random(case["seed"] + shift))
        assert accepts(grammar, text), f"the engine refuses {text}, which the grammar derives"
        value = json.loads(text)
        assert _is_finite(value), f"{text} parses to infinity"
        if grammar.exact and len(text) < 10_000:
            assert _valid(schema, value) is not False, f"derived {text} is invalid, and none is reported"
    return "exact" if grammar.exact else "reported"


def _is_departure(schema: Any, value: Any) -> bool:
    """Whether the value may be refused: in draft 4, whole numbers with a fraction are no integers."""
    is_draft_4 = isinstance(schema, Mapping) and "draft-04" in str(schema.get("$schema"))
    return is_draft_4 and any(isinstance(number, float) and number.is_integer() for number in _numbers(value))


def _numbers(value: Any) -> Iterator[float]:
    match value:
        case dict():
            yield from (number for item in value.values() for number in _numbers(item))
        case list():
            yield from (number for item in value for number in _numbers(item))
        case int() | float():
            yield value


def _valid(schema: Any, value: Any) -> bool | None:
    """Return jsonschema's verdict by the declared draft; None if it can't give one."""
    try:
        return is_valid(schema, value)
    except BaseException as error:
        if isinstance(error, RecursionError | OverflowError) or type(error).__name__ == "PanicException":
            return None  # a schema that asks for itself; referencing's native part panics at the recursion
        raise


def _spellings(value: Any, whitespace: str, *, orders: bool) -> Iterator[str]:
    """A value as JSON, first as `json.dumps` has it; then as the documented departures allow instead."""
    space = "" if whitespace == "compact" else " "
    for arranged in itertools.islice(_arrangements(value), 300) if orders else (value,):
        for number_text in (json.dumps, _whole, _expanded):
            yield _spelled(arranged, number_text, f",{space}", f":{space}")


def _arrangements(value: Any) -> Iterator[Any]:
    """The value with the keys of its objects in every order, its own order first."""
    match value:
        case dict():
            for keys in itertools.permutations(value):
                for inside in itertools.product(*(_some(value[key]) for key in keys)):
                    yield dict(zip(keys, inside, strict=True))
        case list():
            for items in itertools.product(*map(_some, value)):
                yield list(items)
        case _:
            yield value


def _some(value: Any) -> list[Any]:
    return list(itertools.islice(_arrangements(value), 24))


def _spelled(value: Any, number_text: Callable[[Any], str], comma: str, colon: str) -> str:
    match value:
        case dict():
            pairs = (
                json.dumps(key, ensure_ascii=False) + colon + _spelled(item, number_text, comma, colon)
                for key, item in value.items()
            )
            return "{" + comma.join(pairs) + "}"
        case list():
            return "[" + comma.join(_spelled(item, number_text, comma, colon) for item in value) + "]"
        case float():
            return number_text(value)
        case _:
            return json.dumps(value, ensure_ascii=False)


def _whole(value: float) -> str:
    return str(int(value)) if value.is_integer() else json.dumps(value)


def _expanded(value: float) -> str:
    return format(Decimal(repr(value)), "f")


def _is_finite(value: Any) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case dict():
            return all(map(_is_finite, value.values()))
        case list():
            return all(map(_is_finite, value))
        case _:
            return True


def check_pattern(case: Mapping[str, Any]) -> str:
    """A text is accepted exactly where Python finds the pattern, read as ECMA-262 reads it."""
    grammar = _grammar_of({"type": "string", "pattern": case["pattern"]})
    if isinstance(grammar, SchemaError):
        for text in case["texts"]:
            assert not python_finds(case["pattern"], text), f"{text!r} fits, but: {grammar}"
        return "no grammar"
    for text in case["texts"]:
        accepted = accepts(grammar, json.dumps(text, ensure_ascii=False))
        if python_finds(case["pattern"], text):
            assert accepted, f"{text!r} fits and is refused"
        elif grammar.exact:
            assert not accepted, f"{text!r} does not fit and is accepted"
    return "exact" if grammar.exact else "reported"


def _grammar_of(schema: Any, **options: Any) -> Any:
    try:
        return compile_schema(schema, **options)
    except SchemaError as error:
        return error


SCHEMA = Target("schema", _schema_cases(), check_schema)
PATTERN = Target(
    "pattern",
    st.fixed_dictionaries({"pattern": patterns(), "texts": st.lists(PATTERN_TEXTS, max_size=4)}),
    check_pattern,
)
