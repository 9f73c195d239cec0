"""Why a text is refused, beyond what was expected: the mistakes that people and models make in JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from difflib import get_close_matches

from gbnf.grammar.match import MatchState
from gbnf_server.inspect.inspected_grammar import GrammarChoice
from gbnf_server.inspect.partial_json import JsonPosition
from gbnf_server.inspect.schema_words import ValueWords, allows_kind

_SPACES = " \t\n\r"
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_TYPOGRAPHIC = "“”„‟«»‹›＂"
_HEX = "0123456789abcdefABCDEF"
_TRAILING = re.compile(r"\s*,\s*[}\]]")
_KEY = re.compile(r'\s*,?\s*("(?:[^"\\]|\\.)*")')
_BARE_KEY = re.compile(r"[A-Za-z_$][\w$-]*\s*[:=]")
_WORD = re.compile(r"[A-Za-z]+")
_LITERALS = {
    "none": "null",
    "nil": "null",
    "undefined": "null",
    "true": "true",
    "false": "false",
    "null": "null",
}
_NO_NUMBERS = ("nan", "infinity", "inf")
_ODD_NUMBER = re.compile(r"-?0\d|[+]\d|-?\.\d|-?\d+\.(?!\d)|-?0[xX]|\d+_\d")
_CLOSE = 0.75


def why_refused(
    text: str, at: int, position: JsonPosition, state: MatchState, words: ValueWords, choice: GrammarChoice
) -> str:
    """Return why the character of `text` at `at` is refused; "" if what was expected says it all.

    `position` and `state`: the end of the accepted part, `words`: those for it. `choice`: of the grammar.
    """
    is_ordered = choice.property_order == "declared"
    rest = text[at:]
    begun = text[position.start : at] if position.where in ("inside", "key") else ""
    if not rest:
        return ""
    if begun.startswith('"'):
        return _in_string(rest, begun) or _in_token(text, position, words, is_ordered)
    if position.where == "end":
        return "the value is complete, and nothing may follow it"
    return (
        _at_the_start(text, at)
        or _notation(text, at, position, begun)
        or _space(rest, state, choice)
        or _in_token(text, position, words, is_ordered)
    )


def _at_the_start(text: str, at: int) -> str:
    if text[: at + 1].strip(_SPACES + "\ufeff") not in ("", "`", text[at]):
        return ""
    before = text[:at].strip()
    if text.startswith("\ufeff"):
        return "the text begins with a byte order mark"
    if not before and text.lstrip().startswith("```"):
        return "a Markdown fence is no part of it"
    if not before and text[at] == "[" and text[at + 1 :].lstrip(_SPACES).startswith("{"):
        return "leave out the brackets around it"
    if (
        not before
        and (text[at].isalpha() or text[at] == "<")
        and "{" in text[at:]
        and not _literal(text[at:])
    ):
        return "the text before the first { is no part of it"
    return ""


def _notation(text: str, at: int, position: JsonPosition, begun: str) -> str:
    """Return what another notation than JSON has here."""
    rest = text[at:]
    if rest[0] == "'":
        return "JSON strings are in double quotes"
    if rest[0] in _TYPOGRAPHIC:
        return "these are typographic quotes; JSON has straight ones"
    if rest.lstrip(_SPACES).startswith(("//", "/*", "#")):
        return "JSON has no comments"
    before = text[:at].rstrip(_SPACES)
    if before.endswith(",") and rest.lstrip(_SPACES).startswith(("}", "]")):
        return "the comma before it is one too many"
    if position.where == "after" and _TRAILING.match(rest):
        return "this comma is one too many"
    if rest.lstrip(_SPACES).startswith(",") and position.where in ("value", "key") and not begun:
        return "nothing stands before the comma"
    if position.where == "key":
        return "property names are in double quotes" if _BARE_KEY.match(rest) else ""
    if position.where == "after" and rest.lstrip(_SPACES)[:1] in ('"', "{", "["):
        return "a comma is missing"
    if position.where == "colon" and rest.lstrip(_SPACES).startswith("="):
        return "JSON has a colon between name and value"
    if position.where in ("value", "inside"):
        token = begun + rest
        if _ODD_NUMBER.match(token):
            return "JSON has no such number: no leading zero or +, digits around the point, decimal only"
        return _literal(token)
    return ""


def _literal(token: str) -> str:
    word = _WORD.match(token.lstrip("-+"))
    if word is None:
        return ""
    if word[0].lower() in _NO_NUMBERS:
        return f"JSON has no {word[0]}"
    written = _LITERALS.get(word[0].lower())
    return f"in JSON, this is {written}" if written is not None and written != word[0] else ""


def _space(rest: str, state: MatchState, choice: GrammarChoice) -> str:
    """Return whether only the whitespace is refused."""
    after = rest.lstrip(_SPACES)
    if after == rest or not after or state.advance(after[0]) is None:
        return ""
    option = "" if choice.tool_format is not None else ", which --whitespace free allows"
    return f"only the whitespace is refused{option}"


def _in_string(rest: str, begun: str) -> str:
    character = rest[0]
    escaped = (len(begun) - len(begun.rstrip("\\"))) % 2 == 1
    if escaped and character not in '"\\/bfnrtu':
        return f"JSON has no escape \\{character}"
    if not escaped and re.search(r"(?<!\\)(?:\\\\)*\\u[0-9a-fA-F]{0,3}\Z", begun):
        return "" if character in _HEX else "JSON has four hexadecimal digits after \\u"
    if escaped:
        return "JSON has this escape, but the schema does not allow its character here"
    if character < " ":
        written = _ESCAPES.get(character, f"\\u{ord(character):04x}")
        return f"in a string, this character is written {written}"
    return ""


def _in_token(text: str, position: JsonPosition, words: ValueWords, is_ordered: bool) -> str:
    """Return what is wrong with the property name, or with the value."""
    if position.where in ("key", "after"):
        found = _KEY.match(text, position.start)
        key = _decoded(found[1]) if found is not None else None
        return "" if not isinstance(key, str) else _of_key(key, position.keys, words, is_ordered)
    if position.where not in ("value", "inside"):
        return ""
    scalar = re.match(r'\s*("(?:[^"\\]|\\.)*"|[^\s,:\[\]{}"]+)', text[position.start :])
    value = _decoded(scalar[1]) if scalar is not None else None
    if isinstance(value, str):
        if any(allows_kind(form, "string") for form in words.forms):
            options = [option for option in words.values("string") if isinstance(option, str)]
            return _near(value, options)
        inner = _decoded(value)
        return (
            ""
            if inner is None or isinstance(inner, str)
            else f"{_shown(value)} is a string: leave out the quotes"
        )
    is_scalar = scalar is not None and value is not None
    only_strings = bool(words.forms) and all(
        not allows_kind(form, "number") and not allows_kind(form, "boolean") for form in words.forms
    )
    return "strings are in double quotes" if is_scalar and only_strings and _takes_strings(words) else ""


def _takes_strings(words: ValueWords) -> bool:
    return any(allows_kind(form, "string") for form in words.forms)


def _of_key(key: str, given: Sequence[str], words: ValueWords, is_ordered: bool) -> str:
    declared = words.names()
    if key in given:
        return f"{_shown(key)} is given already"
    if key not in declared:
        return _near(key, [name for name in declared if name not in given])
    earlier = [name for name in given if name in declared and declared.index(name) > declared.index(key)]
    if earlier and is_ordered:
        return f"properties have the schema's order, in which {_shown(key)} comes before {_shown(earlier[0])}"
    required = words.required()
    missing = [name for name in declared[: declared.index(key)] if name in required and name not in given]
    if missing and is_ordered:
        return f"{_shown(missing[0])} is required, and comes before {_shown(key)}"
    return f"{_shown(key)} is declared, but cannot come here"


def _near(found: str, names: Sequence[str]) -> str:
    folded = {name.casefold(): name for name in names}
    close = get_close_matches(found.casefold()[:100], list(folded)[:300], 1, _CLOSE)
    return f"did you mean {_shown(folded[close[0]])}?" if close and folded[close[0]] != found else ""


def _decoded(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _shown(text: str) -> str:
    return json.dumps(text[:60], ensure_ascii=False)
