"""Evidence: what a request says of a call's arguments, found in its words, without a model.

A small model fills in optional arguments that nobody asked for, and invents values instead of copying them.
`gather_evidence` finds what the request supports; the decoder gives it a bonus, and refuses nothing
(`gbnf_server.llama.evidence_bias`).

- A string may copy the names, quotes, codes and paths of the request, and a number may be one of its
  numbers: 5 % is 0.05, unless the argument is described as a percentage.
- A request supports an optional argument if they have a word in common, by its stem: of the argument's name,
  of one of its enum values, or two of its description. A year, a month and a unit are supported by one.
- It supports the enum values with the largest share of their words in it, and in a list those with half of
  their words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from inspect import unwrap
from itertools import chain
from typing import Any, Final, Literal, TypeAlias

from gbnf.requests import wording
from gbnf.requests.coverage import argument_values, calls_text
from gbnf.requests.ranking import word_stems
from gbnf.requests.values import LONGEST_REQUEST, RequestNumber, dates_in, names_in, names_month, numbers_in
from gbnf.tools.tool import Tool

_DESCRIPTION_WORDS: Final = 2
"""One word that a description shares with a request, such as "the number", says nothing."""
_WORD: Final = re.compile(r"[^\W_]+")
_PATH_NAME: Final = re.compile(r"path|file|folder|director", re.IGNORECASE)
_DATE_FORM: Final = re.compile(r"\b(?:YYYY([-/.])MM\1DD|MM([-/.])DD\2YYYY|DD([-/.])MM\3YYYY)\b")
_EXAMPLES: Final = re.compile(r"(?:\be\.g\.|\bfor example|\bsuch as)(.+)", re.IGNORECASE | re.DOTALL)
_QUOTED_OPTION: Final = re.compile(r"(?<!\w)(['\"`])([^'\"`]{1,40})\1(?!\w)")
_PLAUSIBLE_YEAR: Final = re.compile(r"(?:1[6-9]|20)\d\d")
_DEFAULT: Final = re.compile(r"\bdefaults?(?: value)?(?: (?:is|to))?:? (['\"`]?)([\w-]+)\1", re.IGNORECASE)
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+")
_LISTED_SHARE: Final = 0.5
"""Of the words of a list's enum value: "3 goals" supports "goals scored"."""

EvidenceUse: TypeAlias = Literal["all", "values", "arguments", "none"]
"""What gets a bonus: the values that a request supports, the arguments that it supports, both, or nothing."""


