"""The messages for a model: the system prompt, its own calls, and their results.

Invariants: the same pool gives the same text, byte for byte (servers cache prompts by prefix); `call_text`
and `result_text` are JSON on one line, whatever a tool returns, and contain no name of a control token, so
that no file can end its message and start another; nothing that the runtime fills in appears.
"""

from __future__ import annotations

import json
import math
from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, NotRequired, TypedDict

from gbnf.prompts.control_tokens import escape_control_tokens
from gbnf.prompts.descriptions import PROMPT_STYLES as PROMPT_STYLES  # noqa: PLC0414  # exported, for whoever makes messages
from gbnf.prompts.descriptions import PromptStyle as PromptStyle  # noqa: PLC0414  # likewise
from gbnf.prompts.descriptions import describe_tool
from gbnf.strict_json import json_of
from gbnf.tools import Tool
from gbnf.tools.tool import supported_language

RESULT_LIMIT = 2000
"""Characters of a result, or of an error, in a message."""

_MIN_TEXT_CHARACTERS = 200
"""Characters below which strings are not shortened before entries are left out: half a path is useless."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image in a message: a file's bytes, and their media type, such as "image/png"."""

    data: bytes
    media_type: str


class Message(TypedDict):
    """A message of a conversation. Roles: system, user, assistant (a call), tool (its result).

    `images`: for backends that support them. `tool_calls`, of an assistant: calls in OpenAI's form, with the
    arguments as an object. `tool_call_id`, `name`, of a tool: the call that it answers. `reasoning_content`:
    the reasoning before an assistant's text. `thinking`: the last message is the start of the answer, with
    reasoning that is open or closed.
    """

    role: str
    content: str
    images: NotRequired[Sequence[Image]]
    tool_calls: NotRequired[Sequence[Mapping[str, Any]]]
    tool_call_id: NotRequired[str]
    name: NotRequired[str]
    reasoning_content: NotRequired[str]
    thinking: NotRequired[Literal["open", "closed"]]


_TEXTS = {
    "en": {
        "steps": "You carry out the person's request with the tools below, one step at a time. "
        "Each step, answer with ",
        "json": 'one JSON call and nothing else: {"name": "tool", "arguments": {…}}. ',
        "tool": '"tool"',
        "lines": "one call in lines and nothing else, each value in JSON:\ntool: …\nargs:\n  argument: …\n",
        "line": "Answer with one line and nothing else:",
        "fields": "Answer with {} lines, in this order and nothing else:",
        "items": "Answer with lines, in this order and nothing else, one for each item of {}:",
        "calls": "You carry out the person's request with the tools, one call at a time. ",
        "results": "Its result comes back with the number of the step. ",
        "references": "An argument from_step takes the "
        "number of an earlier step and uses the entries of its result, so don't copy them. ",
        "refused": "When a call is refused, read why and correct it. ",
        "done": "When the work is done, ",
        "today": " Today is {}, {}.",
        "weekdays": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
        "finish": "finish with ",
        "final_answer": "the tool final_answer and its message",
        "answer": "answer ",
        "language": "in the language of the request.",
        "alone": "",
        "suggestion": "The tool that fits best: {}",
        "more": "More tools:",
    },
    "it": {
        "steps": "Esegui la richiesta della persona con gli strumenti qui sotto, un passo alla volta. "
        "A ogni passo rispondi con ",
        "json": 'una sola chiamata JSON: {"name": "strumento", "arguments": {…}}. ',
        "tool": '"strumento"',
        "lines": "una sola chiamata in righe, ogni valore in JSON:\ntool: …\nargs:\n  argomento: …\n",
        "line": "Rispondi con una sola riga e nient'altro:",
        "fields": "Rispondi con {} righe, in quest'ordine e nient'altro:",
        "items": "Rispondi con righe, in quest'ordine e nient'altro, una per ogni elemento di {}:",
        "calls": "Esegui la richiesta della persona con gli strumenti, una chiamata alla volta. ",
        "results": "Il risultato torna con il numero del passo. ",
        "references": "Un argomento from_step prende il numero di "
        "un passo precedente e ne usa gli elementi: non ricopiarli. ",
        "refused": "Se una chiamata è rifiutata, leggi perché e correggila. ",
        "done": "A lavoro finito ",
        "today": " Oggi è {}, {}.",
        "weekdays": "lunedì martedì mercoledì giovedì venerdì sabato domenica",
        "finish": "concludi con ",
        "final_answer": "lo strumento final_answer e il suo message",
        "answer": "rispondi ",
        "language": "nella lingua della richiesta.",
        "alone": ", in Italian",
        "suggestion": "Lo strumento più adatto: {}",
        "more": "Altri strumenti:",
    },
}

