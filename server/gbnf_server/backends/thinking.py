"""Where a model's thoughts begin and end: the markers of its chat template, in prompts and in answers. Pure.

A conversation whose last message is `begun(…)` asks for more than an answer: it says what stands between the
markers so far. Only a backend that renders the prompt itself, and whose model has `markers`, takes one.

    begun("")                       the model thinks; `thoughts_grammar` ends the text with the thoughts
    begun("so: …", closed=True)     it has thought that, and answers
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from gbnf.grammar.emit import emit
from gbnf.grammar.ir import EMPTY, Expr, Literal, Ref, Rules, alt, char_class, seq
from gbnf.prompt import Message


@dataclass(frozen=True, slots=True)
class Markers:
    """`opening` stands before the thoughts, `closing` after them, and `answering` between that and the text.

    `generation` is what a prompt ends with where the model itself chooses whether it thinks, and has to be
    told where its answer begins; "" where it may answer at once.
    """

    opening: str
    closing: str
    answering: str = "\n\n"
    generation: str = ""

    @property
    def begin(self) -> str:
        """What thoughts begin with, whatever spaces stand around it."""
        return self.opening.strip()

    @property
    def end(self) -> str:
        """What ends them: where a message of thoughts may follow another, only what begins the answer."""
        return self.closing + self.answering if self.generation else self.closing

    @property
    def at_once(self) -> str:
        """What begins an answer without thoughts, behind `generation`; "" where nothing does."""
        return self.answering.removeprefix(self.generation) if self.generation else ""

    @property
    def between(self) -> str:
        """What stands between `end` and the text, whatever spaces stand around it."""
        return "" if self.generation else self.answering.strip()

    def said(self, after: str) -> str:
        """The text in what stands behind `end`."""
        return after.lstrip().removeprefix(self.between).lstrip()

    @property
    def tokens(self) -> tuple[str, ...]:
        """The names of special tokens that may stand in the markers, each once."""
        found = _TOKEN.findall(self.opening + self.closing + self.answering + self.generation)
        return tuple(dict.fromkeys(found))


_TOKEN = re.compile(r"<[^<>\s]+>|\[/?[A-Z]+\]")

KNOWN: tuple[Markers, ...] = (
    Markers("<think>\n", "</think>"),
    Markers("[THINK]", "[/THINK]", answering=""),
    Markers(
        "<|channel|>analysis<|message|>",
        "<|end|>",
        answering="<|start|>assistant<|channel|>final<|message|>",
        generation="<|start|>assistant",
    ),
    Markers("<|START_THINKING|>", "<|END_THINKING|>", answering="<|START_RESPONSE|>"),
    Markers("<seed:think>", "</seed:think>", answering=""),
    Markers("<thought>\n", "</thought>"),
)


def markers_of(template: str) -> Markers | None:
    """The markers that a chat template's text speaks of; None for a model that does not think aloud."""
    return next((each for each in KNOWN if each.opening.strip() in template), None)


def begun(thoughts: str, *, closed: bool = False) -> Message:
    """The last message of a conversation in which the model has begun to think."""
    return {"role": "assistant", "content": thoughts, "thinking": "closed" if closed else "open"}


def beginning(messages: Sequence[Message]) -> tuple[Sequence[Message], Message | None]:
    """Part a conversation from the thoughts at its end, None where there are none."""
    if messages and "thinking" in messages[-1]:
        return messages[:-1], messages[-1]
    return messages, None


def opened(prompt: str, begin: Message, markers: Markers) -> str:
    """The prompt, and the thoughts behind it, in their markers."""
    opening = "" if prompt.rstrip().endswith(markers.opening.strip()) else markers.opening
    text = f"{prompt}{opening}{begin['content']}"
    if begin.get("thinking") == "open":
        return text
    line = "\n" if markers.opening.endswith("\n") and begin["content"] else ""
    return f"{text}{line}{markers.closing}{markers.answering}"


def opens(prompt: str) -> Markers | None:
    """The markers whose thoughts the prompt has begun, None where it has not."""
    bare = prompt.rstrip()
    return next((each for each in KNOWN if bare.endswith(each.opening.strip())), None)


def close_thinking(prompt: str) -> str:
    """End the thoughts that some templates open: a grammar binds from the first token on.

    A model that chooses between thoughts and answer gets the mark of the answer.
    """
    bare = prompt.rstrip()
    for each in KNOWN:
        if bare.endswith(each.opening.strip()):
            return f"{bare}\n\n{each.closing}{each.answering}"
        if each.generation and bare.endswith(each.generation):
            return f"{prompt}{each.answering.removeprefix(each.generation)}"
    return prompt


