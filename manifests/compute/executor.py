"""Arithmetic, exact if possible: evaluates Python's syntax tree itself, without `eval`.

Integers and decimal fractions are exact (0.1 + 0.2 is 0.3, 1/3*3 is 1); roots that are not exact,
logarithms and the like are floating-point numbers, and shown with 15 significant digits. ``%`` and ``//``
are Python's, and so is `round` (half to even). `log` is the natural logarithm, `log(x, 10)` and `log10` the
decimal one; angles are radians.

Other spellings are accepted if they are unambiguous: × · ÷ − ^ ² ³ √ π, ``15% of 200``, ``200 * 15%``,
``3,5`` and ``1,234.56`` outside a function's arguments. ``1,234`` and ``200 + 10%`` are ambiguous, and
refused.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from gbnf_server.executors import Context, ExecutorError

Number = int | Fraction | float

MAX_BITS = 14_000
"""Longest numerator or denominator: about 4,200 digits, less than Python's own limit for text (4,300)."""

MAX_FACTORIAL = 1_000

MAX_LENGTH = 5_000
"""Characters of an expression: the time to parse it grows with their square."""


def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:  # noqa: ARG001  # arithmetic needs no context
    """Return the value of `expression`."""
    value = compute(arguments["expression"])
    return {"value": value, "entries": [format_number(value)]}


def compute(expression: str) -> int | float:
    """Return the value, an int if it is whole and exact. Raises ExecutorError with the reason."""
    if len(expression) > MAX_LENGTH:
        raise ExecutorError(
            f"the expression has {len(expression):,} characters: write it with at most {MAX_LENGTH:,}"
        )
    text = normalised(expression)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", SyntaxWarning
            )  # "perhaps you missed a comma": the evaluation refuses it
            tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ExecutorError(
            f"'{expression}' is no arithmetic: use numbers, + - * / // % **, ( ) and {_NAMES}"
        ) from None
    try:
        return _plain(_value(tree.body))
    except ZeroDivisionError:
        raise ExecutorError(f"'{expression}' divides by zero") from None
    except (OverflowError, RecursionError):
        raise ExecutorError(f"'{expression}' is too large to compute") from None
    except (ValueError, TypeError) as error:
        raise ExecutorError(f"'{expression}' has no value: {error}") from None


def format_number(value: float) -> str:
    """Return a number as text."""
    return str(value) if isinstance(value, int) else repr(value)


# ── text ────────────────────────────────────────────────────────────────────────────────────────────────────

_SYMBOLS = str.maketrans({
    "×": "*", "⋅": "*", "·": "*", "∙": "*", "÷": "/", "−": "-", "–": "-", "^": "**", "²": "**2", "³": "**3",
    "√": " sqrt ", "π": " pi ", "τ": " tau ", "\u00a0": " ", "\u202f": " ", "\n": " ", "\t": " ",
})  # fmt: skip

_NUMBER = r"(?<![\d.])(?:\d++(?:\.\d*+)?|\.\d++)"
"""Whole numbers only, and possessive: there is no backtracking into a number."""


def normalised(expression: str) -> str:
    """Return the expression as Python. Raises ExecutorError if it is ambiguous."""
    text = expression.translate(_SYMBOLS).strip().rstrip("=? ")
    text = re.sub(r"(?<=[\d)])\s+[xX]\s+(?=[\d(.])", " * ", text)  # 3 x 4
    text = re.sub(rf"\bsqrt\s+({_NUMBER})", r"sqrt(\1)", text)  # √2
    text = _without_commas(text)
    text = re.sub(r"(?<![\w.])0+(?=\d)", "", text)  # 007
    return _without_percent(text)


def _without_commas(text: str) -> str:
    """Replace commas in numbers outside of function arguments: decimal or thousands separators."""
    calls: list[bool] = []
    pieces: list[str] = []
    position = 0
    for token in re.finditer(r"(\w*)\s*\(|\)|(?<![\w.,])\d[\d.,]*", text):
        if token[0].endswith("("):
            calls.append(bool(token[1]) and not token[1][0].isdigit())
        elif token[0] == ")":
            del calls[-1:]
        elif not any(calls):
            pieces += [text[position : token.start()], _number(token[0])]
            position = token.end()
    return "".join([*pieces, text[position:]])


