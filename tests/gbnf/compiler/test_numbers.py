"""Every double and every integer of 128 bits is accepted as it is written, and nothing is read as infinity.

The spellings are those of `json.dumps` and of `JSON.stringify`. The algorithm of the latter stands here.
Source: ECMA-262, Number::toString.
"""

from __future__ import annotations

import json
import math
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gbnf.compiler.schema import compile_schema
from gbnf.errors import SchemaError
from gbnf.testing import derivations
from support.effort import scaled
from support.oracle import engine
from support.values import is_valid

NUMBER, INTEGER = {"type": "number"}, {"type": "integer"}
LARGEST = sys.float_info.max
EDGES = [
    0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1e-308, 1e308, LARGEST, -LARGEST,
    math.nextafter(LARGEST, 0), 1e16, 9999999999999998.0, 1e21, 999999999999999900000.0, 1e22, 1e23, 2.0**53,
    1e-4, 9.999999999999999e-05, 1e-6, 9.999999999999999e-07, 1.2345678901234567e-06, 0.00012345678901234567,
    1e-7, 0.1, 1 / 3, 123456789.12345679, 1.0, 100.0, math.pi,
]  # fmt: skip
DOUBLES = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(EDGES)
LONG = st.integers(-(2**128), 2**128) | st.integers(0, 128).map(lambda bits: 2**bits)


def accepts(schema: Any, text: str, **options: Any) -> bool:
    return engine().match(compile_schema(schema, **options), text).complete


def javascript(value: float) -> str:
    """`JSON.stringify` of a finite number: the same digits as Python's, laid out in another way."""
    if value < 0:
        return "-" + javascript(-value)
    if value == 0:
        return "0"
    _, parts, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    digits = "".join(map(str, parts)).rstrip("0")
    point = len(parts) + exponent
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    mantissa = digits if len(digits) == 1 else f"{digits[0]}.{digits[1:]}"
    return f"{mantissa}e{point - 1:+d}"


@given(DOUBLES)
def test_every_finite_double_is_accepted(value: float) -> None:
    assert float(javascript(value)) == value
    for text in (json.dumps(value), javascript(value)):
        assert accepts(NUMBER, text)
        assert accepts(True, text)
        assert accepts({"type": "object"}, f'{{"a": [{text}]}}')
        assert accepts(NUMBER, text, bounded_digits=False)


@pytest.mark.parametrize("value", EDGES)
def test_every_double_of_the_table_is_accepted(value: float) -> None:
    for schema in (NUMBER, {**NUMBER, "minimum": value}, {**NUMBER, "maximum": value}):
        assert accepts(schema, json.dumps(value))
        assert accepts(schema, javascript(value))


@given(LONG)
def test_every_integer_of_128_bits_is_accepted(value: int) -> None:
    assert accepts(INTEGER, str(value))
    assert accepts(NUMBER, str(value))


@st.composite
def _ranges(draw: st.DrawFn) -> dict[str, Any]:
    ends = sorted(draw(st.tuples(DOUBLES, DOUBLES)))
    ends = [
        end if abs(end) < 1e39 and (not end or abs(end) > 1e-39) else math.copysign(1, end) for end in ends
    ]
    schema: dict[str, Any] = draw(st.sampled_from([NUMBER, NUMBER, {**NUMBER, "not": INTEGER}]))
    schema = dict(schema)
    if draw(st.booleans()):
        schema[draw(st.sampled_from(["minimum", "exclusiveMinimum"]))] = min(ends)
    if draw(st.booleans()):
        schema[draw(st.sampled_from(["maximum", "exclusiveMaximum"]))] = max(ends)
    return schema


@settings(max_examples=scaled(60))
@given(_ranges(), st.data())
def test_a_range_takes_its_doubles_and_no_others(schema: Any, data: st.DataObject) -> None:
    ends = [value for value in schema.values() if isinstance(value, float)]
    near = [*ends, *(math.nextafter(end, to) for end in ends for to in (-math.inf, math.inf))]
    value = data.draw(st.sampled_from([*near, *(end / 10 for end in ends), 0.0]) | DOUBLES)
    assume(math.isfinite(value))
    valid = is_valid(schema, value)
    try:
        compile_schema(schema)
    except SchemaError:
        assert not valid
        return
    assert accepts(schema, json.dumps(value)) == valid
    # Written by JavaScript, a whole number is an integer: it is one for Python too.
    assert accepts(schema, javascript(value)) == valid


