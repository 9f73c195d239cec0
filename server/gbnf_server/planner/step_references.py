"""References of calls to earlier steps: the entries that they fill in."""

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

    A list gets the entries appended, as they are or as strings; a string gets them appended as lines. A list
    with items of its own stays as it is if they do not fit. `arguments` are validated: every step that they
    refer to is a key of `entries`. Raises ValueError, with the sentence that the model reads, if the property
    accepts none of these.
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
            if isinstance(filled.get(target), list) and filled[target]:
                continue
            why = faults[0] if faults else f"{target!r} holds a value that takes no more"
            raise ValueError(f"the entries of step {step} don't fit: {why}; give what fits instead")
    return filled


def result_entries(result: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the `entries` of a result, which later steps may refer to; () if there are none."""
    entries = result.get("entries")
    return tuple(entries) if isinstance(entries, list) else ()


def _candidate_values(entries: Sequence[Any], value: Any, schema: Any) -> Iterator[Any]:
    """Yield values of a property with the entries appended to `value`, the most likely first."""
    texts = [entry if isinstance(entry, str) else json.dumps(entry, ensure_ascii=False) for entry in entries]
    declared = schema.get("type") if isinstance(schema, Mapping) else None
    if (value is None or isinstance(value, list)) and declared != "string":
        yield [*(value or []), *entries]
        yield [*(value or []), *texts]
    if (value is None or isinstance(value, str)) and declared != "array":
        yield "\n".join([*([value] if value else []), *texts])
