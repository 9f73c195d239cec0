"""What the page shows of a text: how far the grammar accepts it, what may come next, what the validator says.

All of it is bounded: texts have at most `MOST_CHARACTERS`, validation and repair count their work.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gbnf import Grammar, SchemaError, compile_pool, compile_schema, validate_call
from gbnf.calls import ToolCalls, parse_tool_calls
from gbnf.calls.repair import repair_call
from gbnf.effort import MAX_VALIDATION_EFFORT, EffortSpent, limit_effort
from gbnf.errors import AmbiguousGrammarError, PoolError
from gbnf.grammar.match import END_OF_TEXT, MatchState
from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf.tools import Tool
from gbnf_server.inspect.grammar_view import STEPS
from gbnf_server.inspect.partial_json import JsonPosition, locate
from gbnf_server.inspect.schema_words import property_names, words_at

MOST_CHARACTERS = 100_000
_MOST_EXPECTED = 12
_MOST_NAMES = 8
_MOST_TRIED = 300
_FOUND = 24
"""Characters of the refused text that a message shows."""


@dataclass(frozen=True, slots=True)
class TextView:
    """A text against a grammar: `accepted` and `refused` joined are the text.

    `problem` says where and why it fails, or what is missing; "" for a complete text. `following` is what may
    come next, in words, `terminals` the same as GBNF. `validation`: lines of the validator, none for a valid
    value; None if there is no JSON value. `repaired`: the call as JSON after the `repairs`.
    """

    accepted: str
    refused: str
    is_complete: bool
    line: int
    column: int
    problem: str = ""
    following: str = ""
    terminals: tuple[str, ...] = ()
    validation: tuple[str, ...] | None = None
    repairs: tuple[str, ...] = ()
    repaired: str = ""
    repaired_validation: tuple[str, ...] = ()


class TextChecker:
    """Checks texts against the calls of tools, or against one schema."""

    def __init__(self, tools: Sequence[Tool], schema: Any = None) -> None:
        self._tools = tuple(tools)
        self._by_name = {tool.name: tool for tool in tools}
        self._schema = schema

    @cached_property
    def grammar(self) -> Grammar:
        """The grammar of all calls, or of the schema. Raises PoolError and SchemaError."""
        return compile_pool(self._tools, steps=STEPS) if self._tools else compile_schema(self._schema)

    def view(self, text: str) -> TextView:
        """Return the view of a text; of one that is too long, of its beginning."""
        text = text[:MOST_CHARACTERS]
        try:
            matcher = self.grammar.matcher
            match = matcher.match(text)
            state = matcher.start().advance(text[: match.position])
        except (SchemaError, PoolError, AmbiguousGrammarError) as error:
            return TextView("", text, is_complete=False, line=1, column=1, problem=str(error))
        assert state is not None
        location = locate(text[: match.position])
        try:
            with limit_effort(MAX_VALIDATION_EFFORT):
                following = self._following(text, state, location)
        except (EffortSpent, AmbiguousGrammarError):
            following = " or ".join(match.expected[:_MOST_EXPECTED])
        problem = ""
        if not match.complete:
            begun = location.start if location.where in ("inside", "key") else match.position
            end = match.position + _FOUND
            refused = text[max(begun, match.position - _FOUND) : end] + ("…" if end < len(text) else "")
            found = "the text ends" if match.accepted else f"found {json.dumps(refused, ensure_ascii=False)}"
            problem = f"expected {following}, but {found}{self._why(text, location)}"
        begins_one = match.accepted and not match.complete  # of which nothing is to be repaired yet
        validation, repairs, repaired, after = _UNJUDGED if begins_one else self._judged(text)
        return TextView(
            text[: match.position],
            text[match.position :],
            match.complete,
            match.line,
            match.column,
            problem,
            following,
            match.expected[:_MOST_EXPECTED],
            validation,
            repairs,
            repaired,
            after,
        )

    def _following(self, text: str, state: MatchState, location: JsonPosition) -> str:
        """Return what may come next, in the words of the schema."""
        where = location.pointer or "the top level"
        match location.where:
            case "value" | "inside":
                if location.where == "value" and location.start and state.advance("]") is not None:
                    return f"{self._words(text, location)} at {where}, or ]"
                return f"{self._words(text, location)} at {where}"
            case "key":
                return self._keys_expected(text, location, where)
            case "colon":
                return f'":" after {json.dumps(location.keys[-1], ensure_ascii=False)}'
            case "after":
                return self._after_expected(text, state, location, where)
        if state.can_end and state.must_end:
            return END_OF_TEXT
        expected = state.expected()[:_MOST_EXPECTED]
        return " or ".join(expected) or "nothing more"

    def _why(self, text: str, location: JsonPosition) -> str:
        """Return why a declared key is refused, "" for anything else."""
        found = _KEY.match(text, location.start) if location.where in ("key", "after") else None
        key = _decoded(found[1]) if found is not None else None
        if key is None or key not in self._declared(text, location):
            return ""
        if key in location.keys:
            return f": {json.dumps(key, ensure_ascii=False)} is given already"
        return (
            f": {json.dumps(key, ensure_ascii=False)} comes earlier, since properties have the schema's order"
        )

    def _words(self, text: str, location: JsonPosition) -> str:
        if not self._tools:
            return words_at(self._schema, location.path)
        match location.path:
            case ():
                return "a call, that is an object"
            case ("name",):
                names = self._accepted(text, location, [tool.name for tool in self._tools])
                return _listed("the name of a tool:", names)
            case ("arguments", *inner):
                tool = self._by_name.get(_called_name(text))
                return words_at({} if tool is None else tool.model_args(), tuple(inner))
        return "a JSON value"

    def _keys_expected(self, text: str, location: JsonPosition, where: str) -> str:
        names = self._accepted(text, location, self._declared(text, location))
        before = self.grammar.matcher.start().advance(text[: location.start])
        others = [
            said for said, text in _OTHER_KEYS if before is not None and before.advance(text) is not None
        ]
        return _listed("the property", names, others) + f" at {where}"

    def _after_expected(self, text: str, state: MatchState, location: JsonPosition, where: str) -> str:
        closings = tuple(
            closing for closing in ("}", "]") if state.advance(closing) or state.advance(f" {closing}")
        )
        comma = "," if state.advance(",") else ""
        if not comma:
            return " or ".join(closings) + f" after the value at {where}" if closings else "the end"
        if location.keys or not closings or closings == ("}",):
            names = self._allowed(text[: location.start] + ",", self._declared(text, location))
            if names:
                return _listed("a comma and the property", names, closings) + f" at {where}"
        return " or ".join([*closings, "a comma and another value"]) + f" at {where}"

    def _declared(self, text: str, location: JsonPosition) -> list[str]:
        """Return the keys that may be allowed in the object around a location."""
        if not self._tools:
            return property_names(self._schema, location.path)
        match location.path:
            case ():
                return ["name", "arguments"]
            case ("arguments", *inner):
                tool = self._by_name.get(_called_name(text))
                return [] if tool is None else property_names(tool.model_args(), tuple(inner))
        return []

    def _accepted(self, text: str, location: JsonPosition, names: Sequence[str]) -> list[str]:
        """Return the names that may be where a string has begun; those that begin as it does, if any do."""
        names = self._allowed(text[: location.start], names)
        begun = text[location.start + 1 : location.end]
        return [name for name in names if name.startswith(begun)] or names

    def _allowed(self, before: str, names: Sequence[str]) -> list[str]:
        """Return the names that the grammar accepts as strings after a text, compact or with a space."""
        state = self.grammar.matcher.start().advance(before)
        if state is None:
            return []
        quoted = ((name, json.dumps(name, ensure_ascii=False)) for name in names[:_MOST_TRIED])
        return [name for name, text in quoted if state.advance(text) or state.advance(f" {text}")]

    def _judged(self, text: str) -> tuple[tuple[str, ...] | None, tuple[str, ...], str, tuple[str, ...]]:
        """Return what the validator says, the repairs, the repaired value, and what it says of that."""
        try:
            value = parse_json(text)
        except InvalidJsonError:
            return self._parsed(text) if self._tools and text.strip() else _UNJUDGED
        if not self._tools:
            return tuple(self._schema_errors(value)), (), "", ()
        errors = validate_call(value, self._tools, steps=STEPS).errors
        if not errors or not isinstance(value, dict):
            return errors, (), "", ()
        return errors, *self._repaired(value)

    def _parsed(self, text: str) -> tuple[None, tuple[str, ...], str, tuple[str, ...]]:
        """Return what the reader of text tool calls makes of a text that is not JSON."""
        found = parse_tool_calls(text, self._tools)
        if not isinstance(found, ToolCalls) or not found.calls:
            return None, (), "", ()
        call = found.calls[0]
        read = tuple(str(repair) for repair in found.repairs)
        if call.truncated:
            return None, (*read, "the call is truncated, so it would not be executed"), "", ()
        repairs, repaired, errors = self._repaired(call.as_call())
        written = repaired or json.dumps(call.as_call(), ensure_ascii=False, indent=2)
        if not repaired:
            errors = validate_call(call.as_call(), self._tools, steps=STEPS).errors
        return None, (*read, *repairs), written, errors

    def _repaired(self, call: dict[str, Any]) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
        result = repair_call(call, self._tools, steps=STEPS)
        if not result.coercions:
            return (), "", ()
        written = json.dumps(result.call, ensure_ascii=False, indent=2)
        return tuple(map(str, result.coercions)), written, result.validation.errors

    def _schema_errors(self, value: Any) -> Iterator[str]:
        from jsonschema import Draft202012Validator  # noqa: PLC0415  # only a complete text needs it

        from gbnf.schema.format_checks import FORMAT_CHECKER  # noqa: PLC0415  # likewise
        from gbnf.schema.validators import extend_validator  # noqa: PLC0415  # likewise

        validator = extend_validator(Draft202012Validator, every_draft=True)(
            self._schema, format_checker=FORMAT_CHECKER
        )
        try:
            with limit_effort(MAX_VALIDATION_EFFORT, may_backtrack=True):
                for number, error in enumerate(validator.iter_errors(value)):
                    if number == _MOST_EXPECTED:
                        yield "and more"
                        return
                    path = "".join(f"/{step}" for step in error.absolute_path)
                    yield f"{path or 'the value'}: {error.message[:300]}"
        except (EffortSpent, RecursionError):
            yield "the value takes too much work to be judged"


_KEY = re.compile(r'\s*,?\s*("(?:[^"\\]|\\.)*")')
_OTHER_KEYS = (("any other property", '"any other key"'), ("}", "}"))
"""What may be instead of a declared key, and a text that begins it."""
_UNJUDGED: tuple[None, tuple[str, ...], str, tuple[str, ...]] = (None, (), "", ())


def _called_name(text: str) -> str:
    """Return the tool that the beginning of a call names."""
    found = json.JSONDecoder()
    _, quoted, rest = text.partition('"name"')
    rest = rest.lstrip().removeprefix(":").lstrip() if quoted else ""
    try:
        name, _ = found.raw_decode(rest)
    except ValueError:
        return ""
    return name if isinstance(name, str) else ""


def _decoded(quoted: str) -> str | None:
    try:
        return str(json.loads(quoted))
    except ValueError:
        return None


def _listed(what: str, names: Sequence[str], others: Sequence[str] = ()) -> str:
    """Return names as a list, with what is allowed instead of them."""
    shown = [json.dumps(name, ensure_ascii=False) for name in names[:_MOST_NAMES]]
    shown += [f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
    phrases = [f"{what} {' or '.join(shown)}"] if shown else []
    return " or ".join([*phrases, *others]) or what
