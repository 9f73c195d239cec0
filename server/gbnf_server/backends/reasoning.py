"""Where a model's thoughts begin and end: the markers of its chat template, in prompts and in answers. Pure.

A conversation whose last message is `reasoning_message(…)` asks for more than an answer: it says what stands between the
markers so far. Only a backend that renders the prompt itself, and whose model has `reasoning_tags`, takes one.

    begun("")                       the model thinks; `reasoning_grammar` ends the text with the thoughts
    begun("so: …", closed=True)     it has thought that, and answers
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from gbnf.grammar.emit import emit
from gbnf.grammar.ir import EPSILON, Expr, Literal, Ref, Rules, alt, char_class, seq
from gbnf.prompts.messages import Message


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """`opening` stands before the thoughts, `closing` after them, and `answer_prefix` between that and the text.

    `generation_prompt` is what a prompt ends with where the model itself chooses whether it thinks, and has to be
    told where its answer begins; "" where it may answer at once.
    """

    opening: str
    closing: str
    answer_prefix: str = "\n\n"
    generation_prompt: str = ""

    @property
    def begin(self) -> str:
        """What thoughts begin with, whatever spaces stand around it."""
        return self.opening.strip()

    @property
    def end(self) -> str:
        """What ends them: where a message of thoughts may follow another, only what begins the answer."""
        return self.closing + self.answer_prefix if self.generation_prompt else self.closing

    @property
    def direct_answer_prefix(self) -> str:
        """What begins an answer without thoughts, behind `generation_prompt`; "" where nothing does."""
        return self.answer_prefix.removeprefix(self.generation_prompt) if self.generation_prompt else ""

    @property
    def separator(self) -> str:
        """What stands between `end` and the text, whatever spaces stand around it."""
        return "" if self.generation_prompt else self.answer_prefix.strip()

    def answer_text(self, after: str) -> str:
        """The text in what stands behind `end`."""
        return after.lstrip().removeprefix(self.separator).lstrip()

    @property
    def tokens(self) -> tuple[str, ...]:
        """The names of special tokens that may stand in the markers, each once."""
        found = _TOKEN.findall(self.opening + self.closing + self.answer_prefix + self.generation_prompt)
        return tuple(dict.fromkeys(found))


_TOKEN = re.compile(r"<[^<>\s]+>|\[/?[A-Z]+\]")

KNOWN_REASONING_TAGS: tuple[ReasoningTags, ...] = (
    ReasoningTags("<think>\n", "</think>"),
    ReasoningTags("[THINK]", "[/THINK]", answer_prefix=""),
    ReasoningTags(
        "<|channel|>analysis<|message|>",
        "<|end|>",
        answer_prefix="<|start|>assistant<|channel|>final<|message|>",
        generation_prompt="<|start|>assistant",
    ),
    ReasoningTags("<|START_THINKING|>", "<|END_THINKING|>", answer_prefix="<|START_RESPONSE|>"),
    ReasoningTags("<seed:think>", "</seed:think>", answer_prefix=""),
    ReasoningTags("<thought>\n", "</thought>"),
)


def find_reasoning_tags(template: str) -> ReasoningTags | None:
    """The markers that a chat template's text speaks of; None for a model that does not think aloud."""
    return next((each for each in KNOWN_REASONING_TAGS if each.opening.strip() in template), None)


def reasoning_message(thoughts: str, *, closed: bool = False) -> Message:
    """The last message of a conversation in which the model has begun to think."""
    return {"role": "assistant", "content": thoughts, "thinking": "closed" if closed else "open"}


def split_reasoning_message(messages: Sequence[Message]) -> tuple[Sequence[Message], Message | None]:
    """Part a conversation from the thoughts at its end, None where there are none."""
    if messages and "thinking" in messages[-1]:
        return messages[:-1], messages[-1]
    return messages, None


def append_reasoning(prompt: str, message: Message, reasoning_tags: ReasoningTags) -> str:
    """Return the prompt with the reasoning of a `reasoning_message` behind it, in its tags."""
    opening = "" if prompt.rstrip().endswith(reasoning_tags.begin) else reasoning_tags.opening
    text = f"{prompt}{opening}{message['content']}"
    if message.get("thinking") == "open":
        return text
    line = "\n" if reasoning_tags.opening.endswith("\n") and message["content"] else ""
    return f"{text}{line}{reasoning_tags.closing}{reasoning_tags.answer_prefix}"


def open_reasoning_tags(prompt: str) -> ReasoningTags | None:
    """The markers whose thoughts the prompt has begun, None where it has not."""
    bare = prompt.rstrip()
    return next((each for each in KNOWN_REASONING_TAGS if bare.endswith(each.opening.strip())), None)


def close_reasoning(prompt: str) -> str:
    """End the thoughts that some templates open: a grammar binds from the first token on.

    A model that chooses between thoughts and answer gets the mark of the answer.
    """
    bare = prompt.rstrip()
    for each in KNOWN_REASONING_TAGS:
        if bare.endswith(each.opening.strip()):
            return f"{bare}\n\n{each.closing}{each.answer_prefix}"
        if each.generation_prompt and bare.endswith(each.generation_prompt):
            return f"{prompt}{each.answer_prefix.removeprefix(each.generation_prompt)}"
    return prompt


def split_reasoning(text: str, open_tags: ReasoningTags | None = None) -> tuple[str, str]:
    """Part an unconstrained answer into thoughts and text: `<think>a</think>b` -> ("a", "b").

    `open_tags`: the prompt has begun the thoughts (`open_reasoning_tags`). Where thoughts never end, all of it is thoughts.
    Where neither the prompt nor the text begins any, a closing marker may still end some, since a server
    may not show its prompt; see `find_unopened_end`.
    """
    bare = text.lstrip()
    reasoning_tags = open_tags or next(
        (each for each in KNOWN_REASONING_TAGS if bare.startswith(each.begin)), None
    )
    if reasoning_tags is not None:
        before, closed, after = text.partition(reasoning_tags.end)
        thoughts = before.strip().removeprefix(reasoning_tags.begin)
        return (
            thoughts if closed else thoughts.removesuffix(reasoning_tags.closing)
        ).strip(), reasoning_tags.answer_text(after)
    for each in KNOWN_REASONING_TAGS:
        if each.direct_answer_prefix and bare.startswith(each.direct_answer_prefix):
            return "", bare.removeprefix(each.direct_answer_prefix)
    if found := find_unopened_end(text):
        reasoning_tags, place = found
        return text[:place].strip(), reasoning_tags.answer_text(text[place + len(reasoning_tags.end) :])
    return "", text


def find_unopened_end(text: str) -> tuple[ReasoningTags, int] | None:
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


_ENDS = {each.end: each for each in KNOWN_REASONING_TAGS}
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
def reasoning_grammar(closing: str) -> str:
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
        rules[_state(matched).name] = alt(*paths, EPSILON)
    return emit(Rules({"root": _state(0), **rules}))


def _state(matched: int) -> Ref:
    return Ref(f"thought-{matched}")


def _overlap(closing: str, text: str) -> int:
    return next(size for size in range(len(text), -1, -1) if text.endswith(closing[:size]))
