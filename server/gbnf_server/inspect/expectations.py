"""What may come next in an unfinished JSON text: what the grammar allows, in the words of the schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from gbnf.compiler.literals import json_string
from gbnf.grammar.match import MatchState
from gbnf_server.inspect.continuations import (
    DIGITS,
    after_spaces,
    characters_in_words,
    either,
    first_after,
    inserted,
    may_end_number,
    missing_digits,
    number_ends,
    string_ends,
)
from gbnf_server.inspect.partial_json import JsonPosition, after_scalar
from gbnf_server.inspect.schema_words import KINDS, Kind, ValueWords, listed_values

END = "the end of the text"
_TOP = "the top level"
_MOST_NAMES = 8
MOST_OPTIONS = 50
_MOST_TRIED = 2000
_LONGEST_LABEL = 60
_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True, slots=True)
class Continuation:
    """A text that the grammar accepts after the accepted one. `words` say what it is, `label` shows it."""

    text: str
    label: str
    words: str


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a grammar expects after a text, in words, and the texts among it."""

    following: str
    options: tuple[Continuation, ...] = ()


class JsonExpectations:
    """What may come after a JSON text that ends in `state` at `position`.

    `text`: from the beginning of the JSON on. `words_at`: the words for what is at a position's path.
    `prefix`: of the paths in the words.
    """

    def __init__(
        self,
        state: MatchState,
        text: str,
        position: JsonPosition,
        words_at: Callable[[JsonPosition], ValueWords],
        prefix: str = "",
    ) -> None:
        self._state, self._text, self._position = state, text, position
        self._words_at, self._prefix = words_at, prefix
        self._words = words_at(position)
        self._begun = text[position.start :] if position.where in ("inside", "key") else ""
        self._where = f"{prefix}{position.pointer}" or _TOP

    def expectation(self) -> Expectation:
        """Return what may come next."""
        found = self._expectation()
        forced = "" if found.options else self._state.forced()
        if not forced:
            return found
        return replace(found, options=(self._option(forced, _cut(forced), "the only continuation"),))

    def _expectation(self) -> Expectation:
        match self._position.where:
            case "value":
                return self._value()
            case "inside":
                return self._inside()
            case "key":
                return self._key()
            case "colon":
                said = f'":" after {_shown(self._position.keys[-1])}'
                return Expectation(said, self._tokens([":"], "the colon"))
            case "after":
                return self._after()
        said = END if self._state.can_end else "nothing that is allowed here"
        return Expectation(said)

    def _value(self) -> Expectation:
        before = self._text.rstrip()
        starts = after_spaces(self._state, spaced=before.endswith((",", ":")))
        options: list[Continuation] = []
        listed: list[str] = []
        phrases: list[str] = []
        bare: list[bool] = []
        for kind in KINDS:
            found, is_listed = self._of_kind(kind, starts)
            if found is None:
                continue
            options += found
            if is_listed:
                listed += [option.label for option in found]
            else:
                phrases.append(self._words.of_kind(kind))
                bare.append(phrases[-1] in _BARE)
        if len(bare) == 4 and all(bare) and set(listed) == {"true", "false", "null"}:
            said = "any JSON value"
        else:
            groups = [_listed_values(listed)] if listed else []
            said = " or ".join([*groups, *phrases])
        parts = [f"{said} at {self._where}"] if said else []
        others: list[Continuation] = []
        if before.endswith("[") and (end := first_after(starts, "]")) is not None:
            others = [self._option(end, "]", "the end of the array")]
            parts.append("]" if said else f"] at {self._where.rpartition('/')[0] or _TOP}")
        return Expectation(", or ".join(parts) or "nothing", (*options[:MOST_OPTIONS], *others))

    def _of_kind(self, kind: Kind, starts: dict[str, MatchState]) -> tuple[list[Continuation] | None, bool]:
        """Return the values of a kind that can be inserted, and whether there are no others.

        The first is None if there is no value of this kind.
        """
        match kind:
            case "string":
                begin = first_after(starts, '"')
            case "number":
                begin = next((found for sign in "-" + DIGITS if (found := first_after(starts, sign))), None)
            case "object" | "array":
                sign = "{" if kind == "object" else "["
                begin = first_after(starts, sign)
                return (
                    None if begin is None else [self._option(begin, sign, self._words.of_kind(kind))]
                ), False
            case _:
                names = ("true", "false") if kind == "boolean" else ("null",)
                options = [
                    self._option(text, name, name) for name in names if (text := first_after(starts, name))
                ]
                return options or None, True
        if begin is None:
            return None, True
        space = begin[:-1]
        inside = starts[space].advance('"') if kind == "string" else starts[space]
        assert inside is not None
        ends, is_open = string_ends(inside) if kind == "string" else number_ends(inside)
        ends = ['"' + end for end in ends] if kind == "string" else ends
        options = [self._option(space + end, _cut(end), _cut(end)) for end in self._in_order(ends, kind)]
        if not is_open and (len(ends) <= _MOST_NAMES or self._words.values(kind)):
            return options, True
        if is_open:
            for value in self._words.values(kind)[:MOST_OPTIONS]:
                text = json_string(value) if kind == "string" else json.dumps(value)
                if text not in ends and starts[space].advance(text) is not None:
                    options.append(self._option(space + text, _cut(text), _cut(text)))
            if kind == "string":
                options.append(self._option(begin, '"', self._words.of_kind(kind)))
        return options, False

    def _in_order(self, texts: Sequence[str], kind: Kind) -> list[str]:
        """Return texts in the order of the schema's values, the others after them."""
        order = {
            json.dumps(value, ensure_ascii=False): at for at, value in enumerate(self._words.values(kind))
        }
        return sorted(texts, key=lambda text: order.get(text, len(order)))

    def _inside(self) -> Expectation:
        if self._begun.startswith('"'):
            return self._inside_string()
        if self._begun[:1] in DIGITS + "-":
            return self._inside_number()
        forced = self._state.forced()
        name = next((name for name in ("true", "false", "null") if name.startswith(self._begun)), self._begun)
        rest = name[len(self._begun) :]
        if not rest or not forced.startswith(rest):  # of a literal that is complete
            return self._after_scalar(name)
        said = f"the rest of {name} at {self._where}"
        return Expectation(said, (self._option(rest, name, f"the rest of {name}"),))

    def _inside_string(self) -> Expectation:
        begun, where = self._begun, self._where
        escaped = (len(begun) - len(begun.rstrip("\\"))) % 2 == 1
        ends, is_open = string_ends(self._state, escaped=escaped)
        rest_of = "" if begun == '"' else "the rest of "
        whole = self._in_order([begun + end for end in ends], "string")
        is_listed = bool(self._words.values("string"))
        is_listed = not is_open and (is_listed or (len(ends) <= _MOST_NAMES and ends != ['"']))
        options = [
            self._option(text[len(begun) :], _cut(text), f"{rest_of}{_cut(text)}")
            for text in whole[:MOST_OPTIONS]
            if is_listed or text != begun + '"'
        ]
        phrase = self._words.of_kind("string")
        if is_listed:
            shown = [_cut(text) for text in whole]
            rest = f"{rest_of}{either(_limited(shown))}" if rest_of else listed_values(shown)
            return Expectation(f"{rest} at {where}", tuple(options))
        missing = self._missing_in_string(escaped)
        if not escaped and self._state.advance('"') is not None:
            missing = f"{missing} or the closing quote" if missing else "the closing quote"
            options.insert(0, self._option('"', '"', "the closing quote"))
        for value in self._words.values("string") if is_open else ():
            text = json_string(value)
            rest = text[len(begun) :]
            if text.startswith(begun) and rest != '"' and self._state.advance(rest) is not None:
                options.append(self._option(rest, _cut(text), f"the rest of {_cut(text)}"))
        if not options and (example := self._example(escaped)):
            options.append(self._option(example, f"…{_cut(example)}", f"for example {_cut(example)}"))
        return Expectation(f"{missing}, in {phrase} at {where}", tuple(options[:MOST_OPTIONS]))

    def _missing_in_string(self, escaped: bool) -> str:
        """Return what is missing inside a string that is not listed."""
        state, begun = self._state, self._begun
        if escaped:
            return f"the rest of an escape: {characters_in_words(state)}"
        tail = begun.rpartition("\\u")[2] if "\\u" in begun[-6:] else None
        if tail is not None and len(tail) < 4:
            return _counted(4 - len(tail), 4 - len(tail), "more hexadecimal digit")
        characters = characters_in_words(state)
        if (digits := missing_digits(state)) is not None and digits[0]:
            if digits == (1, 1) and characters not in ("", "a digit"):
                return characters
            return _counted(*digits, "more digit" if begun[-1:] in DIGITS else "digit")
        if characters:
            return characters
        if not any(high > 127 for _, high in state.allowed().ranges) and state.advance('"') is None:
            return "more characters"
        if (length := _length(begun)) is None:
            return "more characters"
        least = self._words.least("minLength") - length
        most = self._words.most("maxLength")
        if least > 0 and state.advance('"') is None:
            return f"at least {_counted(least, least, 'more character')}"
        if most is not None and most > length:
            return f"at most {_counted(most - length, most - length, 'more character')}"
        return "more characters" if state.allowed().ranges != ((34, 34),) else ""

    def _example(self, escaped: bool) -> str:
        """Return the shortest end of the string, for a text that cannot end here."""
        text = self._state.shortest_completion()
        for index, character in enumerate(text):
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                return text[: index + 1]
        return ""

    def _inside_number(self) -> Expectation:
        whole = f"{self._words.of_kind('number')} at {self._where}"
        ends, is_open = number_ends(self._state)
        options = [self._option(end, self._begun + end, f"the rest of {self._begun + end}") for end in ends]
        if may_end_number(self._state):
            after = self._after_scalar(self._begun)
            more = "more digits, or " if is_open or ends else ""
            return Expectation(more + after.following, (*options, *after.options))
        digits = missing_digits(self._state)
        if ends and not is_open:
            missing = f"the rest of {either(_limited([self._begun + end for end in ends]))}"
        elif digits is not None and digits[0]:
            missing = _counted(*digits, "digit" if self._begun[-1:] in "-.eE+" else "more digit")
        else:
            missing = characters_in_words(self._state) or "the rest of the number"
        return Expectation(f"{missing}, in {whole}", tuple(options))

    def _after_scalar(self, written: str) -> Expectation:
        """Return what may come after a value that is complete, but has no closing mark."""
        position = after_scalar(self._position)
        if position.where == "end":
            return Expectation(f"{END} after {written}")
        return JsonExpectations(self._state, self._text, position, self._words_at, self._prefix).expectation()

    def _key(self) -> Expectation:
        begun = self._begun
        words = self._words
        others: list[str] = []
        if begun:
            ends, is_open = string_ends(
                self._state, escaped=begun.endswith("\\") and not begun.endswith("\\\\")
            )
            options = self._keys(ends, is_open, self._state, begun, "")
            if is_open and self._state.advance('"') is not None and len(begun) > 1:
                options.append(self._option('"', '"', "the closing quote"))
        else:
            starts = after_spaces(self._state, spaced=self._text.rstrip().endswith(","))
            options, is_open = self._keys_after(starts, "")
            if (end := first_after(starts, "}")) is not None and self._text.rstrip().endswith("{"):
                options.append(self._option(end, "}", "the end of the object"))
                others = ["}"]
        if is_open:
            others = [words.other_names(), *others]
        said = _listed(
            "the property", [o.label for o in options if o.words.startswith("the property")], others
        )
        said += f" at {self._where}"
        return Expectation(said, tuple(options[:MOST_OPTIONS]))

    def _keys_after(self, starts: dict[str, MatchState], prefix: str) -> tuple[list[Continuation], bool]:
        """Return the properties that may begin after whitespace, and whether there are others."""
        begin = first_after(starts, '"')
        if begin is None:
            return [], False
        inside = starts[begin[:-1]].advance('"')
        assert inside is not None
        ends, is_open = string_ends(inside)
        options = self._keys(ends, is_open, inside, '"', prefix + begin)
        if is_open:
            options.append(self._option(prefix + begin, prefix.strip() + ' "', self._words.other_names()))
        return options, is_open

    def _keys(
        self, ends: Sequence[str], is_open: bool, inside: MatchState, begun: str, lead: str
    ) -> list[Continuation]:
        """Return the properties that may be where a key has begun; `lead`: what else is inserted before."""
        names = self._words.names()
        texts = {json_string(name): name for name in names[:_MOST_TRIED]}
        found = (
            [text for text in texts if text.startswith(begun) and text[len(begun) :] in ends] if ends else []
        )
        found += [begun + end for end in ends if begun + end not in texts]
        if is_open:
            found += [
                text
                for text in texts
                if text.startswith(begun)
                and text not in found
                and inside.advance(text[len(begun) :]) is not None
            ]
        return [
            self._option(lead + text[len(begun) :], _cut(text), f"the property {_cut(text)}")
            for text in found
        ]

    def _after(self) -> Expectation:
        starts = after_spaces(self._state)
        closing = "]" if self._position.index is not None else "}"
        kind = "array" if closing == "]" else "object"
        phrases: list[str] = []
        options: list[Continuation] = []
        if (comma := first_after(starts, ",")) is not None:
            following = self._state.advance(comma)
            assert following is not None
            if kind == "array":
                options.append(self._option(comma, ",", "another item"))
                phrases.append("a comma and another item")
            else:
                found, is_open = self._keys_after(after_spaces(following, spaced=True), comma)
                options += found
                names = [option.label for option in found if option.words.startswith("the property")]
                others = [self._words.other_names()] if is_open else []
                if said := _listed("the property", names, others):
                    phrases.append(f"a comma and {said}")
        if (end := first_after(starts, closing)) is not None:
            options.append(self._option(end, closing, f"the end of the {kind}"))
            phrases.insert(0, closing)
        said = f"{' or '.join(phrases) or 'nothing'} at {self._where}"
        if end is None and kind == "array":
            said += f", to complete {self._words.of_kind('array')}"
        return Expectation(said, tuple(options[:MOST_OPTIONS]))

    def _tokens(self, texts: Iterable[str], words: str) -> tuple[Continuation, ...]:
        starts = after_spaces(self._state)
        found = ((text, first_after(starts, text)) for text in texts)
        return tuple(self._option(text, token, words) for token, text in found if text is not None)

    def _option(self, text: str, label: str, words: str) -> Continuation:
        return Continuation(inserted(self._state, text), label, words)