def _number(text: str) -> str:
    if text.endswith(","):
        raise ExecutorError(
            f"'{text}': what is the comma for? Outside a function's arguments it belongs to a number"
        )
    if "," not in text:
        # 1.234.567
        return text.replace(".", "") if re.fullmatch(r"\d{1,3}(\.\d{3}){2,}", text) else text
    if re.fullmatch(r"\d{1,3}(,\d{3})+\.\d*|\d{1,3}(,\d{3}){2,}", text):
        return text.replace(",", "")  # 1,234.5   1,234,567
    if re.fullmatch(r"\d{1,3}(\.\d{3})+,\d+", text):
        return text.replace(".", "").replace(",", ".")  # 1.234,5
    if re.fullmatch(r"\d+,\d+", text) and (not re.fullmatch(r"[1-9]\d{0,2},\d{3}", text)):
        return text.replace(",", ".")  # 3,5
    raise ExecutorError(
        f"'{text}' can be read in two ways: write {text.replace(',', '')} or {text.replace(',', '.', 1)}"
        if text.count(",") == 1 and "." not in text
        else f"'{text}' is no number: write it with one dot for the decimals and nothing else"
    )


def _without_percent(text: str) -> str:
    """Replace ``15% of 200`` and ``200 * 15%``; the remainder operator stays. Ambiguous text is refused."""
    text = re.sub(rf"({_NUMBER})\s*%\s*(?:of|di|del|dei)\b", r"(\1/100)*", text, flags=re.IGNORECASE)
    if re.search(rf"{_NUMBER}%(\s*[+-]|\s+[\w(.])", text):  # 50% - 3
        raise _unclear_percent(text)
    return re.sub(rf"({_NUMBER})\s*%\s*(?=$|[)*/,])", _per_cent, text)


def _per_cent(found: re.Match[str]) -> str:
    """Replace ``200 * 15%`` by ``200 * (15/100)``."""
    added = re.search(r"[\w).]\s*[+-]\s*$", found.string[: found.start()])
    if added and found.string[found.end() : found.end() + 1] not in {"*", "/"}:  # 200 + 10%
        raise _unclear_percent(found.string)
    return f"({found[1]}/100)"


def _unclear_percent(text: str) -> ExecutorError:
    return ExecutorError(
        f"'{text}': the per cent sign can be read in two ways; "
        f"write 0.1 or 1.1 * for per cent, and 'a % b' for remainders"
    )


# ── values ──────────────────────────────────────────────────────────────────────────────────────────────────


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=bool()):
            raise ExecutorError(f"'{node.value!r}' is no number")
        case ast.Constant(value=int() as value):
            return _bounded(value)
        case ast.Constant(value=float() as value):
            return _finite(value) if value == 0 or abs(value) > 1e300 else _decimal(value)
        case ast.UnaryOp(ast.USub(), operand):
            return -_value(operand)
        case ast.UnaryOp(ast.UAdd(), operand):
            return _value(operand)
        case ast.BinOp(left, operator, right):
            return _bounded(_operation(operator, _value(left), _value(right)))
        case ast.Name(name) if name.casefold() in _CONSTANTS:
            return _CONSTANTS[name.casefold()]
        case ast.Call(ast.Name(name), arguments, []) if name.casefold() in _FUNCTIONS:
            return _bounded(_call(name.casefold(), [_value(each) for each in arguments]))
        case ast.Name(name) | ast.Call(ast.Name(name)):
            raise ExecutorError(f"'{name}' is not known here; there are {_NAMES}, {', '.join(_CONSTANTS)}")
        case ast.Call():
            raise ExecutorError("something is missing between a value and '(': write * to multiply")
        case _:
            raise ExecutorError(
                f"'{ast.unparse(node)}' is no arithmetic: use numbers, + - * / // % **, ( ) and {_NAMES}"
            )


def _operation(operator: ast.operator, left: Number, right: Number) -> Number:
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div() if isinstance(left, float) or isinstance(right, float):
            return left / right
        case ast.Div():
            return Fraction(left) / Fraction(right)
        case ast.FloorDiv():
            return left // right
        case ast.Mod():
            return left % right
        case ast.Pow():
            return _power(left, right)
        case _:
            raise ExecutorError("only + - * / // % ** are known")


