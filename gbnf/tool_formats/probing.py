"""Render conversations that show how a template writes calls, texts and reasoning.

What the template is given depends on what it accepts: arguments as an object or as JSON text, an empty
content or none. `find_shape` tries them in this order.

Some templates show the declared tools, but not the calls of past answers. Such calls are written into the
content of the answer. The instructions of some show their format; those of `_KNOWN` say too little:

- LFM2 and LFM2.5 (Liquid AI): their prompts list the tools without instructions. The models are trained on
  Python's calls between control tokens, as their model cards show.
- Granite 3 (IBM): the instructions ask for `<|tool_call|>` and a JSON list "of tools used", without its keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from gbnf.compiler.layout import Whitespace
from gbnf.errors import ToolFormatError
from gbnf.schema_caches import schema_cache
from gbnf.strict_json import json_of
from gbnf.tool_formats.format import Reasoning
from gbnf.tool_formats.pieces import common_prefix, split_pieces
from gbnf.tool_formats.sandbox import RefusedError
from gbnf.tool_formats.template import TemplateRenderer

Message: TypeAlias = Mapping[str, Any]

NAMES = ("zqfirst", "zqsecond", "zqthird")
KEYS = ("zqka", "zqkb", "zqkc")
TEXT, QUERY, RESULT, REASON = "Zqtext", "Zqquery", "Zqresult", "Zqreason"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking", "thought")
_SWITCHES: tuple[tuple[str, Any, Any], ...] = (
    ("enable_thinking", True, False),
    ("thinking", True, False),
    ("thinking_mode", "enabled", "disabled"),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a template is given.

    `functions`: it takes the declared tools as JSON text in that variable. `unwritten`: how calls are written
    into the content of an answer, for a template that shows none.
    """

    arguments: Literal["object", "text"] = "object"
    content: str | None = ""
    functions: bool = False
    unwritten: UnwrittenCalls | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A call to render. `id`: None for `call_id`."""

    name: str
    arguments: Mapping[str, Any]
    id: str | None = None


def call_id(index: int) -> str:
    """Return the identifier of a call: nine letters and digits, as Mistral's templates require."""
    return f"zqid{index:05}"


def openai_call(shape: Shape, call: Call, index: int) -> dict[str, Any]:
    """Return a call in OpenAI's form, with its arguments as the template takes them."""
    arguments = call.arguments if shape.arguments == "object" else json_of(call.arguments)
    return {
        "id": call.id or call_id(index),
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def message_of_calls(shape: Shape, message: dict[str, Any]) -> dict[str, Any]:
    """Return an answer's message with calls in OpenAI's form as the template takes it."""
    if shape.unwritten is None:
        return message
    functions = [call["function"] for call in message["tool_calls"]]
    written = shape.unwritten.text([(function["name"], function["arguments"]) for function in functions])
    others = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**others, "content": (message.get("content") or "") + written}


def switches(source: str, *, reasoning: bool) -> dict[str, Any]:
    """Return the variables by which a template is asked for reasoning, or for none."""
    chosen = {name: on if reasoning else off for name, on, off in _SWITCHES if name in source}
    if "no_think" in source and "reasoning_effort" in source:
        chosen["reasoning_effort"] = "high" if reasoning else "no_think"
    return chosen


