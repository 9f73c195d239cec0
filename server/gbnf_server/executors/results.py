"""Limits and redaction of results: their depth, text and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gbnf.surrogates import replace_lone_surrogates
from gbnf_server.system.errors import ExecutorError

if TYPE_CHECKING:
    from gbnf_server.executors.secrets import Secrets

MAX_DEPTH = 64
"""Maximum nesting depth of a result, itself included."""


def too_deep(name: str) -> ExecutorError:
    """Return the error for a result that is nested too deeply."""
    return ExecutorError(
        f"'{name}' returned a result nested deeper than {MAX_DEPTH} arrays and objects. Return a flatter one."
    )


def nesting_depth(value: Any, enough: int) -> int:
    """Return how many arrays and objects are inside each other, counted up to one more than `enough`."""
    level, depth = [value], 0
    while depth <= enough and (level := [each for each in level if isinstance(each, dict | list | tuple)]):
        level = [member for each in level for member in (each.values() if isinstance(each, dict) else each)]
        depth += 1
    return depth


def redact_result(value: Any, secrets: Secrets) -> Any:
    """Return a result with handles for credentials, and without lone surrogates."""
    match value:
        case str():
            return secrets.redact(replace_lone_surrogates(value))
        case dict():
            return {
                secrets.redact(replace_lone_surrogates(key)): redact_result(member, secrets)
                for key, member in value.items()
            }
        case list():
            return [redact_result(member, secrets) for member in value]
        case int() | float() if not isinstance(value, bool):
            return secrets.redact_number(value)
        case _:
            return value
