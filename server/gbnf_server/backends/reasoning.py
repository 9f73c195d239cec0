"""A model's reasoning: the tags around it in prompts and answers. Pure.

The last message of a conversation may be a `reasoning_message`, the text between the tags so far. Only
backends with `ModelTraits.reasoning_tags` take one, since they render the prompt.

    reasoning_message("")                     the model reasons; `reasoning_grammar` ends the text after it
    reasoning_message("so: …", closed=True)   the model has reasoned that, and answers
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from gbnf import Grammar
from gbnf.compiler.automaton_rules import words_expr
from gbnf.compiler.primitives import RESERVED
from gbnf.compiler.rules import RuleTable, Scope
from gbnf.grammar.ir import Rules
from gbnf.prompts.messages import Message
from gbnf.regular.ecma262 import search
from gbnf.tool_formats import ReasoningDelta, TextDelta
from gbnf.tool_formats.cursor import AnswerCursor, Delimiters, Steps, Stripped


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """The tags of one chat template, in order: `opening`, reasoning, `closing`, `answer_prefix`, text.

    `generation_prompt`: the end of a prompt, if the model itself writes the `answer_prefix` of an answer
    without reasoning; "" if such an answer has none.
    """

    opening: str
    closing: str
    answer_prefix: str = "\n\n"
    generation_prompt: str = ""

    @property
    def begin(self) -> str:
        """The opening tag, without whitespace around it."""
        return self.opening.strip()

    @property
    def end(self) -> str:
        """The end of the reasoning; includes the answer's prefix if there may be several messages of it."""
        return self.closing + self.answer_prefix if self.generation_prompt else self.closing

    @property
    def direct_answer_prefix(self) -> str:
        """The prefix of an answer without reasoning, after `generation_prompt`; "" for none."""
        return self.answer_prefix.removeprefix(self.generation_prompt) if self.generation_prompt else ""

    @property
    def separator(self) -> str:
        """The text between `end` and the answer, without whitespace around it."""
        return "" if self.generation_prompt else self.answer_prefix.strip()

    @property
    def tokens(self) -> tuple[str, ...]:
        """The names of special tokens in the tags, each once."""
        names = _TOKEN.findall(self.opening + self.closing + self.answer_prefix + self.generation_prompt)
        return tuple(dict.fromkeys(names))


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
    """Return the tags in a chat template; None for a model without reasoning."""
    return next((tags for tags in KNOWN_REASONING_TAGS if tags.begin in template), None)


def reasoning_message(reasoning: str, *, closed: bool = False) -> Message:
    """Return the last message of a conversation in which the model has begun to reason."""
    return {"role": "assistant", "content": reasoning, "thinking": "closed" if closed else "open"}


def split_reasoning_message(messages: Sequence[Message]) -> tuple[Sequence[Message], Message | None]:
    """Split a conversation from the `reasoning_message` at its end, None if there is none."""
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
    """Return the tags of the reasoning that the prompt begins, None if it begins none."""
    bare = prompt.rstrip()
    return next((tags for tags in KNOWN_REASONING_TAGS if bare.endswith(tags.begin)), None)


def close_reasoning(prompt: str) -> str:
    """Return the prompt with the reasoning closed that its template opens: a grammar is for the answer only.

    For a model that chooses between reasoning and answer, the prompt gets the answer's prefix.
    """
    bare = prompt.rstrip()
    for tags in KNOWN_REASONING_TAGS:
        if bare.endswith(tags.begin):
            return f"{bare}\n\n{tags.closing}{tags.answer_prefix}"
        if tags.generation_prompt and bare.endswith(tags.generation_prompt):
            return f"{prompt}{tags.answer_prefix.removeprefix(tags.generation_prompt)}"
    return prompt


@cache
def _begins(tags: ReasoningTags | None) -> Delimiters:
    """Return what an answer may begin with: any tag or prefix, or again the tag that its prompt ends with."""
    signs = (
        [tags.begin] if tags else [*_BEGINS, *(kind.direct_answer_prefix for kind in KNOWN_REASONING_TAGS)]
    )
    return Delimiters(rf"\s*{re.escape(sign)}" for sign in signs if sign)


@cache
def _ends(tags: ReasoningTags) -> Delimiters:
    """Return what ends reasoning; the closing tag alone if the answer ends with it."""
    return Delimiters([re.escape(tags.end)], final=[rf"{re.escape(tags.closing)}\s*\Z"])