def _listed_values(texts: Sequence[str]) -> str:
    return "true or false" if list(texts) == ["true", "false"] else listed_values(texts)


def digits_in_words(state: MatchState) -> str:
    """Return how many digits are missing, "" if none are, or more than digits."""
    digits = missing_digits(state)
    return _counted(*digits, "more digit") if digits is not None and digits[0] else ""


_BARE = ("a string", "a number", "an object", "an array")


def _length(begun: str) -> int | None:
    """Return how many characters a string has so far; None inside an escape."""
    try:
        return len(json.loads(begun + '"', strict=False))
    except ValueError:
        return None


def _counted(least: int, most: int | None, what: str) -> str:
    """Return a number of things in words."""

    def number(count: int) -> str:
        return _COUNTS[count] if count < len(_COUNTS) else str(count)

    plural = what if (most or least) == 1 else f"{what}s"
    if most is None:
        return f"at least {number(least)} {plural}"
    if least == most:
        return f"{number(least)} {plural}"
    return f"{number(least)} {'or' if most == least + 1 else 'to'} {number(most)} {plural}"


def _listed(what: str, names: Sequence[str], others: Sequence[str] = ()) -> str:
    """Return names as a list, with what is allowed instead of them."""
    phrases = [f"{what} {' or '.join(_limited(names))}"] if names else []
    return " or ".join([*phrases, *others])


def _limited(texts: Sequence[str]) -> list[str]:
    more = [f"{len(texts) - _MOST_NAMES} more"] if len(texts) > _MOST_NAMES else []
    return [*texts[:_MOST_NAMES], *more]


def _shown(name: str) -> str:
    return _cut(json.dumps(name, ensure_ascii=False))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"