def split_reasoning(text: str, opened: Markers | None = None) -> tuple[str, str]:
    """Part an unconstrained answer into thoughts and text: `<think>a</think>b` -> ("a", "b").

    `opened`: the prompt has begun the thoughts (`opens`). Where thoughts never end, all of it is thoughts.
    Where neither the prompt nor the text begins any, a closing marker may still end some, since a server
    may not show its prompt; see `unannounced`.
    """
    bare = text.lstrip()
    markers = opened or next((each for each in KNOWN if bare.startswith(each.begin)), None)
    if markers is not None:
        before, closed, after = text.partition(markers.end)
        thoughts = before.strip().removeprefix(markers.begin)
        return (thoughts if closed else thoughts.removesuffix(markers.closing)).strip(), markers.said(after)
    for each in KNOWN:
        if each.at_once and bare.startswith(each.at_once):
            return "", bare.removeprefix(each.at_once)
    if found := unannounced(text):
        markers, place = found
        return text[:place].strip(), markers.said(text[place + len(markers.end) :])
    return "", text


def unannounced(text: str) -> tuple[Markers, int] | None:
    """The first closing marker that may end thoughts which nothing in `text` begins, and its index.

    One in a string of a call, in a parameter between tags or in code is somebody's text, and ends nothing.
    """
    at = depth = 0
    last = text.rfind("</parameter>")
    while found := (_IN_JSON if depth else _IN_PROSE).search(text, at):
        at, sign = found.end(), found.group()
        if found["marker"]:
            return _ENDS[sign], found.start()
        if sign in {"{", "}"}:
            depth += 1 if sign == "{" else -1
        elif not depth and (sign[0] == "`" or (sign[0] == "<" and at <= last)):
            close = {"`": "`", "```": "\n```"}.get(sign, "</parameter>")
            place = text.find(close, at, _line_end(text, at) if sign == "`" else len(text))
            at = at if place < 0 else place + len(close)
    return None


_ENDS = {each.end: each for each in KNOWN}
_MARKER = rf"(?P<marker>{'|'.join(map(re.escape, _ENDS))})"
_VALUE = r"""(?:(?<=[=(:,\[])|(?<=[=:,] ))(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
_IN_PROSE = re.compile(rf"{_MARKER}|\{{(?=\s*[\"'])|(?<![^\n])```|`|<parameter[=: ]|{_VALUE}")
"""The signs of what encloses a text: objects, code blocks and code, tags, and values of Python and YAML."""
_IN_JSON = re.compile(
    rf"""{_MARKER}|[{{}}]|"[^"\\]*(?:\\.[^"\\]*)*"?|(?<=[\s{{\[,:])'[^'\\]*(?:\\.[^'\\]*)*'?""", re.DOTALL
)
"""The signs of an object as models write it: a string that never ends reaches to the text's end."""


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def reclaim(text: str, reasoning: str, fault: Callable[[str], str | None]) -> tuple[str, bool]:
    """The text of an answer that a grammar held, and whether it stood where the server keeps thoughts.

    A server whose template opens the thoughts may take all that comes for them. `fault` judges by the
    grammar.
    """
    if not text.strip() and reasoning.strip() and fault(reasoning.strip()) is None:
        return reasoning.strip(), True
    return text, False


@cache
def thoughts_grammar(closing: str) -> str:
    """GBNF: any text up to the first `closing`, after which nothing may come.

    The model may also end it without: its end-of-generation token may be that very marker.
    """
    rules: dict[str, Expr] = {}
    for matched, expected in enumerate(closing):
        # how much of `closing` stands at the end after one more of its characters
        others = {char: _overlap(closing, closing[:matched] + char) for char in set(closing) - {expected}}
        whole = matched + 1 == len(closing)
        paths = [Literal(expected) if whole else seq(Literal(expected), _state(matched + 1))]
        paths += [seq(Literal(char), _state(length)) for char, length in sorted(others.items())]
        paths.append(seq(char_class(closing, negated=True), _state(0)))
        rules[_state(matched).name] = alt(*paths, EMPTY)
    return emit(Rules({"root": _state(0), **rules}))


def _state(matched: int) -> Ref:
    return Ref(f"thought-{matched}")


def _overlap(closing: str, text: str) -> int:
    return next(size for size in range(len(text), -1, -1) if text.endswith(closing[:size]))
