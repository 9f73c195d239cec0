"""A tool-call format as a value: what surrounds calls, names, ids, arguments, text and reasoning.

An answer in a format is, from the end of the generation prompt on:

    [reasoning] [text] [begin call (separator call)* end]      call: head arguments tail

Everything here is derived from a chat template (`gbnf.tool_formats.detection`), and is immutable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gbnf.compiler.layout import Whitespace
from gbnf.compiler.notations import ElementArguments, Part


@dataclass(frozen=True, slots=True)
class JsonArguments:
    """Arguments as one JSON object; if `quoted`, as a JSON string that contains the object's text."""

    whitespace: Whitespace = "default"
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Reasoning:
    """How reasoning is delimited: `begin` reasoning `end`, then the text or the calls.

    `prompt`: what the generation prompt ends with when the template is asked for reasoning: "open" if it has
    `begin`, "none" if the model writes `begin` itself, or no reasoning. `closing`: what the template itself
    writes after a reasoning: `end` with its whitespace. `repeats`: each reasoning is a message of its own, so
    an answer may have several. `omitted`: what an answer without reasoning begins with if its prompt is
    "open".
    """

    begin: str
    end: str
    prompt: Literal["open", "none"] = "none"
    closing: str = ""
    repeats: bool = False
    omitted: str = ""


@dataclass(frozen=True, slots=True)
class TextFormat:
    """What stands around an answer's text.

    `other_begins`: what models also write in place of `begin`, unlike their template. `end` follows a text
    without calls. `before_calls` stands between a text and the `begin` of the calls after it; None if an
    answer has either.
    """

    begin: str = ""
    end: str = ""
    before_calls: str | None = ""
    other_begins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FormatFields:
    """What a tool-call format consists of. `ToolFormat` adds what can be done with it.

    `begin` comes before the first call, `end` after the last; `separator` is None if an answer has at most
    one call. `head` has the name at least once; `other_heads` are those of models that also write the head in
    other ways than their template. `id_pattern`: an ECMA-262 pattern of the ids that the template accepts.
    `marker`: the text that begins every call, without whitespace around it; an answer's text never contains
    it. `control_texts`: texts in the format that a vocabulary may have as single control tokens; a server
    must not drop them. `end_of_turn`: the texts that end an answer, which are no part of it. `result_role`:
    the role of results. `notes`: what the template cannot express, one sentence each. `turn_end`: all that
    the template writes after an answer with calls. `declares_tools`: whether its prompts show the declared
    tools; some templates show calls and results only. `template`, `bos_token` and `eos_token` are what the
    format was derived from.
    """

    template: str = field(repr=False)
    bos_token: str
    eos_token: str
    begin: str
    head: tuple[Part, ...]
    other_heads: tuple[tuple[Part, ...], ...]
    arguments: JsonArguments | ElementArguments
    tail: tuple[Part, ...]
    separator: str | None
    end: str
    marker: str
    text: TextFormat = TextFormat()
    reasoning: Reasoning | None = None
    id_pattern: str = "[A-Za-z0-9_-]{1,64}"
    control_texts: tuple[str, ...] = ()
    end_of_turn: tuple[str, ...] = ()
    result_role: Literal["tool", "user"] = "tool"
    notes: tuple[str, ...] = ()
    turn_end: str = ""
    declares_tools: bool = True
