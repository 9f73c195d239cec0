"""Python call arguments: `name(a=1, b="x")`. Only literals are parsed, and nothing is evaluated."""

from __future__ import annotations

import ast
import json
import keyword
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gbnf.calls.parsing.results import Repair
from gbnf.strict_json import InvalidJsonError, parse_json

_CONSTANTS = {"true": True, "false": False, "null": None}


class Arguments(NamedTuple):
    """Arguments by name, and the repairs."""

    values: dict[str, Any]
    repairs: tuple[Repair, ...]


def read_arguments(text: str, properties: Sequence[str]) -> Arguments | None:
    """Parse `(a=1, b="x")`, positional arguments by declared order; None if they are not literals."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the model's text
            call = ast.parse(f"f{text}", mode="eval").body
        if not isinstance(call, ast.Call) or len(call.args) > len(properties):
            return None
        values = {name: _value(node) for name, node in zip(properties, call.args, strict=False)}
        for given in call.keywords:
            found = _value(given.value)
            members = found if given.arg is None else {given.arg: found}
            if not isinstance(members, dict) or members.keys() & values.keys():
                return None
            values |= members
        values = parse_json(json.dumps(values, allow_nan=False))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    repairs: tuple[Repair, ...] = ()
    if call.args:
        names = ", ".join(properties[: len(call.args)])
        repairs = (Repair("arguments", f"used arguments without a name for {names}"),)
    return Arguments(values, repairs)


def read_literal(text: str) -> Any:
    """Return the JSON value of a Python literal. Raises InvalidJsonError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the model's text
            return parse_json(json.dumps(_value(ast.parse(text, mode="eval").body), allow_nan=False))
    except InvalidJsonError:
        raise
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise InvalidJsonError("not a literal") from None


def write_arguments(arguments: Mapping[str, Any]) -> str:
    """Render `a=1, b="x"`, and `**{…}` for names that are not identifiers."""
    plain = {name: value for name, value in arguments.items() if name.isidentifier() and name.isascii()}
    plain = {name: value for name, value in plain.items() if not keyword.iskeyword(name)}
    others = {name: value for name, value in arguments.items() if name not in plain}
    written = [f"{name}={value!r}" for name, value in plain.items()]
    return ", ".join([*written, *([f"**{others!r}"] if others else [])])


def _value(node: ast.expr) -> Any:
    """Return the JSON value of a literal. Raises ValueError."""
    match node:
        case ast.Constant(value=None | bool() | int() | float() | str()):
            return node.value
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List(elts=members) | ast.Tuple(elts=members):
            return [_value(member) for member in members]
        case ast.Dict(keys=keys, values=values):
            names = [None if key is None else _value(key) for key in keys]
            if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
                raise InvalidJsonError("a key is not a string, or occurs twice")
            return {str(name): _value(value) for name, value in zip(names, values, strict=True)}
        case _:
            raise InvalidJsonError("not a literal")