@pytest.mark.slow
@settings(max_examples=scaled(60))
@given(_ranges(), st.booleans(), st.data())
def test_what_a_range_derives_is_valid_as_a_parser_reads_it(schema: Any, bounded: bool, data: Any) -> None:
    try:
        grammar = compile_schema(schema, bounded_digits=bounded)
    except SchemaError:
        assume(condition=False)
    text = data.draw(derivations(grammar))
    value = json.loads(text)
    assert math.isfinite(value)
    if abs(value) < 2**49:
        assert is_valid(schema, value), text
        return
    # doubles are sparse: what is written, a bound or a value, is another number than what is read
    exact = Fraction(text)
    ends = {key: Fraction(repr(end)) for key, end in schema.items() if isinstance(end, float)}
    assert exact >= ends.get("minimum", exact), text
    assert exact <= ends.get("maximum", exact), text
    assert exact > ends.get("exclusiveMinimum", exact - 1), text
    assert exact < ends.get("exclusiveMaximum", exact + 1), text
    assert "not" not in schema or exact.denominator > 1, text


@given(
    st.sampled_from([NUMBER, INTEGER, {}, {"multipleOf": 0.01}, {"type": "integer", "multipleOf": 7}]),
    st.data(),
)
def test_no_derivation_is_read_as_infinity(schema: Any, data: st.DataObject) -> None:
    def finite(constant: str) -> None:
        raise AssertionError(constant)

    text = data.draw(derivations(compile_schema(schema)))
    value = json.loads(text, parse_constant=finite)
    assert "Infinity" not in json.dumps(value)


INFINITE = ["1e309", "20e307", "1.7976931348623159e308", "9e308", "1e400", "1" + "0" * 399 + ".0", "-1e999"]


@pytest.mark.parametrize("text", INFINITE)
@pytest.mark.parametrize("schema", [NUMBER, {}, {**NUMBER, "minimum": -1e30}, {**NUMBER, "not": INTEGER}])
@pytest.mark.parametrize("bounded", [True, False])
def test_what_is_read_as_infinity_is_refused(schema: Any, text: str, bounded: bool) -> None:
    assert math.isinf(float(text))
    assert not accepts(schema, text, bounded_digits=bounded)


@pytest.mark.parametrize(
    "text", ["1.7976931348623158e308", "1.797693134862315807e+308", "1E5", "1e-05", "2.50e3"]
)
def test_other_spellings_of_doubles_are_accepted(text: str) -> None:
    assert accepts(NUMBER, text)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"exclusiveMaximum": 1}, "0.99999999999999999"),
        ({"exclusiveMinimum": -1.5}, "-1.4999999999999999"),
        ({"exclusiveMinimum": 0}, "1e-324"),
        ({"exclusiveMinimum": 0}, "2e-324"),
        ({"exclusiveMaximum": 0}, "-1e-400"),
    ],
)
@pytest.mark.parametrize("bounded", [True, False])
def test_what_is_read_as_the_end_of_an_open_range_is_refused(schema: Any, text: str, bounded: bool) -> None:
    assert not is_valid(schema, json.loads(text))
    assert not accepts({**NUMBER, **schema}, text, bounded_digits=bounded)


def test_digits_are_counted_unless_the_option_lifts_it() -> None:
    endless: list[Any] = [NUMBER, INTEGER, {}, {"minimum": 0, **NUMBER}, {"maximum": 10**50, **INTEGER}]
    for schema in endless:
        assert accepts(schema, "9" * 39)
        assert not accepts(schema, "9" * 40)
        assert accepts(schema, "9" * 40, bounded_digits=False)
    fractions: list[Any] = [NUMBER, {}, {"minimum": 0, "maximum": 90, **NUMBER}, {"not": INTEGER, **NUMBER}]
    for schema in fractions:
        for whole in ("0", "30"):
            assert accepts(schema, f"{whole}." + "03" * 10)
            assert not accepts(schema, f"{whole}.3" + "03" * 10)
            assert accepts(schema, f"{whole}.3" + "03" * 10, bounded_digits=False)
    assert not accepts(NUMBER, "1." + "3" * 21 + "e5")
    assert not accepts({"type": "number", "multipleOf": 0.5}, "1.5" + "0" * 20)


