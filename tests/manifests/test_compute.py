"""compute agrees with exact arithmetic, and refuses what has two readings."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gbnf_server.system.errors import ExecutorError
from support.executors import module, run_of, world

compute = module("compute").compute

integers = st.integers(0, 10**6).map(str)
decimals = st.decimals(0, 1000, allow_nan=False, places=3).map(str)


def expressions(numbers: st.SearchStrategy[str], operators: list[str]) -> st.SearchStrategy[str]:
    return st.recursive(
        numbers,
        lambda inner: (
            st.tuples(inner, st.sampled_from(operators), inner).map(" ".join).map("({})".format)
            | inner.map("-{}".format)
            | st.tuples(inner, st.sampled_from(operators), inner).map(" ".join)
        ),
        max_leaves=8,
    )


def exactly(expression: str) -> Fraction:
    """Python's own reading of an expression, with every number exact."""
    exact = re.sub(r"\d+(\.\d+)?", lambda number: f"Fraction('{number[0]}')", expression)
    return Fraction(eval(exact, {"Fraction": Fraction}))


@given(expressions(integers, ["+", "-", "*", "//", "%"]))
def test_integers_are_pythons(expression: str) -> None:
    try:
        expected = eval(expression)
    except ZeroDivisionError:
        with pytest.raises(ExecutorError, match="divides by zero"):
            compute(expression)
        return
    value = compute(expression)
    assert value == expected
    assert type(value) is int


@given(expressions(integers | decimals, ["+", "-", "*", "/", "//", "%"]))
def test_fractions_are_exact(expression: str) -> None:
    try:
        expected = exactly(expression)
    except ZeroDivisionError:
        with pytest.raises(ExecutorError, match="divides by zero"):
            compute(expression)
        return
    value = compute(expression)
    if expected.denominator == 1:
        assert value == expected
    else:
        assert math.isclose(value, expected, rel_tol=1e-14)


@given(st.integers(-50, 50), st.integers(0, 60))
def test_powers_are_pythons(base: int, exponent: int) -> None:
    assert compute(f"({base}) ** {exponent}") == base**exponent
    assert compute(f"({base})^{exponent}") == base**exponent


@given(
    st.floats(0.001, 1e6),
    st.sampled_from(["sqrt", "sin", "cos", "tan", "log", "log2", "log10", "atan", "cbrt"]),
)
def test_functions_are_pythons(value: float, name: str) -> None:
    assert math.isclose(
        compute(f"{name}({value!r})"), getattr(math, name)(value), rel_tol=1e-13, abs_tol=1e-13
    )


@given(st.integers(0, 10**30))
def test_the_root_of_a_square_is_exact(root: int) -> None:
    assert compute(f"sqrt({root * root})") == root


@given(st.text(max_size=30) | st.text("0123456789.+-*/%(),^e ", max_size=20))
def test_any_text_has_a_value_or_a_clear_error(text: str) -> None:
    try:
        value = compute(text)
    except ExecutorError:
        return
    assert isinstance(value, int) or math.isfinite(value)