@dataclass(frozen=True, slots=True)
class ArgumentEvidence:
    """What a request says of an argument.

    `is_supported`: it is required, or the request mentions it. `choices`: those of its enum values, or of its
    items', that the request supports; without an enum, the texts quoted in its description that the request
    has; of a date whose form is known, the dates of the request. `numbers`: those of the request, as values
    of its type; a number that occurs twice is there twice. `is_affirmed`: it is a boolean that the request
    mentions. `avoided`: its description, and the examples in it that are not in the request. `is_list`: it is
    an array. `is_closed`: it, or its items, have an enum. `is_stated`: the request has a value for it: a
    choice, a number beside its name, or that it should be true. `is_path`: it is called a path, a file or a
    folder.
    """

    is_supported: bool = True
    choices: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    is_affirmed: bool = False
    avoided: tuple[str, ...] = ()
    is_list: bool = False
    is_closed: bool = False
    is_stated: bool = False
    is_path: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a request says of the next call.

    `phrases`: names, quotes and codes that string values may be, as may `entries` of earlier results.
    `arguments`: by tool and argument. `likely`, `unlikely`: names of tools that the next call should have or
    not; `callable`: of all that it may have. `used`: by tool, strings and numbers (as JSON) of its
    earlier calls, if the request has others, and the last call took one of that kind. `request`: its text.
    """

    phrases: tuple[str, ...] = ()
    arguments: Mapping[str, Mapping[str, ArgumentEvidence]] = field(default_factory=dict)
    used: Mapping[str, frozenset[str]] = field(default_factory=dict)
    entries: tuple[str, ...] = ()
    request: str = ""
    likely: tuple[str, ...] = ()
    unlikely: tuple[str, ...] = ()
    callable: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        """Return what is worth showing: texts that the request names, arguments that it does not, tools."""
        named = [
            (f"{tool}.{name}", argument)
            for tool, arguments in self.arguments.items()
            for name, argument in arguments.items()
        ]
        choices = chain.from_iterable(argument.choices for _, argument in named)
        return {
            "named": tuple(dict.fromkeys([*self.phrases, *choices])),
            "unmentioned": tuple(name for name, argument in named if not argument.is_supported),
            "likely": self.likely,
            "unlikely": self.unlikely,
        }


def gather_evidence(
    request: str,
    tools: Iterable[Tool],
    use: EvidenceUse = "all",
    *,
    done: Sequence[Mapping[str, Any]] = (),
    entries: tuple[str, ...] = (),
) -> Evidence | None:
    """Return what a request says of the arguments of tools, as far as it is to be used; None for nothing.

    `done`: earlier calls for the request. The phrases and numbers that they contain are left out, if others
    are left. `entries`: of their results.
    """
    if use == "none":
        return None
    request = request[:LONGEST_REQUEST]
    stems = unwrap(word_stems)(request)  # not kept: it may be somebody's
    numbers, dates = numbers_in(request), dates_in(request)
    phrases = names_in(request) if use != "arguments" else ()
    written, earlier = calls_text(done), [argument_values(call["arguments"]) for call in done]
    used, last = frozenset[str]().union(*earlier), (earlier or [frozenset()])[-1]
    new_phrases = tuple(phrase for phrase in phrases if phrase.casefold() not in written)
    new_numbers = tuple(
        number
        for number in numbers
        if used.isdisjoint({number.text, number.share})
        and not any(number.text in name.split() for name in phrases)
    )
    takes_numbers = bool(new_numbers) and any(last & {number.text, number.share} for number in numbers)
    goes_on = takes_numbers or (bool(new_phrases) and any(phrase in last for phrase in phrases))
    by_tool: dict[str, dict[str, ArgumentEvidence]] = {}
    for tool in tools:
        args = tool.model_args()
        required = {*args.get("required", ()), *chain.from_iterable(args.get("requires_one_of", ()))}
        evidence_of = by_tool.setdefault(tool.name, {})
        may_be = new_numbers if takes_numbers and tool.name == done[-1]["name"] else numbers
        for name, schema in args.get("properties", {}).items():
            argument = _of_argument(name, schema, request, stems, may_be, dates)
            is_supported = argument.is_supported or name in required or use == "values"
            values = ArgumentEvidence() if use == "arguments" else argument
            evidence_of[name] = replace(values, is_supported=is_supported)
    if use == "arguments":
        return Evidence(arguments=by_tool, request=request)
    used_by = {done[-1]["name"]: used} if goes_on else {}
    return Evidence(new_phrases or phrases, by_tool, used_by, entries, request)


def with_stated_choices(arguments: Mapping[str, Any], tool: Tool, evidence: Evidence) -> dict[str, Any]:
    """Return the arguments of a call with the choices that the request states in place of defaults.

    Replaces the default of an argument, which a model writes that has overlooked the request, where the
    request is one sentence and supports exactly one other enum value, or one other value quoted in the
    description; or a default unit by the only unit of the request, if both measure the same.
    """
    properties, evidence_of = tool.model_args().get("properties", {}), evidence.arguments.get(tool.name, {})
    units = {(unit or counted).casefold() for unit, counted in wording.MEASURE.findall(evidence.request)}
    is_one = sum(len(part.split()) > 2 for part in _SENTENCE_END.split(evidence.request)) < 2

    def stated(name: str, value: Any) -> Any:
        choices, schema = evidence_of.get(name, ArgumentEvidence()).choices, properties.get(name)
        described = schema if isinstance(schema, Mapping) else {}
        in_text = _DEFAULT.search(str(described.get("description")))
        if not isinstance(value, str) or value != described.get("default", in_text and in_text[2]):
            return value
        quoted = [text for _, text in _QUOTED_OPTION.findall(str(described.get("description")))]
        options = dict.fromkeys(
            text for text in (*described.get("enum", ()), *quoted) if isinstance(text, str)
        )
        choices = choices or tuple(text for text in options if _has_word(evidence.request, text))
        choices = choices if is_one else ()
        kind = next((kind for kind in wording.UNITS if value.casefold() in kind), frozenset[str]())
        if not choices and "unit" in name.lower() and len(units) == 1 and units <= kind:
            choices = tuple(units)
        return choices[0] if len(choices) == 1 and not wording.REJECTS.search(evidence.request) else value

    return {name: stated(name, value) for name, value in arguments.items()}


def _has_word(request: str, word: str) -> bool:
    """Return whether a request has a word, which may be one that says little, such as "all"."""
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w#+-])", request, re.IGNORECASE) is not None


def _of_argument(
    name: str,
    schema: Any,
    request: str,
    stems: frozenset[str],
    numbers: tuple[RequestNumber, ...],
    dates: tuple[date, ...],
) -> ArgumentEvidence:
    """Return what a request says of one argument; `stems` are those of the request's words."""
    declared = schema if isinstance(schema, Mapping) else {}
    is_list = declared.get("type") == "array"
    items = declared.get("items") if is_list else declared
    item = items if isinstance(items, Mapping) else {}
    is_named = bool(stems & word_stems(name))
    choices = _named_choices(stems, item.get("enum"), is_list=is_list)
    if item.get("type") == "string" and "enum" not in item:
        quoted = [text for _, text in _QUOTED_OPTION.findall(str(declared.get("description")))]
        choices = _named_choices(stems, quoted, least=1)
    if form := _date_form(item):
        choices = tuple(dict.fromkeys(day.strftime(form) for day in dates))
    values = tuple(_as_values(numbers, item.get("type"), f"{name} {declared.get('description')}"))
    is_named |= "year" in name.lower() and any(_PLAUSIBLE_YEAR.fullmatch(value) for value in values)
    is_named |= "month" in name.lower() and names_month(request)
    is_named |= "unit" in name.lower() and "enum" not in item and wording.MEASURE.search(request) is not None
    is_affirmed = is_named and declared.get("type") == "boolean"
    return ArgumentEvidence(
        is_named or bool(choices) or _is_described(stems, declared),
        choices,
        values,
        is_affirmed,
        _examples(declared, request),
        is_list,
        "enum" in item,
        bool(choices) or is_affirmed or (is_named and bool(values)),
        bool(_PATH_NAME.search(name)),
    )