@dataclass(frozen=True)
class Prober:
    """A template with the shape of what it accepts."""

    renderer: TemplateRenderer
    shape: Shape = Shape()

    def render(self, messages: Sequence[Message], *, generate: bool = False, reasoning: bool = False) -> str:
        """Return the text of a conversation, at a fixed time."""
        return self.renderer.render(
            messages,
            tools=TOOLS,
            add_generation_prompt=generate,
            now=NOW,
            **self.extra_variables(TOOLS),
            **switches(self.renderer.source, reasoning=reasoning),
        )

    def extra_variables(self, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the variables that older templates have instead of `tools`."""
        if not self.shape.functions:
            return {}
        return {"functions": json.dumps([tool["function"] for tool in tools]), "datetime": NOW.isoformat()}

    def assistant(
        self, calls: Sequence[Call] = (), text: str | None = None, *, reasoning: str | None = None
    ) -> dict[str, Any]:
        """Return the message of an answer."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": self.shape.content if text is None else text,
        }
        if calls:
            message["tool_calls"] = [openai_call(self.shape, call, index) for index, call in enumerate(calls)]
            message = message_of_calls(self.shape, message)
        if reasoning is not None:
            message |= dict.fromkeys(_REASONING_FIELDS, reasoning)
        return message

    def prompt(self, *, reasoning: bool = False) -> str:
        """Return the prompt of an answer to `QUERY`."""
        return _prompt(self, reasoning)[0]

    def opening(self, *, reasoning: bool = False) -> str:
        """Return what asks for an answer at the end of a prompt."""
        return _prompt(self, reasoning)[1]

    def answer(self, message: Message, marks: Sequence[str], *, reasoning: bool = False) -> str:
        """Return what an answer's message adds to its prompt, with everything that follows it.

        `marks`: texts of the message; the prompt ends before the first of them.
        """
        full = self.render([USER, message], reasoning=reasoning)
        return full[self.answer_start(full, marks, reasoning=reasoning) :]

    def answer_start(self, full: str, marks: Sequence[str], *, reasoning: bool = False) -> int:
        """Return where in a conversation the answer begins."""
        prompt, opening = self.prompt(reasoning=reasoning), self.opening(reasoning=reasoning)
        shared = _shared_length(full, prompt)
        if shared < len(prompt) and opening:
            start = full.find(opening, max(0, shared - len(opening)), first_of(full, marks, shared))
            if start >= 0:
                return start + len(opening)
        return shared


def first_of(text: str, parts: Sequence[str], start: int = 0) -> int | None:
    """Return where the first of these parts begins, None if there is none."""
    return min((position for part in parts if (position := text.find(part, start)) >= 0), default=None)


@schema_cache(maxsize=128)
def _prompt(prober: Prober, reasoning: bool) -> tuple[str, str]:
    """Return the prompt of an answer to `QUERY`, and what asks for the answer at its end."""
    prompt = prober.render([USER], generate=True, reasoning=reasoning)
    return prompt, prompt[_shared_length(prompt, prober.render([USER], reasoning=reasoning)) :]


def _shared_length(first: str, second: str) -> int:
    """Return how many characters both begin with, in whole pieces."""
    pieces = split_pieces(first)
    return sum(len(str(piece)) for piece in pieces[: common_prefix(pieces, split_pieces(second))])


def without_reasoning(answer: str, reasoning: Reasoning | None) -> str:
    """Return an answer without the empty reasoning with which it begins."""
    if reasoning is None:
        return answer
    before, end, after = answer.partition(reasoning.end)
    return after if end and before.strip() in ("", reasoning.begin) else answer


def find_shape(renderer: TemplateRenderer) -> Prober:
    """Return a prober with what the template accepts.

    Raises `ToolFormatError` if it refuses every conversation with a call, or writes none of them and nothing
    says how its model writes them.
    """
    refusal: ToolFormatError | None = None
    call = Call(NAMES[0], {KEYS[0]: TEXT})
    shapes = [
        Shape(arguments, content, functions)
        for functions in (False, True)
        for arguments in ("object", "text")
        for content in ("", None)
    ]
    for shape in (*shapes, _shape_of_unwritten(renderer)):
        if shape is None:
            continue
        prober = Prober(renderer, shape)
        try:
            answer = prober.answer(prober.assistant([call]), [NAMES[0], TEXT])
            prober.prompt()
        except RefusedError as error:
            refusal = refusal or error
        else:
            if NAMES[0] in answer and TEXT in answer:
                return prober
    if refusal is not None and not _renders_anything(renderer):
        raise refusal
    raise ToolFormatError("the template renders no tool call")


def _shape_of_unwritten(renderer: TemplateRenderer) -> Shape | None:
    """Return the shape of a template that shows tools but no calls, if something says how to write them."""
    try:
        prompt = Prober(renderer).prompt()
    except RefusedError:
        return None
    if not all(name in prompt for name in NAMES):
        return None
    if shown := _SHOWN.search(prompt):
        calls = UnwrittenCalls("", "\n", "", _json_calls(shown[3], shown[4], shown[1], shown[5]))
        return Shape(unwritten=calls)
    return next((Shape(unwritten=calls) for sign, calls in _KNOWN if sign.search(prompt)), None)


