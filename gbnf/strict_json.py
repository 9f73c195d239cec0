"""The strict JSON reader, for text that decides what is executed.

Refuses, beyond what `json.loads` refuses: NaN and Infinity, numbers that no float can represent, a key with
two values in one object, and lone surrogates in strings.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
from itertools import chain
from typing import Any, Literal, NoReturn, TypeAlias

from gbnf.errors import GbnfError
from gbnf.surrogates import has_surrogate

ViolatedRule: TypeAlias = Literal["syntax", "number", "depth", "duplicate key", "surrogate"]


class InvalidJsonError(GbnfError, ValueError):
    """A text is not one strict JSON value. The message says what is wrong, `kind` which rule it breaks."""

    def __init__(self, problem: str, kind: ViolatedRule = "syntax") -> None:
        self.kind = kind
        super().__init__(problem)


_TYPES: tuple[tuple[type, str], ...] = (
    (type(None), "null"), (bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"),
    (list, "array"), (Mapping, "object"),
)  # fmt: skip


def json_type(value: Any) -> str:
    """Return the JSON type of a value: "integer" for an int, "number" for every float.

    Of a value that JSON does not have, the name of its Python type.
    """
    return next((name for kind, name in _TYPES if isinstance(value, kind)), type(value).__name__)


def has_type(value: Any, types: Collection[str]) -> bool:
    """Return whether a JSON value has one of these types of JSON Schema."""
    kind = json_type(value)
    if kind == "number" and value.is_integer():
        return "number" in types or "integer" in types
    return kind in types or (kind == "integer" and "number" in types)


def nests_deeper(value: Any, most: int) -> bool:
    """Return whether objects and arrays are nested deeper than `most` levels."""
    level = [value] if isinstance(value, Mapping | list | tuple) else []
    for _ in range(most):
        if not level:
            return False
        members = chain.from_iterable(part.values() if isinstance(part, Mapping) else part for part in level)
        nested = [member for member in members if isinstance(member, Mapping | list | tuple)]
        level = list({id(member): member for member in nested}.values())  # a value may have several parents
    return bool(level)


def map_json(value: Any, scalar: Callable[[Any], Any], key: Callable[[str], str] = str) -> Any:
    """Return a JSON value, `scalar` applied to all that is neither an array nor an object, `key` to keys."""
    match value:
        case Mapping():
            return {key(name): map_json(member, scalar, key) for name, member in value.items()}
        case list() | tuple():
            return [map_json(member, scalar, key) for member in value]
        case _:
            return scalar(value)


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with `change` applied to each string and key in it."""
    return map_json(value, lambda part: change(part) if isinstance(part, str) else part, change)


def json_of(value: Any) -> str:
    """Return a value as JSON on one line, not escaped to ASCII."""
    return json.dumps(value, ensure_ascii=False)


def scalars_of(value: Any) -> list[Any]:
    """Return all that is neither an array nor an object in a JSON value."""
    scalars: list[Any] = []
    map_json(value, scalars.append)
    return scalars


def parse_json(text: str, *, control_characters: bool = False, surrogates: bool = False) -> Any:
    """Return the value of a text that is one JSON value. Raises InvalidJsonError.

    `control_characters` and `surrogates`: whether strings may contain them.
    """
    try:
        value = json.loads(
            text,
            strict=not control_characters,
            object_pairs_hook=_object,
            parse_constant=_refuse_constant,
            parse_float=_finite_float,
        )
        # a text without escapes and without surrogates has no string with one
        if not surrogates and ("\\u" in text or has_surrogate(text)):
            _check_surrogates(value)
    except InvalidJsonError:
        raise
    except RecursionError:
        raise InvalidJsonError("it is nested too deeply", "depth") from None
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - 20) : error.pos + 20]
        raise InvalidJsonError(
            f"{error.msg.removesuffix(' at')} at character {error.pos} near {near!r}"
        ) from None
    except ValueError:  # Python's limit on the digits of an integer
        raise InvalidJsonError("an integer has too many digits", "number") from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for key, member in pairs:
        if key in value and value[key] != member:
            problem = f"the key {key[:80]!r} occurs twice in one object, with two values"
            raise InvalidJsonError(problem, "duplicate key")
        value[key] = member
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidJsonError(f"{name} is not a JSON number", "number")


def _finite_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise InvalidJsonError("a number is too large", "number")
    return number


def _check_surrogates(value: Any) -> None:
    if has_surrogate(json_of(value)):
        problem = "a string contains half of a surrogate pair, which is not a character"
        raise InvalidJsonError(problem, "surrogate")
