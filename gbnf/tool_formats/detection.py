"""Derive the tool-call format of a chat template from what it renders.

Calls with invented names, keys and values are rendered, alone and together; what remains the same around
them is the format. Three facts cannot be derived, since templates do not write them:

- gpt-oss also writes the recipient of a call behind the channel, other channels and other types of content,
  as its documentation (the Harmony response format) shows, and announces calls on the channel commentary.
- Which texts end an answer: llama.cpp's list of end-of-generation tokens (`src/llama-vocab.cpp`), the given
  `eos_token`, or what ends other messages.
- The reasoning tags of templates that only remove reasoning; see `gbnf.tool_formats.answer_probing`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gbnf.compiler.notations import ElementArguments, Part, Placeholder
from gbnf.errors import ToolFormatError
from gbnf.schema_caches import schema_cache
from gbnf.tool_formats.answer_probing import AnswerProber
from gbnf.tool_formats.element_detection import ElementDetection
from gbnf.tool_formats.format import JsonArguments, TextFormat
from gbnf.tool_formats.pieces import (
    CONTROL_TEXT,
    Pieces,
    join_pieces,
    leading_space,
    literal,
    repeated,
    split_pieces,
)
from gbnf.tool_formats.probing import (
    KEYS,
    NAMES,
    RESULT,
    TEXT,
    USER,
    Call,
    call_id,
    element_spans,
    find_shape,
    first_of,
    json_spans,
    whitespace_of,
)
from gbnf.tool_formats.sandbox import RefusedError
from gbnf.tool_formats.template import TemplateRenderer
from gbnf.tool_formats.tool_format import ToolFormat

_UNKNOWN_EOS = "<|unknown_eos|>"
_HARMONY_CHANNELS = ("commentary", "analysis")
_HARMONY_TYPES = ("", " <|constrain|>json", " json")
_HARMONY_TEXTS = ("<|channel|>commentary<|message|>", "<|channel|>final <|constrain|>json<|message|>")


@schema_cache(maxsize=256)
def detect(template: str, *, bos_token: str = "", eos_token: str = "") -> ToolFormat:
    """Return the tool-call format of a chat template.

    `bos_token`, `eos_token`: the texts of these tokens in the model's vocabulary, if they are known. Raises
    `ToolFormatError` with the reason if the template is malformed, renders no calls, or renders them in a way
    that is no format.
    """
    shown = eos_token or (_UNKNOWN_EOS if "eos_token" in template else "")  # it shows where answers end
    prober = find_shape(TemplateRenderer(template, bos_token=bos_token, eos_token=shown))
    form = _Detection(AnswerProber(prober, shown)).format(bos_token)
    return form if shown == eos_token else _without_eos(form)


def _without_eos(form: ToolFormat) -> ToolFormat:
    """Return a format that was derived with a stand-in for the unknown token that ends answers."""

    def known(text: str) -> str:
        return text.replace(_UNKNOWN_EOS, "")

    between = form.text.before_calls
    return replace(
        form,
        eos_token="",
        text=replace(
            form.text, end=known(form.text.end), before_calls=None if between is None else known(between)
        ),
        control_texts=tuple(control for control in form.control_texts if control != _UNKNOWN_EOS),
        end_of_turn=tuple(end for end in form.end_of_turn if end != _UNKNOWN_EOS),
        turn_end=known(form.turn_end),
    )


@dataclass(frozen=True, slots=True)
class _CallFrame:
    """What stands around the arguments of calls. `turn_end`: what follows an answer with one call."""

    begin: Pieces
    head: Pieces
    tail: Pieces
    separator: str | None
    end: Pieces
    turn_end: str


class _Detection:
    """The format of one template, step by step."""

    def __init__(self, answers: AnswerProber) -> None:
        self._answers = answers
        self._prober = answers.prober
        self.notes: list[str] = []

    def format(self, bos_token: str) -> ToolFormat:
        """Return the format."""
        arguments, frame = self._arguments_and_frame()
        frame, prompted = _with_visible_begin(frame, self._prober.prompt())
        begin = "".join(map(str, frame.begin))
        head, end = join_pieces(frame.head), "".join(map(str, frame.end))
        tail = join_pieces(frame.tail)
        marker = _marker(begin, head)
        text = self._text(begin.removeprefix(prompted), prompted, marker)
        source = self._prober.renderer.source
        others: tuple[tuple[Part, ...], ...] = ()
        if head[0] == "to=functions." and "<|channel|>commentary" in source:
            begin, head = "", (f"{begin}to=functions.", *head[1:])  # the other heads have no space there
            others = tuple(other for other in _harmony_heads() if other != head)
            text = replace(text, other_begins=_HARMONY_TEXTS)
        separator, reasoning = frame.separator, self._answers.reasoning
        parts = [begin, *head, *tail, separator or "", end, text.begin, text.end, text.before_calls or ""]
        parts += [part for other in others for part in other]
        parts += [] if reasoning is None else [reasoning.begin, reasoning.end]
        parts += arguments.literals() if isinstance(arguments, ElementArguments) else []
        controls = [text for part in parts if isinstance(part, str) for text in CONTROL_TEXT.findall(part)]
        ends = [end for end in self._answers.ends if not any(end in str(part) for part in (begin, *head))]
        declares_tools = all(name in self._prober.prompt() for name in NAMES)
        if not declares_tools:
            self.notes.append("The template does not show the declared tools.")
        return ToolFormat(
            template=source,
            bos_token=bos_token,
            eos_token=self._prober.renderer.eos_token,
            begin=begin,
            head=head,
            other_heads=others,
            arguments=arguments,
            tail=tail,
            separator=separator,
            end=end,
            marker=marker,
            text=text,
            reasoning=reasoning,
            id_pattern=self._id_pattern(),
            control_texts=tuple(dict.fromkeys(controls)),
            end_of_turn=tuple(ends),
            result_role=self._result_role(),
            notes=tuple(self.notes),
            turn_end=frame.turn_end,
            declares_tools=declares_tools,
        )

    # Calls

    def _arguments_and_frame(self) -> tuple[JsonArguments | ElementArguments, _CallFrame]:
        values = {KEYS[0]: TEXT, KEYS[1]: 4271}
        answer = self._answers.with_calls([Call(NAMES[0], values)])
        spans = json_spans(answer, [values])
        if spans is None:
            elements = ElementDetection(self._answers.with_calls, self.notes).elements()
            frame = self._frame(element_spans, {KEYS[0]: TEXT})
            before, after = len(frame.head) - len(elements.lead), len(elements.trail)
            if frame.head[before:] != elements.lead or frame.tail[:after] != elements.trail:
                raise ToolFormatError("the template writes calls alone and together in different ways")
            return elements.arguments, replace(frame, head=frame.head[:before], tail=frame.tail[after:])
        (start, stop), quoted = spans[0][0], spans[1]
        text = answer[start:stop]
        written = json.loads(text) if quoted else text
        frame = self._frame(lambda text, count: (json_spans(text, [values] * count) or [None])[0], values)
        self._check_empty(quoted=quoted)
        if not quoted and "é" not in self._answers.with_calls([Call(NAMES[0], {KEYS[0]: "é"})]):
            self.notes.append("The template escapes characters beyond ASCII, which are expected as they are.")
        return JsonArguments(whitespace_of(written, values), quoted), frame

    def _frame(self, spans: Any, arguments: Mapping[str, Any]) -> _CallFrame:
        """Return what the template writes around the arguments of one call and of several."""
        pieces = self._pieces(1, spans, arguments)
        first = pieces.index(_ARGUMENTS)
        before, (after, turn_end) = pieces[:first], self._answers.cut(pieces[first + 1 :])
        between = self._between(spans, arguments)
        if between is None:
            start = next((index for index, piece in enumerate(before) if not isinstance(piece, str)), 0)
            space = leading_space(before[:start])
            return _CallFrame(before[:space], before[space:], after, None, (), turn_end)
        before = _with_same_index(before, between)
        begin, head, tail, between, end = repeated(before, between, after)
        separator = literal(between)
        if separator is None or literal(begin) is None or literal(end) is None:
            raise ToolFormatError("the template renders several calls in different ways")
        if Placeholder("name") not in {*head, *tail}:
            raise ToolFormatError("the template renders calls without the name of the tool")
        return _CallFrame(begin, head, tail, separator, end, turn_end)

    def _pieces(self, count: int, spans: Any, arguments: Mapping[str, Any]) -> Pieces:
        """Return the pieces of an answer with several calls, from its beginning."""
        answer = self._answers.with_calls([Call(name, arguments) for name in NAMES[:count]])
        slots = [(name, Placeholder("name")) for name in NAMES] + [
            (call_id(index), Placeholder("id")) for index in range(count)
        ]
        slots.append((KEYS[0], Placeholder("key")))
        pieces: list[Part] = []
        position = 0
        places = spans(answer, count)
        if places is None:
            raise RefusedError("the template renders no arguments that can be found again")
        for start, stop in places:
            pieces += [*split_pieces(answer[position:start], slots), _ARGUMENTS]
            position = stop
        return (*pieces, *split_pieces(answer[position:], slots))

    def _between(self, spans: Any, arguments: Mapping[str, Any]) -> Pieces | None:
        """Return what stands between the arguments of two calls, None if an answer has one call."""
        try:
            two, three = (self._pieces(count, spans, arguments) for count in (2, 3))
        except RefusedError:
            return None
        bounds = [[i for i, piece in enumerate(pieces) if piece == _ARGUMENTS] for pieces in (two, three)]
        between = two[bounds[0][0] + 1 : bounds[0][1]]
        following = three[bounds[1][1] + 1 : bounds[1][2]]
        if any(end in "".join(map(str, between)) for end in self._answers.ends):
            return None
        return _with_index(between, following)

    def _check_empty(self, *, quoted: bool) -> None:
        try:
            answer = self._answers.with_calls([Call(NAMES[0], {})])
        except ToolFormatError:
            self.notes.append("The template fails on a call without arguments.")
            return
        if (json.dumps("{}") if quoted else "{}") not in answer:
            self.notes.append("The template does not write the arguments of a call that has none.")

    # Text

    def _text(self, begin: str, prompted: str, marker: str) -> TextFormat:
        before, after = self._answers.before_text, self._answers.after_text
        end = first_of(after, self._answers.ends)
        after = after if end is None else after[:end]
        text_begin = before if before.strip() else ""
        before_calls, reasoning = self._before_calls(before, begin), self._answers.reasoning
        if before_calls is not None:
            before_calls = before_calls.removesuffix(prompted)
        elif reasoning is not None and reasoning.repeats:
            before_calls = reasoning.end  # a text is a message of its own, too
        elif not text_begin and CONTROL_TEXT.fullmatch(marker):
            before_calls = ""  # the template shows no text before calls, but models write it
        return TextFormat(prompted + text_begin, after if after.strip() else "", before_calls)

    def _before_calls(self, text_begin: str, begin: str) -> str | None:
        """Return what stands between a text and its calls; None if the template has no such answer."""
        try:
            call = Call(NAMES[0], {KEYS[0]: "x"})
            message = self._prober.assistant([call], TEXT)
            answer = self._answers.to(message, [TEXT, NAMES[0]])
            alone = self._answers.with_calls([call])
        except RefusedError:
            return None
        before, has_text, after = answer.partition(TEXT)
        # what both have from the calls' beginning on is the same text
        calls = alone[len(begin) :] if alone.startswith(begin) else alone.lstrip()
        start = after.find(calls)
        if not has_text or before.strip() != text_begin.strip() or start < 0:
            return None
        between = after[:start]
        if any(end in between for end in self._answers.ends):
            return None
        for ending in (begin, begin.lstrip()):
            if between.endswith(ending):
                return between[: len(between) - len(ending)]
        return None

    # Others

    def _id_pattern(self) -> str:
        for name in ("_", "call-1_23", 64 * "a"):
            message = self._prober.assistant([Call(NAMES[0], {KEYS[0]: TEXT}, id=name)])
            try:
                self._prober.render(
                    [USER, message, {"role": "tool", "tool_call_id": name, "content": RESULT}]
                )
            except RefusedError:
                return "[A-Za-z0-9]{9}"
        return "[A-Za-z0-9_-]{1,64}"

    def _result_role(self) -> Any:
        """Return "user" where the role of results is refused, or their text is not shown."""
        message = self._prober.assistant([Call(NAMES[0], {KEYS[0]: TEXT})])
        result = {"role": "tool", "tool_call_id": call_id(0), "name": NAMES[0], "content": RESULT}
        try:
            return "tool" if RESULT in self._prober.render([USER, message, result]) else "user"
        except RefusedError:
            return "user"


_ARGUMENTS = "\0arguments"  # a piece


def _harmony_heads() -> tuple[tuple[Part, ...], ...]:
    """Return the heads of the calls of gpt-oss: the recipient before the channel or behind it."""
    kinds = [(channel, content) for channel in _HARMONY_CHANNELS for content in _HARMONY_TYPES]
    name = Placeholder("name")
    return (
        *((" to=functions.", name, f"<|channel|>{channel}{kind}<|message|>") for channel, kind in kinds),
        *((f"<|channel|>{channel} to=functions.", name, f"{kind}<|message|>") for channel, kind in kinds),
    )


def _with_visible_begin(frame: _CallFrame, prompt: str) -> tuple[_CallFrame, str]:
    """Return a frame whose calls begin with a literal, and what it takes from the end of the prompt.

    functionary's prompts end with the `>>>` that begins every call: the answer's text then begins with a
    name, as no other text does.
    """
    if frame.begin or isinstance(frame.head[0], str) or not frame.separator:
        return frame, ""
    taken = frame.separator
    if not prompt.endswith(taken):
        return frame, ""
    return replace(frame, head=(*split_pieces(taken), *frame.head), separator=""), taken


def _with_index(between: Pieces, following: Pieces) -> Pieces | None:
    """Return what stands between calls with a slot for the calls' numbers. None: they differ otherwise."""
    if len(between) != len(following):
        return None
    pieces: list[Part] = []
    for piece, later in zip(between, following, strict=True):
        if piece == later:
            pieces.append(piece)
        elif isinstance(piece, str) and piece.isdecimal() and later == str(int(piece) + 1):
            pieces.append(Placeholder("index", int(piece) - 1))
        else:
            return None
    return tuple(pieces)


def _with_same_index(before: Pieces, between: Pieces) -> Pieces:
    """Return what stands before the first call with the slot for its number, where `between` has it."""
    pieces = list(before)
    for back in range(1, min(len(before), len(between)) + 1):
        slot = between[-back]
        if isinstance(slot, Placeholder) and slot.kind == "index" and pieces[-back] == str(slot.base):
            pieces[-back] = slot
    return tuple(pieces)


def _marker(begin: str, head: Sequence[Part]) -> str:
    """Return the text that begins calls, and occurs in no text before them."""
    lead = head[0] if head and isinstance(head[0], str) else ""
    if tag := CONTROL_TEXT.match((begin + lead).lstrip()):
        return tag[0]
    marker = begin.strip() or lead.strip()
    if not marker:
        raise ToolFormatError(
            "the template begins calls with the name of the tool, so that no text marks them"
        )
    return marker