_ALONE = (
    "You answer in text alone{}: you can write, and nothing can be done from here. Answer the request in one "
    "or two sentences; if it asks for something to be done, say that you cannot do it."
)
"""For small models without a tool. In all languages they follow it in English."""
_FINAL_ANSWER = '{"name": "final_answer", "arguments": {"message": "…"}}'
_CALL = '{"name":'
_CALL_WITH_REASONING = '{"thought": "…", "name":'


def _texts(language: str) -> Mapping[str, str]:
    return _TEXTS[supported_language(language, _TEXTS)]


def system_prompt(
    tools: Iterable[Tool],
    *,
    style: PromptStyle = "full",
    language: str = "en",
    reasoning: bool = False,
    lines: bool = False,
    endings: Sequence[str] = (),
    constrained: bool = True,
) -> str:
    """Return the system prompt for a pool, tools in pool order.

    "minimal": `Tools:` and one line per tool, `find_files(base_path, pattern?, patterns?)`. All other styles:
    instructions, then a description of each tool (`gbnf.prompts.descriptions`). Texts are in `language` if a
    manifest has it, otherwise in English. `reasoning` asks for reasoning at the start of each call, `lines`
    for the line protocol instead of JSON. `endings`: names of the tools that end the work instead of
    `final_answer`. Without `constrained`, the example has the name of an only tool, since the name "tool" is
    copied, and step references are explained only if a tool takes them. Raises InvalidArgumentError for an
    unknown style.
    """
    tools = tuple(tools)
    shown = [describe_tool(tool, style, language) for tool in tools]
    if style == "minimal":
        return "\n".join(["Tools:", *shown])
    texts = _texts(language)
    final_answer = f"{texts['final_answer'] if lines else _FINAL_ANSWER}, {texts['language']}"
    finish = f"{', '.join(endings)}." if endings else final_answer
    call = texts["lines" if lines else "json"]
    if not constrained and len(tools) == 1:
        call = call.replace(texts["tool"], json.dumps(tools[0].name))
    has_references = constrained or any(tool.step_references for tool in tools)
    instructions = texts["steps"] + call + _results(texts, has_references)
    instructions += texts["finish"] + finish
    if reasoning:
        instructions = instructions.replace(_CALL, _CALL_WITH_REASONING)
    return "\n\n".join([instructions, "Tools:", *shown])


def native_system_prompt(
    language: str = "en",
    *,
    today: date | None = None,
    brief: bool = False,
    has_tools: bool = True,
    has_references: bool = True,
) -> str:
    """Return the system prompt for a chat template that declares the tools and the format of calls itself.

    `today` is in it, if it is known; `brief`: without step references and refusals, for small models;
    `has_tools`: whether any are declared; `has_references`: whether any of them takes step references.
    """
    texts = _texts(language)
    day = "" if today is None else texts["today"].format(texts["weekdays"].split()[today.weekday()], today)
    if not has_tools and brief:  # without the date, which a small model takes for a fact about anything
        return _ALONE.format(texts["alone"])
    if not has_tools:
        return texts["answer"].capitalize() + texts["language"] + day
    results = texts["done"] if brief else _results(texts, has_references)
    return texts["calls"] + results + texts["answer"] + texts["language"] + day


def _results(texts: Mapping[str, str], has_references: bool) -> str:
    return texts["results"] + texts["references"] * has_references + texts["refused"] + texts["done"]


def field_lines_prompt(
    wanted: str, placeholders: Sequence[str], *, open_list: str = "", language: str = "en"
) -> str:
    """Return the system prompt for an answer in lines: what is wanted, and a placeholder for each line.

    `open_list`: the name of the list that has a line for each item, however many.
    """
    texts = _texts(language)
    count = texts["items"].format(open_list) if open_list else texts["fields"].format(len(placeholders))
    count = texts["line"] if len(placeholders) == 1 and not open_list else count
    return "\n\n".join(filter(None, (wanted, "\n".join([count, *placeholders]))))


def describe_added_tools(tools: Iterable[Tool], *, style: PromptStyle = "full", language: str = "en") -> str:
    """Return a later message about tools that the system prompt does not describe."""
    return "\n".join([_texts(language)["more"], *(describe_tool(tool, style, language) for tool in tools)])


def suggest_tool(name: str, *, language: str = "en") -> str:
    """Return the text that names the tool which fits a request best."""
    return _texts(language)["suggestion"].format(name)


