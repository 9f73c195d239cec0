"""From the model's text to a call: parse it, and fill in its step references. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gbnf.calls import FinalAnswer, parse_tool_calls
from gbnf.calls.repair import repair_call
from gbnf.calls.validation.filled_arguments import filled_argument_errors
from gbnf.protocols.final_answer import REASONING_KEY
from gbnf.tools import FINAL_ANSWER, Tool
from gbnf_server.planner.reasoning import pop_reasoning


def parse_text_call(
    text: str,
    tools: Sequence[Tool],
    *,
    steps: Sequence[int] = (),
    truncated: bool = False,
    reasoning: bool = False,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the first call in a text, and the repairs it took; a text without a call is the final answer.

    Arguments are repaired to fit the tool's schema (`gbnf.calls.repair`); the call is not yet validated.
    `steps` as in `validate_call`. `truncated`: the token limit ended the text, which matters if the call had
    not ended before, or is surrounded by prose. `reasoning`: the call keeps its reasoning field. Raises
    ValueError with the sentence that the model reads.
    """
    step = parse_tool_calls(text, tools)
    if isinstance(step, FinalAnswer):
        if truncated or not step.content.strip():
            raise ValueError(
                "the text did not end within the limit of tokens; write a shorter one"
                if truncated
                else "the text is empty; write a call, or an answer"
            )
        answer = {"name": FINAL_ANSWER.name, "arguments": {"message": step.content.strip()}}
        return answer, (*map(str, step.repairs), "answer: took a text without a call for the final answer")
    if not step.calls:
        raise ValueError("; ".join(invalid.error for invalid in step.invalid))
    call = step.calls[0]
    # lines, and a bare name, have no end mark: only the backend reports that they were truncated
    endless = step.syntax == "yaml" or (step.syntax == "call" and not call.arguments)
    if call.truncated or (truncated and endless):
        raise ValueError("the call was cut and not executed; write a shorter one")
    if truncated and step.inside_prose:
        raise ValueError("the text was cut, and its call may be a thought of many; write the call alone")
    thought, others = pop_reasoning(call.extra) if reasoning else ("", call.extra)
    expected = bool(thought) and not others  # the parser ignores reasoning, but here it is part of a call
    repairs = [str(repair) for repair in step.repairs if not (expected and repair.kind == "extra")]
    if len(step.calls) > 1:
        repairs.append(f"ignored: left out {len(step.calls) - 1} more calls; one is made at a time")
    repaired = repair_call(call, tools, steps=steps)
    repairs += [str(coercion) for coercion in repaired.coercions]
    kept = {REASONING_KEY: thought} if thought else {}
    return kept | dict(repaired.call), tuple(repairs)


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


def clip(text: str, limit: int = 400) -> str:
    """Return at most `limit` characters of a rejected text: enough for the model to see the error."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _candidate_values(entries: Sequence[Any], given: Any, schema: Any) -> Iterator[Any]:
    """Yield values of a property with the entries appended to `given`, the most likely first."""
    texts = [each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in entries]
    declared = schema.get("type") if isinstance(schema, Mapping) else None
    if (given is None or isinstance(given, list)) and declared != "string":
        yield [*(given or []), *entries]
        yield [*(given or []), *texts]
    if (given is None or isinstance(given, str)) and declared != "array":
        yield "\n".join([*([given] if given else []), *texts])