@settings(max_examples=scaled(50))
@given(
    digits=st.integers(1, 60),
    decimals=st.integers(0, 3),
    bounds=st.fixed_dictionaries(
        {}, optional={"minimum": st.integers(-9, 0), "exclusiveMaximum": st.just(40)}
    ),
    kind=st.sampled_from(["number", "integer"]),
)
@example(digits=3, decimals=3, bounds={"minimum": -4}, kind="number")
def test_multiples_that_floats_refuse_are_reported(
    digits: int, decimals: int, bounds: dict[str, int], kind: str
) -> None:
    divisor = digits / 10**decimals
    schema = {"type": kind, "multipleOf": divisor, **bounds}
    grammar = compile_schema(schema)
    validator = Draft202012Validator(schema)
    exact = (number * Fraction(str(divisor)) for number in range(-5, 150))
    refused = [
        value
        for value in (int(one) if one.denominator == 1 else float(one) for one in exact)
        if grammar.match(json.dumps(value)).complete and not validator.is_valid(value)
    ]
    findings = [finding for finding in grammar.report if finding.kind == "disputed"]
    if not findings:
        assert not refused
        return
    (finding,) = findings
    example = json.loads(finding.reason.rpartition("such as ")[2].partition(":")[0])
    written = int(example) if example.is_integer() else example
    assert grammar.match(json.dumps(written)).complete
    assert not validator.is_valid(written)


@pytest.mark.parametrize("schema", [INTEGER, {"multipleOf": 7, **INTEGER}, {"multipleOf": 997, **INTEGER}])
def test_lifted_digits_of_integers_have_no_limit(schema: Any) -> None:
    divisor = schema.get("multipleOf", 1)
    assert accepts(schema, str(10**500 // divisor * divisor), bounded_digits=False)


@pytest.mark.parametrize("minimum", [10**38, 10**39 - 1])
def test_a_bound_with_more_digits_allows_values_above_it(minimum: int) -> None:
    schema = {"type": "integer", "minimum": minimum}
    assert accepts(schema, str(minimum * 9))
    assert not accepts(schema, str(minimum - 1))


@pytest.mark.slow
def test_digits_beside_a_great_divisor_are_reported_where_they_may_be_infinite() -> None:
    assert not compile_schema({"multipleOf": 0.997, **NUMBER}).exact
    assert compile_schema({"multipleOf": 0.997, **NUMBER, "minimum": -500, "maximum": 500}).exact
    assert compile_schema({"multipleOf": 997, **INTEGER}).exact
    assert compile_schema({"multipleOf": 0.01, **NUMBER}).exact


@given(DOUBLES | LONG)
def test_a_const_is_accepted_as_python_and_javascript_write_it(value: float) -> None:
    assert accepts({"const": value}, json.dumps(value))
    assert accepts({"enum": ["a", [value]]}, f"[{json.dumps(value)}]")
    if isinstance(value, float) and json.loads(javascript(value)) == value:
        assert accepts({"const": value}, javascript(value))


def test_a_listed_multiple_is_accepted_as_python_and_javascript_write_it() -> None:
    schema = {"type": "number", "multipleOf": 1e-7, "minimum": 0, "maximum": 1e-6}
    for value in (0.0, 1e-7, 2e-7, 9e-7, 1e-6):
        assert accepts(schema, json.dumps(value))
        assert accepts(schema, javascript(value))
    assert not accepts(schema, "1.5e-7")
    assert not accepts(schema, "0.00000015")


@pytest.mark.parametrize("text", ["1e+21", "1000000000000000000000"])
def test_a_listed_integer_is_accepted_as_javascript_writes_it(text: str) -> None:
    assert compile_schema({"enum": [10**21]}).match(text).complete