def call_text(call: Mapping[str, Any]) -> str:
    """Return a call as JSON: `{"name": "create_dirs", "arguments": {"paths": ["trips"]}}`.

    Names of control tokens are escaped: the same JSON value, and plain text for every tokenizer.
    """
    return escape_control_tokens(json_of(call))


def result_text(
    step: int, result: Mapping[str, Any], *, limit: int = RESULT_LIMIT, keep_ends: bool = False
) -> str:
    """Return a result as JSON: `{"step": 1, "result": {"entries": ["trips"]}}`.

    A result of more than `limit` characters is shortened: lists and objects lose their last members, long
    strings their end, and `left_out` says how much. With `keep_ends`, a long string keeps its end, too, and
    says what it lost: `[shortened: 12,345 of 12,800 characters removed]`. The text is always valid JSON.
    """
    value, left_out = shorten(result, limit=limit, keep_ends=keep_ends)
    return call_text({"step": step, "result": value} | ({"left_out": left_out} if left_out else {}))


def shorten(value: Any, *, limit: int, keep_ends: bool = False) -> tuple[Any, str]:
    """Return a JSON value of at most `limit` characters, if that is possible, and what is missing, in words.

    `keep_ends` as in `result_text`.
    """
    unshortened = _Shortened(value, _WHOLE, _WHOLE, keep_ends)
    if unshortened.length <= limit:
        return unshortened.value, ""
    least = min(_MIN_TEXT_CHARACTERS, limit // 8) if keep_ends else _MIN_TEXT_CHARACTERS
    counts = range(1, limit + 1)  # what is longer does not fit, either
    members = bisect(counts, 0, key=lambda count: _Shortened(value, count, least, keep_ends).length > limit)
    members = max(members, 1)
    characters = bisect(
        counts, 0, key=lambda count: _Shortened(value, members, count, keep_ends).length > limit
    )
    shortened = _Shortened(value, members, characters, keep_ends)
    if shortened.length > limit:
        shortened = _Shortened(value, 0, 0, keep_ends)
    return shortened.value, shortened.left_out()


def error_text(step: int, error: str, *, limit: int = RESULT_LIMIT) -> str:
    """Return why a call was refused or failed, as JSON: `{"step": 1, "error": "…"}`."""
    text = _clean(error)
    if len(text) > limit:
        text = f"{text[:limit]}… ({len(text) - limit} characters left out)"
    return call_text({"step": step, "error": text})


_LARGEST_INTEGER = 14_000  # bits: Python refuses to write more than 4,300 digits
_WHOLE = 1 << 60
_DEPTH = 32


class _Shortened:
    """A value with a limit on the members of each list and object, and on the characters of each string.

    `length` is that of its JSON text. Values that JSON does not have become strings.
    """

    def __init__(self, value: Any, members: int, characters: int, keep_ends: bool) -> None:
        self._members, self._characters, self._keep_ends = members, characters, keep_ends
        self._entries_left_out = self._characters_left_out = 0
        self.value = self._short(value, _DEPTH)
        self.length = len(call_text(self.value))

    def left_out(self) -> str:
        """Return what is missing, in words."""
        counts = ((self._entries_left_out, "entries"), (self._characters_left_out, "characters of text"))
        return ", ".join(f"{count} {what}" for count, what in counts if count)

    def _short(self, value: Any, depth: int) -> Any:
        match value:
            case int() if value.bit_length() > _LARGEST_INTEGER:
                return self._text(hex(value))
            case None | bool() | int():
                return value
            case float():
                return value if math.isfinite(value) else str(value)
            case str():
                return self._text(_clean(value))
            case Mapping() if depth:
                items = list(value.items())[: self._members]
                self._entries_left_out += len(value) - len(items)
                return {_clean(str(key)): self._short(member, depth - 1) for key, member in items}
            case list() | tuple() if depth:
                members = value[: self._members]
                self._entries_left_out += len(value) - len(members)
                return [self._short(member, depth - 1) for member in members]
            case Mapping() | list() | tuple():
                self._entries_left_out += len(value)
                return "…"
            case _:
                return self._text(_clean(str(value)))

    def _text(self, text: str) -> str:
        if len(text) <= self._characters:
            return text
        if self._keep_ends:  # the start, and half as much of the end
            end, lost = self._characters // 3, len(text) - self._characters
            mark = f"[shortened: {lost:,} of {len(text):,} characters removed]"
            return min(text, text[: self._characters - end] + mark + text[len(text) - end :], key=len)
        self._characters_left_out += len(text) - self._characters
        return text[: self._characters] + "…"


def _clean(text: str) -> str:
    """Return `text` with "?" for each surrogate, as in undecodable file names."""
    return text.encode("utf-8", "replace").decode()
