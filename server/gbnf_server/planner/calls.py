"""From the model's text to a call: reading it, and filling in what it refers to. Pure, and suspicious."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gbnf.calls import FinalAnswer, parse_tool_calls
from gbnf.calls.repair import repair_call
from gbnf.calls.validation import filled_argument_errors
from gbnf.tools import FINAL_ANSWER, Tool

MAX_REPEATS = 2
"""How many times one call may be made in a run; once more is refused."""


def parse_text_call(
    text: str, tools: Sequence[Tool], *, steps: Sequence[int] = (), truncated: bool = False
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The first call in the text, a text without one being the final answer; and what was done to read it.

    Arguments are brought to what the tool declares (`gbnf.calls.repair`); the result is still to be validated.
    `steps` as in `validate_call`. `cut`: the token limit ended the text, which matters where the call had not
    ended before, or stands amid prose. Raises ValueError with the sentence that the model reads.
    """
    step = parse_tool_calls(text, tools)
    repairs = [str(repair) for repair in step.repairs]
    if isinstance(step, FinalAnswer):
        if truncated or not step.content.strip():
            raise ValueError(
                "the answer was cut" if truncated else "the text is empty; write a call, or an answer"
            )
        answer = {"name": FINAL_ANSWER.name, "arguments": {"message": step.content.strip()}}
        return answer, (*repairs, "answer: took a text without a call for the final answer")
    if not step.calls:
        raise ValueError("; ".join(invalid.error for invalid in step.invalid))
    call = step.calls[0]
    # lines, and a bare name, have no end of their own: only the backend tells that they were cut
    endless = step.syntax == "yaml" or (step.syntax == "call" and not call.arguments)
    if call.truncated or (truncated and endless):
        raise ValueError("the call was cut and not executed; write a shorter one")
    if truncated and step.inside_prose:
        raise ValueError("the text was cut, and its call may be a thought of many; write the call alone")
    if len(step.calls) > 1:
        repairs.append(f"ignored: left out {len(step.calls) - 1} more calls; one is made at a time")
    repaired = repair_call(call, tools, steps=steps)
    repairs += [str(coercion) for coercion in repaired.coercions]
    return dict(repaired.call), tuple(repairs)


def canonical(call: Mapping[str, Any]) -> str:
    """The same text for the same call, whatever the order of its keys."""
    return json.dumps(call, sort_keys=True)


def fill_references(
    tool: Tool, arguments: Mapping[str, Any], entries: Mapping[int, Sequence[Any]]
) -> dict[str, Any]:
    """Replace each step number by that step's entries, in the property that it fills.

    A list takes the entries after what the model gave, as they are or else as texts; a string takes them as
    lines after it. `arguments` are validated: every number that they refer to is a key of `entries`. Raises
    ValueError, with the sentence that the model reads, where the property takes them in none of these ways.
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
    """What later steps may refer to: the `entries` of a result, () where it has none."""
    entries = result.get("entries")
    return tuple(entries) if isinstance(entries, list) else ()


def clip(text: str, limit: int = 400) -> str:
    """Keep the beginning of a refused text: enough for the model to see its fault, not its whole runaway."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _candidate_values(entries: Sequence[Any], given: Any, schema: Any) -> Iterator[Any]:
    """What a property may hold of entries after what was given, the likeliest first."""
    texts = [each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in entries]
    held = schema.get("type") if isinstance(schema, Mapping) else None
    if (given is None or isinstance(given, list)) and held != "string":
        yield [*(given or []), *entries]
        yield [*(given or []), *texts]
    if (given is None or isinstance(given, str)) and held != "array":
        yield "\n".join([*([given] if given else []), *texts])