@given(st.integers(1, 10**9), st.integers(0, 99))
def test_thousands_and_decimals_in_both_customs(whole: int, cents: int) -> None:
    english, italian = f"{whole:,}.{cents:02}", f"{whole:,}".replace(",", ".") + f",{cents:02}"
    assume(whole >= 1000)
    assert compute(english) == compute(italian) == compute(f"{whole}.{cents:02}")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("0.1 + 0.2 - 0.3", 0),
        ("1/3*3", 1),
        ("(1/49*49) // 1", 1),
        ("10**30 / 7 * 7", 10**30),
        ("6 / 3", 2),
        ("2 ** 3 ** 2", 512),
        ("-2 ** 2", -4),
        ("3 × 4 ÷ 2", 6),
        ("5 − 3", 2),
        ("3 x 4", 12),
        ("0x10", 16),
        ("2 * 5²", 50),
        ("√16 + √(9)", 7),
        ("2 * π", 6.28318530717959),
        ("SQRT(1/4)", 0.5),
        ("64 ** (1/3)", 4),
        ("2 ** 0.5 * 2 ** 0.5", 2),
        ("2 ** -2", 0.25),
        ("1e3 + 1", 1001),
        ("1_000", 1000),
        ("007 + 1", 8),
        ("2 + 2 =", 4),
        ("round(2.5)", 2),
        ("round(3.14159, 2)", 3.14),
        ("round(1234, -2)", 1200),
        ("max(1, 2.5, 2)", 2.5),
        ("max(1,234)", 234),
        ("sum(1,2,3) / 3", 2),
        ("mean(1, 2)", 1.5),
        ("abs(-3)", 3),
        ("floor(-0.5) + ceil(0.5)", 0),
        ("log(8, 2)", 3),
        ("ln(e)", 1),
        ("factorial(20)", 2432902008176640000),
        ("gcd(12, 18) + lcm(4, 6)", 18),
        ("1e300 * 1e-300", 1),
        ("10%3", 1),
        ("15% of 200", 30),
        ("15% di 200", 30),
        ("200 * 15%", 30),
        ("15%", 0.15),
        ("(15%) * 2", 0.3),
        ("-15%", -0.15),
        ("max(5%, 1%)", 0.05),
        ("12.5% of 80", 10),
        ("3,5 * 2", 7),
        ("1,234,567 + 1", 1234568),
        ("1.234.567", 1234567),
        ("(1,5 + 1,5) * 2", 6),
        ("0,125", 0.125),
        ("1,2345", 1.2345),
        ("1.234", 1.234),
    ],
)
def test_values(expression: str, value: float) -> None:
    computed = compute(expression)
    assert computed == pytest.approx(value, rel=1e-14)
    assert type(computed) is type(value)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("1,234", "two ways: write 1234 or 1.234"),
        ("1,23,4", "no number"),
        ("1, 2", "what is the comma for"),
        ("200 + 10%", "per cent sign can be read in two ways"),
        ("50% - 3", "per cent sign can be read in two ways"),
        ("10% 3", "per cent sign can be read in two ways"),
        ("0 ** -1", "divides by zero"),
        ("(-1) ** 0.5", "negative number"),
        ("sqrt(-1)", "negative number"),
        ("log(0)", r"log\(0\) has no value"),
        ("asin(2)", r"asin\(2\) has no value"),
        ("sqrt()", r"sqrt\(\) has no value"),
        ("factorial(1.5)", "no integer"),
        ("factorial(100000)", "from 0 to 1000"),
        ("9 ** 9 ** 9", "too large"),
        ("2.5 ** 1e9", "too large"),
        ("exp(10000)", "too large|no value"),
        ("1e999", "too large"),
        ("round(1, 10**9)", "too many digits"),
        ("2(3)", "write \\* to multiply"),
        ("x + 1", "'x' is not known"),
        ("__import__('os')", "not known|no arithmetic"),
        ("(1).real", "no arithmetic"),
        ("'a' * 3", "no arithmetic"),
        ("1 < 2", "no arithmetic"),
        ("True", "no number"),
        ("3j", "no arithmetic"),
        ("1 & 2", "only \\+ - "),
        ("max(*[1])", "no arithmetic"),
        ("round(1, ndigits=2)", "no arithmetic|not known"),
        ("", "no arithmetic"),
        ("2 +", "no arithmetic"),
    ],
)
def test_refused(expression: str, reason: str) -> None:
    with pytest.raises(ExecutorError, match=reason):
        compute(expression)


def test_the_result(tmp_path: Path) -> None:
    assert run_of("compute")({"expression": "1/4"}, world(tmp_path)) == {"value": 0.25, "entries": ["0.25"]}
    large = run_of("compute")({"expression": "7 ** 4000"}, world(tmp_path))
    assert large["entries"] == [str(7**4000)]
