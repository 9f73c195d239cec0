"""A tool-call format as a value: what surrounds calls, names, ids, arguments, text and reasoning.

An answer in a format is, from the end of the generation prompt on:

    [reasoning] [text] [begin call (separator call)* end]      call: head arguments tail

Everything here is derived from a chat template (`gbnf.tool_formats.detection`), and is immutable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from gbnf.compiler.layout import Whitespace

JsonType: TypeAlias = Literal["string", "number", "boolean", "null", "array", "object"]


@dataclass(frozen=True, slots=True)
class Slot:
    """What is filled in between the literals of a call.

    name: the tool's name. id: the call's identifier. index: the number of the call in its answer, where the
    first has `base`. key: the key of the element that it stands in.
    """

    kind: Literal["name", "id", "index", "key"]
    base: int = 0


Part: TypeAlias = str | Slot
"""A literal, or what is filled in."""


@dataclass(frozen=True, slots=True)
class JsonArguments:
    """Arguments as one JSON object; if `quoted`, as a JSON string that contains the object's text."""

    whitespace: Whitespace = "default"
    quoted: bool = False


Encoding: TypeAlias = Literal["raw", "json", "python", "nested"]
"""How one value is written: as text without quotes or escapes (strings only), as JSON, as a Python literal
(`repr`), or as elements of the same format (`NestedElements`; arrays and objects only)."""


@dataclass(frozen=True, slots=True)
class ValueForm:
    """How a value of one JSON type is written between its key and the next element.

    `before` follows the key, as `>` and a line break; `after` follows the value, as `</parameter>`. A raw
    value ends where `after` first occurs. `trimmed`: the template removes whitespace around a raw value, so
    that such values cannot be read back.
    """

    encoding: Encoding
    before: tuple[Part, ...] = ()
    after: tuple[Part, ...] = ()
    trimmed: bool = False


@dataclass(frozen=True, slots=True)
class ValueForms:
    """The forms of each JSON type. The template prefers the first of several; all are read."""

    string: tuple[ValueForm, ...]
    number: tuple[ValueForm, ...]
    boolean: tuple[ValueForm, ...]
    null: tuple[ValueForm, ...]
    array: tuple[ValueForm, ...]
    object: tuple[ValueForm, ...]


@dataclass(frozen=True, slots=True)
class NestedElements:
    """How arrays and objects inside arguments are written, where a form's encoding is "nested".

    Keys and values of objects are written as those of the arguments are; `items` are the forms of an array's
    items.
    """

    object_begin: str
    object_separator: str
    object_end: str
    array_begin: str
    array_separator: str
    array_end: str
    items: ValueForms


@dataclass(frozen=True, slots=True)
class ElementArguments:
    """Arguments as one element per parameter: `begin`, elements with `separator` between them, `end`.

    An element is `before_key`, the key, and the form of the value's type. `empty`: the text of no arguments
    at all, None if it is `begin` and `end`.
    """

    begin: str
    separator: str
    end: str
    before_key: str
    forms: ValueForms
    nested: NestedElements | None = None
    empty: str | None = None


@dataclass(frozen=True, slots=True)
class Reasoning:
    """How reasoning is delimited: `begin` reasoning `end`, then the text or the calls.

    `prompt`: what the generation prompt ends with when the template is asked for reasoning: "open" if it has
    `begin`, "none" if the model writes `begin` itself, or no reasoning. `direct_prompt`: the same when it is
    asked for none; "closed" if the prompt has an empty reasoning.
    """

    begin: str
    end: str
    prompt: Literal["open", "none"] = "none"
    direct_prompt: Literal["open", "closed", "none"] = "none"


@dataclass(frozen=True, slots=True)
class TextFormat:
    """What stands around an answer's text.

    `before_calls`: what stands between a text and the calls after it, None if an answer has either.
    """

    begin: str = ""
    end: str = ""
    before_calls: str | None = ""


@dataclass(frozen=True, slots=True)
class FormatFields:
    """What a tool-call format consists of. `ToolFormat` adds what can be done with it.

    `begin` comes before the first call, `end` after the last; `separator` is None if an answer has at most
    one call. `head` has the name at least once; `other_heads` are those of models that also write the head in
    other ways than their template. `id_pattern`: an ECMA-262 pattern of the ids that the template accepts.
    `marker`: the text that begins every call, without whitespace around it; an answer's text never contains
    it. `control_texts`: texts in the format that a vocabulary may have as single control tokens; a server
    must not drop them. `end_of_turn`: the texts that end an answer, which are no part of it. `result_role`:
    the role of results. `notes`: what the template cannot express, one sentence each. `template`, `bos_token`
    and `eos_token` are what the format was derived from.
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
