"""The cases of llama.cpp's own test of chat templates, `tests/test-chat.cpp`: an answer, and what is read.

The C++ source is read, not compiled: a case is a chain `tst.test(…).tools({…}).expect(…).run()` of constants
and of a few functions that build messages. A chain with anything else is no case; `read_cases` counts those.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/|\#[^\n]*(?:\\\n[^\n]*)*)
    |(?P<raw>(?:u8)?R"(?P<mark>[^()\s]*)\((?P<text>.*?)\)(?P=mark)")
    |(?P<string>(?:u8)?"(?:[^"\\\n]|\\.)*")
    |(?P<character>'(?:[^'\\]|\\.)+')
    |(?P<number>\d[\w.]*)
    |(?P<name>[A-Za-z_]\w*(?:::\w+)*)
    |(?P<sign>->|.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0"}


@dataclass(frozen=True)
class Message:
    """What a text is read as. A call is a name, its arguments as JSON text, and an id."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class ChatCase:
    """One case. `number`: which one of its template it is."""

    template: str
    number: int
    text: str
    expected: Message
    tools: tuple[tuple[str, str, str], ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.template.removesuffix('.jinja')}-{self.number}"


class _NoConstantError(Exception):
    """An expression is more than constants and known functions."""


def _message(
    content: str = "", reasoning: str = "", name: str = "", arguments: str = "", identifier: str = ""
) -> Message:
    calls = ((name, arguments, identifier),) if name or identifier else ()
    return Message(content, reasoning, calls)


def _message_of_calls(reasoning: str, content: str, calls: list[list[str]]) -> Message:
    return Message(content, reasoning, tuple((name, arguments, "") for name, arguments in calls))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "simple_assist_msg": _message,
    "message_with_tool_calls": lambda name, arguments: _message("", "", name, arguments),
    "message_with_tool_calls_and_reasoning": lambda n, a, reasoning: _message("", reasoning, n, a),
    "message_with_reasoning_content_and_multiple_tool_calls": _message_of_calls,
    "message_with_content_and_tool_call": lambda content, n, a: _message(content, "", n, a),
    "message_with_reasoning_and_tool_call": lambda reasoning, n, a: _message("", reasoning, n, a),
    "std::string": lambda text="": text,
}


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str


def _tokens(source: str) -> list[_Token]:
    found = []
    for match in _TOKEN.finditer(source):
        kind = match.lastgroup if match["raw"] is None else "raw"
        if match["space"] is None:
            text = match["text"] if kind == "raw" else match.group()
            found.append(
                _Token(
                    "string" if kind == "raw" else str(kind), _unescaped(text) if kind == "string" else text
                )
            )
    return found


def _unescaped(literal: str) -> str:
    def plain(match: re.Match[str]) -> str:
        octal, byte, unit, name = match.groups()
        if octal or byte:
            return chr(int(octal, 8) if octal else int(byte, 16))
        return chr(int(unit, 16)) if unit else _NAMED.get(name, name)

    text = literal[literal.index('"') + 1 : -1]
    plain_text = _ESCAPE.sub(plain, text)
    if re.search(r"\\x|\\[0-7]", text):  # the bytes of UTF-8
        return plain_text.encode("latin-1", "ignore").decode("utf-8", "replace")
    return plain_text


class _Reader:
    """Evaluates constant expressions at a place in the tokens."""

    def __init__(self, tokens: list[_Token], constants: dict[str, Any]) -> None:
        self.tokens = tokens
        self.constants = constants
        self.at = 0

    def sign(self, text: str) -> bool:
        """Skip a token if it is `text`, and return whether it is."""
        found = self.at < len(self.tokens) and self.tokens[self.at] == _Token("sign", text)
        self.at += found
        return found

    def expect(self, text: str) -> None:
        if not self.sign(text):
            raise _NoConstantError(f"{self.tokens[self.at]} for {text}")

    def name(self) -> str:
        token = self.tokens[self.at]
        if token.kind != "name":
            raise _NoConstantError(f"{token} for a name")
        self.at += 1
        return token.text

    def expression(self) -> Any:
        value = self._term()
        while self.sign("+"):
            value += self._term()
        return value

    def listed(self, end: str) -> list[Any]:
        """Return the expressions up to a closing sign."""
        values: list[Any] = []
        while not self.sign(end):
            values.append(self.expression())
            if not self.sign(","):
                self.expect(end)
                break
        return values

    def skipped(self) -> list[Any]:
        """Skip to the closing bracket."""
        depth = 1
        while depth:
            depth += {"(": 1, ")": -1}.get(self.tokens[self.at].text, 0)
            self.at += 1
        return []

    def _term(self) -> Any:
        token = self.tokens[self.at]
        if token.kind == "string":
            text = ""
            while self.tokens[self.at].kind == "string":
                text += self.tokens[self.at].text
                self.at += 1
            return text
        if token.kind == "number":
            self.at += 1
            return token.text
        if self.sign("{"):
            return self.listed("}")
        name = self.name()
        if name in ("true", "false"):
            return name == "true"
        if name in _FUNCTIONS and self.sign("("):
            return _FUNCTIONS[name](*self.listed(")"))
        if name.startswith("COMMON_"):
            return name
        if name in self.constants:
            return self.constants[name]
        raise _NoConstantError(name)


