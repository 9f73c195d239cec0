"""Evidence: what a request says of a call's arguments, found in its words, without a model.

A small model fills in optional arguments that nobody asked for, and invents names instead of copying them.
`gather_evidence` finds what the request supports; the decoder gives it a bonus, and refuses nothing
(`gbnf_server.llama.evidence_bias`).

- A string may copy from the request what a person would not word otherwise: quoted text, words with a capital
  letter, except at the start of a sentence, and codes such as A12 or 2024-05-01.
- A request supports an optional argument if they have a word in common, by its stem: of the argument's name,
  of one of its enum values, or two of its description.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Final, Literal, TypeAlias

from gbnf.tools.ranking import QUOTED, word_stems
from gbnf.tools.tool import Tool

_CAPITALIZED: Final = r"[^\W\d_a-zß-öø-ÿ][\w.'’&-]*"
_NAME: Final = re.compile(rf"(?<!\w){_CAPITALIZED}(?:,? {_CAPITALIZED})*")
_CODE: Final = re.compile(r"(?<!\S)(?=\S{0,40}\d)(?=\S{0,40}[^\W\d_])\w\S*|(?<!\S)\d+[-/:]\d\S*")
_NO_NAMES: Final = frozenset(
    """
    i january february march april may june july august september october november december
    monday tuesday wednesday thursday friday saturday sunday
    """.split()  # noqa: SIM905 - as a list it takes a line each
)
"""Dates are written as a tool wants them. Other languages write these words in lower case."""

_DESCRIPTION_WORDS: Final = 2
"""One word that a description shares with a request, such as "the number", says nothing."""

_MOST_PHRASES: Final = 200
"""Of a request. Each is compared with a string at each of its tokens."""

EvidenceUse: TypeAlias = Literal["all", "values", "arguments", "none"]
"""What gets a bonus: the values that a request supports, the arguments that it supports, both, or nothing."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a request says of calls.

    `phrases`: texts that string values may be: names, quotes and codes of the request, and the enum values
    with the largest share of their words in it. By tool: `supported`, the arguments that are required, or
    that the request supports; `unsupported`, its others; `affirmed`, the booleans whose names the request
    mentions.
    """

    phrases: tuple[str, ...] = ()
    supported: Mapping[str, frozenset[str]] = field(default_factory=dict)
    unsupported: Mapping[str, frozenset[str]] = field(default_factory=dict)
    affirmed: Mapping[str, frozenset[str]] = field(default_factory=dict)


def gather_evidence(request: str, tools: Iterable[Tool], use: EvidenceUse = "all") -> Evidence | None:
    """Return what a request says of the arguments of tools, as far as it is to be used; None for nothing."""
    if use == "none":
        return None
    said = word_stems(request)
    phrases = dict.fromkeys(islice(_named(request), _MOST_PHRASES))
    supported: dict[str, frozenset[str]] = {}
    unsupported: dict[str, frozenset[str]] = {}
    affirmed: dict[str, frozenset[str]] = {}
    for tool in tools:
        args = tool.model_args()
        found = {*args.get("required", ()), *chain.from_iterable(args.get("requires_one_of", ()))}
        true: set[str] = set()
        for name, schema in args.get("properties", {}).items():
            is_named = bool(said & word_stems(name))
            chosen = _named_choices(said, schema)
            phrases |= dict.fromkeys(chosen)
            if is_named or chosen or _is_described(said, schema):
                found.add(name)
            if is_named and isinstance(schema, Mapping) and schema.get("type") == "boolean":
                true.add(name)
        supported[tool.name] = frozenset(found)
        unsupported[tool.name] = frozenset(args.get("properties", {})) - found
        affirmed[tool.name] = frozenset(true)
    if use == "values":
        return Evidence(tuple(phrases), affirmed=affirmed)
    if use == "arguments":
        return Evidence((), supported, unsupported)
    return Evidence(tuple(phrases), supported, unsupported, affirmed)


def _named(request: str) -> Iterator[str]:
    """Yield the quoted texts, names and codes of a request; of a name with a comma also what is before it."""
    yield from (quoted[0][1:-1] for quoted in QUOTED.finditer(request))
    for name in _NAME.finditer(request):
        first, _, others = name[0].rstrip(".,'’").partition(" ")
        before = request[max(name.start() - 8, 0) : name.start()].rstrip()
        if first[1:] == first[1:].lower() and before[-1:] in {"", ".", "?", "!", ":"}:
            first = ""  # its capital letter begins a sentence
        text = f"{first} {others}".strip()
        if text and text.split()[0].casefold().rstrip(",") not in _NO_NAMES:
            yield text
            yield from (text[: comma.start()] for comma in re.finditer(",", text))
    yield from (code[0].rstrip(".,;?!)") for code in _CODE.finditer(request))


def _named_choices(said: frozenset[str], schema: Any) -> list[str]:
    """Return the enum values that have the largest share of their words in the request, if any has one."""
    shares: dict[str, float] = {}
    for value in _enum_values(schema):
        if stems := word_stems(value):
            shares[value] = len(said & stems) / len(stems)
    most = max(shares.values(), default=0)
    return [value for value, share in shares.items() if share == most > 0]


def _enum_values(schema: Any) -> Iterator[str]:
    """Yield the enum values of an argument, or of its items, that are strings."""
    for each in (schema, schema.get("items")) if isinstance(schema, Mapping) else ():
        choices = each.get("enum") if isinstance(each, Mapping) else None
        yield from (value for value in choices or () if isinstance(value, str))


def _is_described(said: frozenset[str], schema: Any) -> bool:
    """Return whether the description of an argument has enough words of the request, in any language."""
    described = schema.get("description", "") if isinstance(schema, Mapping) else ""
    texts = described.values() if isinstance(described, Mapping) else (described,)
    return any(len(said & word_stems(text)) >= _DESCRIPTION_WORDS for text in texts if isinstance(text, str))