def _as_values(numbers: Iterable[RequestNumber], kind: Any, about: str) -> Iterator[str]:
    """Yield numbers as values of a type."""
    for number in numbers:
        if kind == "number" and number.share and "percent" not in about and "%" not in about:
            yield number.share
        elif kind == "number" or (kind == "integer" and "." not in number.text):
            yield number.text


def _named_choices(
    request_stems: frozenset[str], choices: Any, *, is_list: bool = False, least: float = 0
) -> tuple[str, ...]:
    """Return the choices that a request supports, with `least` of their words or more."""
    shares: dict[str, float] = {}
    for value in choices if isinstance(choices, list) else ():
        words = [stems for word in _WORD.findall(str(value)) if (stems := word_stems(word))]
        if isinstance(value, str) and words:
            shares[value] = sum(not request_stems.isdisjoint(stems) for stems in words) / len(words)
    most = max(shares.values(), default=0)
    least = max(least, min(most, _LISTED_SHARE) if is_list else most)
    return tuple(value for value, share in shares.items() if share >= least > 0)


def _date_form(schema: Mapping[str, Any]) -> str:
    """Return the form of a date as `strftime` takes it, if its format or description says it; else ""."""
    described = str(schema.get("description", ""))
    if schema.get("type") != "string":
        return ""
    if form := _DATE_FORM.search(described):
        return form[0].replace("YYYY", "%Y").replace("MM", "%m").replace("DD", "%d")
    return "%Y-%m-%d" if schema.get("format") == "date" else ""


def _examples(schema: Mapping[str, Any], request: str) -> tuple[str, ...]:
    """Return the description of an argument, and the names in its examples that a request does not have."""
    described = schema.get("description")
    if not isinstance(described, str):
        return ()
    examples = _EXAMPLES.search(described)
    # a first word with a capital letter does not begin a sentence here
    names = names_in(f"such as {examples[1].strip()}") if examples else ()
    return (described, *(name for name in names if name.casefold() not in request.casefold()))


def _is_described(stems: frozenset[str], schema: Mapping[str, Any]) -> bool:
    """Return whether the description of an argument has enough words of the request, in any language."""
    described = schema.get("description", "")
    texts = described.values() if isinstance(described, Mapping) else (described,)
    return any(len(stems & word_stems(text)) >= _DESCRIPTION_WORDS for text in texts if isinstance(text, str))
