"""What of a result may go into a conversation: how deep it may be, which text and which numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gbnf_server.errors import ExecutorError

if TYPE_CHECKING:
    from gbnf_server.executors.secrets import Secrets

DEPTH = 64
"""How many arrays and objects a result may have inside each other, itself included."""


def too_deep(name: str) -> ExecutorError:
    return ExecutorError(
        f"'{name}' returned a result nested deeper than {DEPTH} arrays and objects. Return a flatter one."
    )


def depth_of(value: Any, enough: int) -> int:
    """Return how many arrays and objects are inside each other, counted up to one more than `enough`."""
    level, depth = [value], 0
    while depth <= enough and (level := [each for each in level if isinstance(each, dict | list | tuple)]):
        level = [member for each in level for member in (each.values() if isinstance(each, dict) else each)]
        depth += 1
    return depth


def flattened(value: Any, depth: int = DEPTH) -> Any:
    """Return a value with None for each array and object that is nested deeper than `depth`."""
    match value:
        case dict():
            return {key: flattened(member, depth - 1) for key, member in value.items()} if depth else None
        case list():
            return [flattened(member, depth - 1) for member in value] if depth else None
        case _:
            return value


def cleaned(value: Any, secrets: Secrets) -> Any:
    """Return a result with handles for the run's credentials, and valid Unicode text only (see `whole`)."""
    match value:
        case str():
            return secrets.hidden(whole(value))
        case dict():
            return {secrets.hidden(whole(key)): cleaned(member, secrets) for key, member in value.items()}
        case list():
            return [cleaned(member, secrets) for member in value]
        case int() | float() if not isinstance(value, bool):
            return secrets.hidden_number(value)
        case _:
            return value


def whole(text: str) -> str:
    """Return a text with U+FFFD for each unpaired surrogate, which UTF-8 cannot encode."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