def _power(base: Number, exponent: Number) -> Number:
    exponent = _whole(exponent)
    if isinstance(exponent, int) and not isinstance(base, float):
        base = Fraction(base)
        if base == 0 and exponent < 0:
            raise ZeroDivisionError
        size = max(base.numerator.bit_length(), base.denominator.bit_length())
        if abs(base) != 1 and base != 0 and (size - 1) * abs(exponent) > MAX_BITS:
            raise OverflowError
        exact: Fraction = base**exponent
        return exact
    if base < 0 and not (isinstance(exponent, int) or float(exponent).is_integer()):
        raise ExecutorError("a negative number has no such power among the real numbers")
    if exponent == Fraction(1, 2):
        return _square_root(base)
    power: float = float(base) ** float(exponent)
    return power


def _square_root(value: Number) -> Number:
    if value < 0:
        raise ExecutorError("a negative number has no square root among the real numbers")
    if not isinstance(value, float):
        exact = Fraction(value)
        root = Fraction(math.isqrt(exact.numerator), math.isqrt(exact.denominator))
        if root * root == exact:
            return root
    return math.sqrt(value)


def _logarithm(value: Number, base: Number | None = None) -> Number:
    return math.log(value) if base is None else math.log(value) / math.log(base)


def _round(value: Number, digits: Number = 0) -> Number:
    places = _integer(digits)
    if abs(places) > 400:
        raise ExecutorError("round: too many digits")
    if isinstance(value, float):
        return round(value, places) if places else round(value)
    return round(Fraction(value), places)


def _factorial(value: Number) -> Number:
    count = _integer(value)
    if not 0 <= count <= MAX_FACTORIAL:
        raise ExecutorError(f"factorial: give an integer from 0 to {MAX_FACTORIAL}")
    return math.factorial(count)


def _integer(value: Number) -> int:
    whole = _whole(value)
    if not isinstance(whole, int):
        raise ExecutorError(f"{_plain(value)} is no integer, and one is needed here")
    return whole


def _mean(*values: Number) -> Number:
    return _operation(ast.Div(), sum(values, start=Fraction(0)), len(values))


_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "sqrt": _square_root,
    "cbrt": math.cbrt,
    "abs": abs,
    "round": _round,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "int": math.trunc,
    "min": lambda *values: min(values),
    "max": lambda *values: max(values),
    "sum": lambda *values: sum(values),
    "mean": _mean,
    "avg": _mean,
    "pow": _power,
    "exp": math.exp,
    "ln": math.log,
    "log": _logarithm,
    "log2": math.log2,
    "log10": math.log10,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "atan2": math.atan2,
    "degrees": math.degrees,
    "radians": math.radians,
    "hypot": math.hypot,
    "factorial": _factorial,
    "gcd": lambda *values: math.gcd(*map(_integer, values)),
    "lcm": lambda *values: math.lcm(*map(_integer, values)),
}

_NAMES = ", ".join(_FUNCTIONS)

_CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau}


def _call(name: str, arguments: list[Number]) -> Number:
    try:
        return _FUNCTIONS[name](*arguments)
    except (TypeError, ValueError) as error:
        given = ", ".join(format_number(_plain(each)) for each in arguments)
        raise ExecutorError(f"{name}({given}) has no value: {error}") from None


def _decimal(value: float) -> Fraction:
    """Return the exact value of a decimal number, not that of the nearest float."""
    return Fraction(repr(value))


def _whole(value: Number) -> Number:
    return int(value) if isinstance(value, Fraction) and value.denominator == 1 else value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise OverflowError
    return value


def _bounded(value: Number) -> Number:
    if isinstance(value, float):
        return _finite(value)
    exact = Fraction(value)
    if max(exact.numerator.bit_length(), exact.denominator.bit_length()) > MAX_BITS:
        raise OverflowError
    return value


def _plain(value: Number) -> int | float:
    """Return an int if the value is whole, otherwise a float with 15 significant digits."""
    value = _whole(value)
    if isinstance(value, int):
        return value
    rounded = float(f"{_finite(float(value)):.15g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
