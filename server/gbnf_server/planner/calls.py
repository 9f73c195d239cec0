"""From the model's text to a call: parse it, and fill in its step references. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gbnf.calls.validation.validator import filled_argument_errors
from gbnf.tools import Tool


def fill_references(
    tool: Tool, arguments: Mapping[str, Any], entries: Mapping[int, Sequence[Any]]
) -> dict[str, Any]:
    """Replace each step number by that step's entries, in the property that it fills.

    A list gets the entries appended, as they are or as strings; a string gets them appended as lines.
    `arguments` are validated: every step that they refer to is a key of `entries`. Raises ValueError, with
    the sentence that the model reads, if the property accepts none of these.
    """
    filled = dict(arguments)
    for reference, target in tool.step_references.items():
        if target is None or reference not in filled:
            continue
        step = filled.pop(reference)
        faults: list[str] = []
        for value in _candidate_values(
            entries[step], filled.get(target), tool.args["properties"].get(target)
        ):
            errors = filled_argument_errors(tool, target, value)
            if not errors:
                filled[target] = value
                break
            faults += errors[:1]
        else:
            why = faults[0] if faults else f"{target!r} holds a value that takes no more"
            raise ValueError(f"the entries of step {step} don't fit: {why}; give what fits instead")
    return filled


def result_entries(result: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the `entries` of a result, which later steps may refer to; () if there are none."""
    entries = result.get("entries")
    return tuple(entries) if isinstance(entries, list) else ()


def is_blank(answer: str) -> bool:
    """Return whether an answer says nothing, or is the placeholder that the prompt shows."""
    return not answer.strip(" \t\r\n.…")


def _candidate_values(entries: Sequence[Any], given: Any, schema: Any) -> Iterator[Any]:
    """Yield values of a property with the entries appended to `given`, the most likely first."""
    texts = [each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in entries]
    declared = schema.get("type") if isinstance(schema, Mapping) else None
    if (given is None or isinstance(given, list)) and declared != "string":
        yield [*(given or []), *entries]
        yield [*(given or []), *texts]
    if (given is None or isinstance(given, str)) and declared != "array":
        yield "\n".join([*([given] if given else []), *texts])
