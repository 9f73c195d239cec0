"""Derive the reasoning of a chat template: its tags, what a prompt opens, what ends it.

Templates that only remove reasoning do not show its tags: for these `<think>` and `[THINK]` are known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gbnf.tool_formats.format import Reasoning
from gbnf.tool_formats.pieces import CONTROL_TEXT, common_prefix, split_pieces
from gbnf.tool_formats.probing import KEYS, NAMES, QUERY, REASON, RESULT, TEXT, USER, Call, Prober
from gbnf.tool_formats.sandbox import RefusedError

_KNOWN_REASONING = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))


def detect_reasoning(prober: Prober) -> Reasoning | None:
    """Return how the template writes reasoning, None if it has none."""
    openings = [prober.opening(reasoning=reasoning) for reasoning in (True, False)]
    header = past_text(prober)[0]
    written, closing = _written_reasoning(prober, openings[0], header)
    if written is None:
        rests = [_without_prefix_in(opening, header) for opening in openings]
        written = _tags_in(rests) or next(
            (tags for tags in _KNOWN_REASONING if all(tag in prober.renderer.source for tag in tags)),
            None,
        )
    if written is None:
        return None
    begin, end = written
    ends = [prober.prompt(reasoning=reasoning).rpartition(QUERY)[2] for reasoning in (True, False)]
    prompts = [
        opening or (text if begin in text else "") for opening, text in zip(openings, ends, strict=True)
    ]
    states = ["closed" if end in text else "open" if begin in text else "none" for text in prompts]
    common = ends[0].rstrip().removesuffix(begin)
    omitted = ends[1].removeprefix(common).strip() if ends[1].startswith(common) else ""
    return Reasoning(
        begin,
        end,
        prompt="open" if states[0] == "open" else "none",
        direct_prompt=states[1],  # type: ignore[arg-type]  # the three states
        closing=closing or f"\n{end}\n\n",
        repeats=bool(openings[1].strip()) and end.endswith(openings[1].strip()),
        omitted=omitted if states == ["open", "none"] and closing.endswith(omitted) else "",
    )


def past_text(prober: Prober) -> tuple[str, str]:
    """Return what stands around a past answer's text: most templates leave out its reasoning."""
    answer = prober.assistant(text=TEXT)
    try:
        full = prober.render([USER, answer, {"role": "user", "content": RESULT}])
    except RefusedError:
        return "", ""
    before, _, after = full.rpartition(TEXT)
    return before.rpartition(QUERY)[2], after.partition(RESULT)[0]


def _written_reasoning(prober: Prober, opening: str, header: str) -> tuple[tuple[str, str] | None, str]:
    """Return the tags of reasoning that the template writes itself, and exactly what ends it."""
    call = Call(NAMES[0], {KEYS[0]: TEXT})
    for reasoning in (True, False):
        try:
            message = prober.assistant([call], reasoning=REASON)
            full = prober.render([USER, message], reasoning=reasoning)
        except RefusedError:
            continue
        before, found, after = full.partition(REASON)
        if not found:
            continue
        begin = _begin_of_reasoning(before.rpartition(QUERY)[2], opening, header)
        alone = prober.answer(prober.assistant([call]), [NAMES[0]], reasoning=reasoning)
        closing = after.removesuffix(alone) if after.endswith(alone) else ""
        if not closing.strip():
            closing = _exact_closing(prober, after)
        if begin and closing.strip():
            return (begin, closing.strip()), closing
    return None, ""


def _exact_closing(prober: Prober, after: str) -> str:
    """Return what stands between reasoning and the answer, be it text or calls.

    `after`: what follows a reasoning before a call.
    """
    for reasoning in (True, False):
        try:
            message = prober.assistant(text=TEXT, reasoning=REASON)
            full = prober.render([USER, message], reasoning=reasoning)
        except RefusedError:
            continue
        if REASON in full:
            text = split_pieces(full.partition(REASON)[2].partition(TEXT)[0])
            pieces = split_pieces(after)
            return "".join(map(str, pieces[: common_prefix(pieces, text)]))
    found = CONTROL_TEXT.search(after)
    return after[: found.end()] if found else ""


def _without_prefix_in(text: str, header: str) -> str:
    """Return a text without its longest beginning, in whole pieces, that occurs in another text."""
    pieces = split_pieces(text)
    known = 0
    while known < len(pieces) and "".join(map(str, pieces[: known + 1])) in header:
        known += 1
    return "".join(map(str, pieces[known:]))


def _begin_of_reasoning(before: str, opening: str, header: str) -> str:
    """Return the tag with which reasoning begins, from all that stands before it in an answer.

    `opening`: that of a prompt; `header`: what stands before an answer without reasoning.
    """
    pieces = split_pieces(opening)
    prefix = ""
    for piece in pieces:
        longer = prefix + str(piece)
        if longer not in before or longer not in header:
            break
        prefix = longer
    if prefix.endswith(">") and not prefix.isspace():  # a tag that other texts begin with, too
        rest = before[before.rfind(prefix) + len(prefix) :]
        if rest[:1].isalnum():
            prefix = prefix[: -len(str(split_pieces(prefix)[-1]))]
    asked = _without_prefix_in(opening, before).strip()
    begin = asked or (before[before.rfind(prefix) + len(prefix) :].strip() if prefix else "")
    if begin:
        return begin
    last = before.rstrip().rpartition("\n")[2]  # the past shows its tags of reasoning, too
    tags = CONTROL_TEXT.findall(last)
    return str(tags[-1]) if tags and last.endswith(tags[-1]) else last


def _tags_in(prompts: Sequence[str]) -> tuple[str, str] | None:
    """Return the reasoning tags with which a prompt ends."""
    for prompt in prompts:
        found = re.search(r"<(/?)([^<>/\s]+)>|\[(/?)([A-Z]+)\]", prompt)
        if found:
            name = found[2] or found[4]
            return (f"<{name}>", f"</{name}>") if found[2] else (f"[{name}]", f"[/{name}]")
    return None