def read_cases(source: str) -> tuple[list[ChatCase], int]:
    """Return the cases in the source of the test, and how many chains are none."""
    tokens = _tokens(source)
    constants = dict(_constants(tokens))
    templates = _function_templates(tokens)
    cases: list[ChatCase] = []
    counts: dict[str, int] = {}
    left_out = 0
    current: list[str] = []
    testers: dict[str, list[str]] = {}
    reader = _Reader(tokens, constants)
    loops: dict[str, list[str]] = {}
    for at, token in enumerate(tokens):
        if token.kind != "name":
            continue
        loops |= _loop(reader, at)
        following = tokens[at + 1 : at + 4]
        if (
            token.text in templates
            and following[:1] == [_Token("sign", "(")]
            and tokens[at - 1].text == "void"
        ):
            current = templates[token.text]
        elif token.text == "peg_tester" and tokens[at - 1].text == "=":
            argument = tokens[at + 2]
            named = loops.get(argument.text, current)
            testers[tokens[at - 2].text] = [argument.text] if argument.kind == "string" else named
        elif [each.text for each in following] == [".", "test", "("] and token.text in testers:
            reader.at = at + 4
            try:
                text, called = _chain(reader)
            except (_NoConstantError, TypeError, IndexError):
                left_out += 1
                continue
            if "continue_final_message" in called:  # what follows a begun answer, not a prompt
                continue
            for path in testers[token.text]:
                template = path.rpartition("/")[2]
                counts[template] = counts.get(template, 0) + 1
                cases.append(_case(template, counts[template], text, dict(called)))
        elif token.text in ("std::string", "char"):
            constants |= _local_string(reader, at)
    return cases, left_out


def _loop(reader: _Reader, at: int) -> dict[str, list[str]]:
    """Return the variable and the templates of the loop that starts here, if one does."""
    if reader.tokens[at].text != "for":
        return {}
    colon = next(place for place in range(at, at + 12) if reader.tokens[place].text in (":", ";", "="))
    reader.at = colon + 1
    try:
        values = reader.expression()
    except (_NoConstantError, TypeError, IndexError):
        return {}
    return {reader.tokens[colon - 1].text: values} if isinstance(values, list) else {}


def _chain(reader: _Reader) -> tuple[str, dict[str, Any]]:
    """Return a case's text and what its methods are called with."""
    text = reader.listed(")")[0]
    called: dict[str, Any] = {}
    while True:
        reader.expect(".")
        method = reader.name()
        reader.expect("(")
        values = reader.skipped() if method == "messages" else reader.listed(")")
        if method == "run":
            return text, called
        called[method] = values[0] if values else True


def _case(template: str, number: int, text: str, called: dict[str, Any]) -> ChatCase:
    expected: Message = called.pop("expect", Message())
    calls = called.pop("expect_tool_calls", None)
    expected = Message(
        called.pop("expect_content", expected.content),
        called.pop("expect_reasoning", expected.reasoning),
        expected.calls if calls is None else tuple((*map(_text, call),) for call in calls),  # type: ignore[misc]
    )
    tools = tuple(tuple(tool) for tool in called.pop("tools", ()))
    return ChatCase(template, number, text, expected, tools, called)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _constants(tokens: list[_Token]) -> Iterator[tuple[str, Any]]:
    """Yield the tools and messages that are declared, in order."""
    constants: dict[str, Any] = {}
    reader = _Reader(tokens, constants)
    for at, token in enumerate(tokens):
        if token.text not in ("common_chat_tool", "common_chat_msg") or tokens[at + 1].kind != "name":
            continue
        reader.at = at + 2
        try:
            if token.text == "common_chat_tool":
                reader.expect("{")
                value: Any = tuple(reader.listed("}"))
            else:
                reader.expect("=")
                value = reader.expression()
        except (_NoConstantError, TypeError, IndexError):
            continue
        constants[tokens[at + 1].text] = value
        yield tokens[at + 1].text, value


def _local_string(reader: _Reader, at: int) -> dict[str, Any]:
    """Return the text that is declared at a place, if one is."""
    reader.at = at + 1
    reader.sign("*")
    try:
        name = reader.name()
        reader.expect("=")
        return {name: reader.expression()}
    except (_NoConstantError, TypeError, IndexError):
        return {}


def _function_templates(tokens: list[_Token]) -> dict[str, list[str]]:
    """Return the templates that functions of tests are called with."""
    found: dict[str, list[str]] = {}
    loops: dict[str, list[str]] = {}
    reader = _Reader(tokens, {})
    for at, token in enumerate(tokens[:-3]):
        loops |= _loop(reader, at)
        if token.kind == "name" and token.text.startswith("test_") and tokens[at + 1].text == "(":
            argument = tokens[at + 2]
            named = [argument.text] if argument.kind == "string" else loops.get(argument.text, [])
            found.setdefault(token.text, []).extend(each for each in named if each.endswith(".jinja"))
    return found


def same_json(one: str, other: str) -> bool:
    """Return whether two texts are the same JSON value, or neither is JSON."""
    return bool(_value(one) == _value(other))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