def _renders_anything(renderer: TemplateRenderer) -> bool:
    try:
        messages = [USER, {"role": "assistant", "content": TEXT}]
        return bool(Prober(renderer, Shape(functions=True)).render(messages))
    except RefusedError:
        return False


def _tool(name: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": "A text"} for key in KEYS}
    parameters = {"type": "object", "properties": properties, "required": [KEYS[0]]}
    return {"type": "function", "function": {"name": name, "description": "A tool", "parameters": parameters}}


USER: Message = {"role": "user", "content": QUERY}
TOOLS = [_tool(name) for name in NAMES]


Write: TypeAlias = Callable[[str, Mapping[str, Any]], str]


@dataclass(frozen=True, slots=True)
class UnwrittenCalls:
    """What a model writes around its calls, between them, and for each: its name and arguments."""

    begin: str
    separator: str
    end: str
    write: Write

    def text(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
        """Return the text of calls: pairs of name and arguments."""
        return self.begin + self.separator.join(self.write(*call) for call in calls) + self.end


def _json_calls(name: str = "name", arguments: str = "arguments", begin: str = "", end: str = "") -> Write:
    """Return what writes a call as a JSON object with two members of these names."""
    return lambda tool_name, values: begin + json_of({name: tool_name, arguments: values}) + end


def _python_call(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={_python(value)}' for key, value in arguments.items())})"


def _python(value: Any) -> str:
    """Return a literal: with double quotes, as these models write them, so that nested values are JSON."""
    return str(value) if value is None or isinstance(value, bool) else json_of(value)


_KNOWN = (
    (
        re.compile(r"List of tools: (?:<\|tool_list_start\|>)?\["),
        UnwrittenCalls("<|tool_call_start|>[", ", ", "]<|tool_call_end|>", _python_call),
    ),
    (
        re.compile(r"respond only with <\|tool_call\|> followed by a JSON list"),
        UnwrittenCalls("<|tool_call|>[", ", ", "]", _json_calls()),
    ),
)
_SHOWN = re.compile(
    r'(<(?P<tag>[\w:|-]{1,40})>\s{0,4})\{"(\w{1,20})": ?<[^<>{}]{1,40}>, ?"(\w{1,20})": ?<[^<>{}]{1,40}>\}'
    r"(\s{0,4}</(?P=tag)>)"
)
r"""`<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>`"""


def json_spans(text: str, expected: Sequence[Mapping[str, Any]]) -> tuple[list[tuple[int, int]], bool] | None:
    """Return where the given arguments stand, and whether they are quoted JSON; None: not all do."""
    for quoted in (False, True):
        values = _json_values(text, '"' if quoted else "{")
        places = [span for span, value in values if _is_given(value, expected[0], quoted)]
        if len(places) >= len(expected):
            return places[: len(expected)], quoted
    return None


def _is_given(value: Any, expected: Mapping[str, Any], quoted: bool) -> bool:
    if quoted and isinstance(value, str):
        try:
            return bool(json.loads(value) == expected)
        except ValueError:
            return False
    return bool(value == expected)


def _json_values(text: str, start: str) -> Iterator[tuple[tuple[int, int], Any]]:
    """Yield the JSON values in a text that begin with a character, and where they stand."""
    decoder = json.JSONDecoder()
    position = text.find(start)
    while position >= 0:
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            pass
        else:
            yield (position, end), value
        position = text.find(start, position + 1)


def whitespace_of(text: str, value: Any) -> Whitespace:
    """Return the whitespace with which a value was written as JSON."""
    if text == json_of(value):
        return "default"
    return "compact" if text == json.dumps(value, ensure_ascii=False, separators=(",", ":")) else "free"


def element_spans(text: str, count: int) -> list[tuple[int, int]] | None:
    """Return where each call's only key and value stand."""
    spans = []
    position = 0
    for name in NAMES[:count]:
        position = text.find(name, position)
        start = text.find(KEYS[0], position)
        stop = text.find(TEXT, start)
        if min(position, start, stop) < 0:
            return None
        position = stop + len(TEXT)
        spans.append((start, position))
    return spans
