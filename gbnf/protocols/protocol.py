"""A call protocol: how the final answer and the calls of a model are constrained, read and written.

One frozen value for each way in which models call tools (`gbnf.protocols.call_protocols`); the code that runs
a conversation knows none of them.

With a model's native format, tools and calls go to its chat template as they are. Otherwise the system prompt
describes the tools (`gbnf.prompts`), and calls and results are written in their JSON form.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar, TypeAlias

from gbnf.compiler.grammar import Grammar
from gbnf.compiler.layout import PropertyOrder
from gbnf.compiler.pool import MAX_DEPTH
from gbnf.errors import GbnfError, clip
from gbnf.prompts.descriptions import PromptStyle, describe_tool
from gbnf.prompts.messages import Message, call_text
from gbnf.protocols.readers import AnswerReader, FinalAnswerText
from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf.tools import Tool

_INSTRUCTIONS = (
    'To use a tool, answer with one JSON call on a line of its own: {"name": "tool", "arguments": {…}}, and '
    "nothing before or after it. Its result comes back as the next message. When no tool is needed, answer "
    "with plain text."
)


def tools_prompt(tools: Sequence[Tool], style: PromptStyle, *, required: bool = False) -> str:
    """Return the part of the system prompt that describes the tools; `required`: and demands a call."""
    shown = [describe_tool(tool, style, "en") for tool in tools]
    if style == "minimal":
        return "\n".join(["Tools:", *shown])
    demand = ["Your next answer must be a call."] if required else []
    return "\n\n".join([_INSTRUCTIONS, "Tools:", *shown, *demand])


def _written(messages: Iterator[Message]) -> Iterator[Message]:
    step = 0
    steps: dict[str, int] = {}
    for message in messages:
        if message["role"] == "tool":
            number = steps.get(message.get("tool_call_id", ""), step)
            yield {**_bare(message), "content": call_text({"step": number, **_result(message["content"])})}
            continue
        calls = message.get("tool_calls", ())
        lines = [message["content"]] if message["content"] else []
        for call in calls:
            step += 1
            steps[str(call.get("id", ""))] = step
            lines.append(call_text(call["function"]))
        yield {**_bare(message), "content": "\n".join(lines)}


def _bare(message: Message) -> Message:
    bare: Message = {"role": message["role"], "content": message["content"]}
    if "images" in message:
        bare["images"] = message["images"]
    return bare


def _result(content: str) -> dict[str, Any]:
    """Return the text of a result as a member of a JSON object; JSON in it is not quoted again."""
    try:
        return {"result": parse_json(content)}
    except InvalidJsonError:
        return {"result": content}


def for_template(messages: Sequence[Message], pattern: str) -> tuple[Message, ...]:
    """Return the conversation for a chat template with tools: one system message, and ids that it accepts.

    `pattern`: that of ids. Many templates refuse a system message that is not the first.
    """
    accepts = re.compile(pattern)
    system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
    first: tuple[Message, ...] = ({"role": "system", "content": system},) if system else ()
    others = (message for message in messages if message["role"] != "system")
    return (*first, *(_with_accepted_ids(message, accepts) for message in others))


def _hashed_id(identifier: str, accepts: re.Pattern[str]) -> str:
    """Return an id that the template accepts: the same one, or always the same digits of its hash."""
    if accepts.fullmatch(identifier):
        return identifier
    return sha256(identifier.encode("utf-8", "replace")).hexdigest()[:9]  # what every template accepts


def _with_accepted_ids(message: Message, accepts: re.Pattern[str]) -> Message:
    if "tool_call_id" in message:
        return {**message, "tool_call_id": _hashed_id(message["tool_call_id"], accepts)}
    if "tool_calls" in message:
        calls = [{**call, "id": _hashed_id(str(call["id"]), accepts)} for call in message["tool_calls"]]
        return {**message, "tool_calls": calls}
    return message


AnswerFormat: TypeAlias = Grammar | Mapping[str, Any]
"""What constrains an answer: a grammar, or a JSON Schema for servers that take no grammar."""

SHOWN_CHARACTERS = 400


class UnreadableCallError(GbnfError):
    """A text is no call that can be read, and no answer. The message is for the model."""


@dataclass(frozen=True, slots=True)
class Offered:
    """What an answer may be.

    `tools`: those that it may call; `parallel`: several calls. `answer`: it may be the final answer. `steps`:
    the numbers of earlier steps that arguments may refer to. `other_calls`: a text may be JSON that looks
    like a call of a tool that is not offered, and a call between prose is an example. For `ask_user`,
    `property_order` and `max_depth` see `gbnf.compile_pool`.
    """

    tools: tuple[Tool, ...]
    answer: bool = True
    parallel: bool = False
    steps: tuple[int, ...] = ()
    ask_user: bool = False
    property_order: PropertyOrder = "any"
    other_calls: bool = True
    max_depth: int = MAX_DEPTH


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """What a text says. `call`: a JSON value, not validated; `repairs`: changes that reading it took.

    `preface`: the prose before the call.
    """

    call: Any
    reasoning: str = ""
    repairs: tuple[str, ...] = ()
    preface: str = ""


class CallProtocol(ABC):
    """How a model writes calls and the final answer, and how calls and their results are shown to it.

    `declares_tools`: the chat template declares the tools; otherwise a prompt describes them.
    `reads_truncated`: a text that the token limit ended may still have a call. `is_constrained`: there is a
    grammar. `answers_by_call`: the final answer is a call. `lines`: the prompt requests the line protocol.
    """

    declares_tools: ClassVar[bool] = False
    reads_truncated: ClassVar[bool] = False
    is_constrained = True
    answers_by_call = True
    lines = False

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the call format."""

    @property
    def reasons_first(self) -> bool:
        """Whether reasoning comes before the answer, in the same text."""
        return False

    @property
    def has_ids(self) -> bool:
        """Whether the model writes an id for each call."""
        return False

    @property
    def call_begin(self) -> str:
        """The text that begins every call, "" if nothing does."""
        return ""

    @abstractmethod
    def constraint(self, offered: Offered) -> AnswerFormat | None:
        """Return what constrains an answer. Raises PoolError, SchemaError or GrammarError."""

    def prose(self) -> AnswerFormat | None:
        """Return what constrains an answer to a text that is no call, None if nothing does."""
        return None

    @abstractmethod
    def reader(self, offered: Offered) -> AnswerReader:
        """Return a reader of the calls and the text of an answer."""

    def answer_reader(self, tools: Sequence[Tool] = ()) -> AnswerReader:
        """Return a reader of an answer in which one call is made: its text is that of the final answer.

        `tools`: those that were described to the model.
        """
        return FinalAnswerText()

    def read(
        self, text: str, tools: Sequence[Tool], *, steps: Sequence[int] = (), truncated: bool = False
    ) -> ParsedCall:
        """Read a whole text, in which one call is made. `tools`: those that were described to the model.

        Raises UnreadableCallError.
        """
        try:
            return ParsedCall(parse_json(text))
        except InvalidJsonError as error:
            problem = f'the text is not one JSON call {{"name": …, "arguments": {{…}}}}: {error}'
            raise UnreadableCallError(problem) from None

    def messages(self, messages: Sequence[Message], prompt: str) -> tuple[Message, ...]:
        """Return a client's conversation as the model gets it. `prompt`: describes the tools."""
        system = [message["content"] for message in messages if message["role"] == "system"]
        written = tuple(_written(message for message in messages if message["role"] != "system"))
        first = "\n\n".join(text for text in (prompt, *system) if text)
        return ({"role": "system", "content": first}, *written) if first else written

    def call_message(self, call: Mapping[str, Any], number: int) -> Message:
        """Return the message of a call, or of the final answer; `number` identifies it."""
        return {"role": "assistant", "content": call_text(call)}

    def outcome_message(self, content: str, name: str, number: int) -> Message:
        """Return the message of a call's result or error."""
        return {"role": "tool", "content": content}

    def refused_messages(
        self, text: str, call: Mapping[str, Any] | None, error: str, number: int
    ) -> tuple[Message, Message]:
        """Return the messages of a refused text, and of the error. `call`: that in the text, if known."""
        refused: Message = {"role": "assistant", "content": clip(text, SHOWN_CHARACTERS)}
        return refused, self.outcome_message(error, "", number)