class ReasoningSplitter:
    """Splits an answer into reasoning and text, and passes on their pieces as they arrive.

    `open_tags`: the tags of the reasoning that the prompt began (`open_reasoning_tags`). Otherwise its
    opening tag shows it. If the reasoning is not closed, it is the whole answer. `constrained`: there is a
    grammar, so that all of the answer is text.
    """

    def __init__(
        self,
        on_delta: Callable[[TextDelta | ReasoningDelta], None],
        open_tags: ReasoningTags | None = None,
        *,
        constrained: bool = False,
    ) -> None:
        self._on_delta, self._tags, self._constrained = on_delta, open_tags, constrained
        self._texts: list[str] = []
        self._reasoning: list[str] = []
        self._reason = Stripped(self._write_reasoning)
        self._is_direct = constrained  # what the text begins with shows that it has no reasoning
        self._cursor = AnswerCursor()
        self._steps = self._split()

    def feed(self, piece: str) -> None:
        """Add a piece of the answer."""
        self._cursor.feed(piece)
        next(self._steps)

    def feed_reasoning(self, piece: str) -> None:
        """Add a piece of reasoning that the server itself has separated from the text."""
        if not self._constrained:  # otherwise it may be the text; see `answer`
            self._reason(piece)

    def close(self) -> tuple[str, str]:
        """Pass on the rest, and return the reasoning and the text.

        If neither the prompt nor the text opens any reasoning, a closing tag may still end some, since a
        server may hide its prompt; see `find_unopened_end`. Its pieces have been passed on as text.
        """
        self._cursor.ended = True
        next(self._steps)
        text = "".join(self._texts)
        if self._tags is None and not self._is_direct and (unopened := find_unopened_end(text)):
            tags, index = unopened
            after = text[index + len(tags.end) :].lstrip()
            return text[:index].strip(), after.removeprefix(tags.separator).lstrip()
        return "".join(self._reasoning), text

    def _split(self) -> Steps[None]:
        cursor = self._cursor
        if not self._constrained:
            begun = yield from cursor.match(_begins(self._tags))
            if self._tags is None and begun is not None:
                self._tags = _BEGINS.get(begun[0].lstrip())
                self._is_direct = self._tags is None
            if (tags := self._tags) is not None:
                end = yield from cursor.until(_ends(tags), self._reason)
                cursor.position = len(cursor.text) if end is None else end.end()
                yield from cursor.skip_space()
                yield from cursor.skip_exactly(tags.separator)
                yield from cursor.skip_space()
        while True:
            self._write(cursor.text[cursor.position :])
            cursor.position = len(cursor.text)
            yield

    def _write(self, text: str) -> None:
        if text:
            self._texts.append(text)
            self._on_delta(TextDelta(text))

    def _write_reasoning(self, text: str) -> None:
        self._reasoning.append(text)
        self._on_delta(ReasoningDelta(text))


def find_unopened_end(text: str) -> tuple[ReasoningTags, int] | None:
    """Return the first closing tag that may end reasoning which `text` does not open, and its index.

    A tag in a string of a call, in a parameter between tags, or in code is text, and ends nothing.
    """
    position = depth = 0
    last = text.rfind("</parameter>")
    while match := (_IN_JSON if depth else _IN_PROSE).search(text, position):
        position, sign = match.end(), match.group()
        if match["tag"]:
            return _ENDS[sign], match.start()
        if sign in {"{", "}"}:
            depth += 1 if sign == "{" else -1
        elif not depth and (sign[0] == "`" or (sign[0] == "<" and position <= last)):
            close = {"`": "`", "```": "\n```"}.get(sign, "</parameter>")
            ends = text.find("\n", position) if sign == "`" else -1
            end = text.find(close, position, len(text) if ends < 0 else ends)
            position = position if end < 0 else end + len(close)
    return None


_BEGINS = {tags.begin: tags for tags in KNOWN_REASONING_TAGS}
_ENDS = {tags.end: tags for tags in KNOWN_REASONING_TAGS}
_CLOSING_TAG = rf"(?P<tag>{'|'.join(map(re.escape, _ENDS))})"
_VALUE = r"""(?:(?<=[=(:,\[])|(?<=[=:,] ))(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
_IN_PROSE = re.compile(rf"{_CLOSING_TAG}|\{{(?=\s*[\"'])|(?<![^\n])```|`|<parameter[=: ]|{_VALUE}")
"""What may enclose text: objects, code blocks, inline code, tags, and values of Python and YAML."""
_IN_JSON = re.compile(
    rf"""{_CLOSING_TAG}|[{{}}]|"[^"\\]*(?:\\.[^"\\]*)*"?|(?<=[\s{{\[,:])'[^'\\]*(?:\\.[^'\\]*)*'?""",
    re.DOTALL,
)
"""Brackets and strings of an object as models write it; an unclosed string extends to the end."""


@cache
def reasoning_grammar(closing: str) -> Grammar:
    """Return the grammar of any text up to and including the first `closing`.

    The text may also end without it: the model's end-of-generation token may be that tag.
    """
    end, table = re.escape(closing), RuleTable(RESERVED)
    language = search(rf"^(?:(?!{end})[^])*(?:{end})?$")
    root = words_expr(language, Scope(table, ("reasoning",)))
    return Grammar(Rules({"root": root, **table.productions}))
