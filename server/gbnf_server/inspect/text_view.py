"""What the page shows of a text: how far the grammar accepts it, what may come next, what the validator says.

All of it is bounded: texts have at most `MOST_CHARACTERS`, validation and repair count their work.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from gbnf import Grammar, SchemaError, validate_call
from gbnf.calls import ToolCall, ToolCalls, parse_tool_calls
from gbnf.calls.repair import repair_call
from gbnf.effort import MAX_VALIDATION_EFFORT, EffortSpentError, limit_effort
from gbnf.errors import AmbiguousGrammarError, GrammarError, PoolError
from gbnf.grammar.match import Match, MatchState
from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf.tools import Tool
from gbnf.tools.step_references import offered_args
from gbnf_server.inspect.call_text import read_call_text
from gbnf_server.inspect.continuations import DIGITS, NUMBER, may_end_number
from gbnf_server.inspect.expectations import MOST_OPTIONS, Continuation, Expectation, JsonExpectations
from gbnf_server.inspect.inspected_grammar import PLAIN, STEPS, GrammarChoice
from gbnf_server.inspect.partial_json import JsonPosition, after_scalar, locate
from gbnf_server.inspect.refusals import why_refused
from gbnf_server.inspect.schema_words import SchemaWords, ValueWords

MOST_CHARACTERS = 100_000
_MOST_EXPECTED = 12
_FOUND = 24
"""Characters of the refused text that a message shows."""


@dataclass(frozen=True, slots=True)
class TextView:
    """A text against a grammar: `accepted` and `refused` joined are the text.

    `problem` says where and why it fails, or what is missing; "" for a complete text. `following` is what may
    come next, in words, `terminals` the same as GBNF, `options` the texts among it, which the grammar accepts
    after `accepted`. `calls`: what the parser of the chat template's format reads, one line each.
    `validation`: lines of the validator, none for a valid value; None if there is no value. `repaired`: the
    call as JSON after the `repairs`.
    """

    accepted: str
    refused: str
    is_complete: bool
    line: int
    column: int
    problem: str = ""
    following: str = ""
    options: tuple[Continuation, ...] = ()
    terminals: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    validation: tuple[str, ...] | None = None
    repairs: tuple[str, ...] = ()
    repaired: str = ""
    repaired_validation: tuple[str, ...] = ()

    @property
    def has_more(self) -> bool:
        """Whether only the first of many options are shown."""
        return len(self.options) >= MOST_OPTIONS

    @property
    def accepted_units(self) -> int:
        """The length of `accepted` in UTF-16 code units, in which a browser counts."""
        return len(self.accepted.encode("utf-16-le", "surrogatepass")) // 2


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the parser, the validator and the repairer say; see `TextView`."""

    calls: tuple[str, ...] = ()
    validation: tuple[str, ...] | None = None
    repairs: tuple[str, ...] = ()
    repaired: str = ""
    repaired_validation: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _JsonText:
    """The JSON in which a text ends. `at`: where it begins; None outside of it, where there is `outside`."""

    text: str
    at: int | None
    words_at: Callable[[JsonPosition], ValueWords]
    prefix: str = ""
    outside: Expectation | None = None


class TextChecker:
    """Checks texts against the calls of tools, or against one schema."""

    def __init__(self, tools: Sequence[Tool], schema: Any = None, choice: GrammarChoice = PLAIN) -> None:
        self._tools = tuple(tools)
        self._by_name = {tool.name: tool for tool in tools}
        self._schema, self._choice = schema, choice
        self._schema_words = lru_cache(maxsize=64)(self._compute_words)

    @cached_property
    def grammar(self) -> Grammar:
        """The grammar of all calls, or of the schema. Raises PoolError, SchemaError and GrammarError."""
        return self._choice.of_tools(self._tools) if self._tools else self._choice.of_schema(self._schema)

    def view(self, text: str) -> TextView:
        """Return the view of a text; of one that is too long, of its beginning."""
        text = text[:MOST_CHARACTERS]
        try:
            matcher = self.grammar.matcher
            match = matcher.match(text)
            state = matcher.start().advance(text[: match.position])
        except (SchemaError, PoolError, GrammarError) as error:
            return TextView("", text, is_complete=False, line=1, column=1, problem=str(error))
        assert state is not None
        expectation, problem = self._expected(text, match, state)
        begins_one = match.accepted and not match.complete  # of which nothing is to be repaired yet
        judged = Judgement() if begins_one else self._judged(text)
        return TextView(
            text[: match.position],
            text[match.position :],
            match.complete,
            match.line,
            match.column,
            problem,
            expectation.following,
            expectation.options,
            match.expected[:_MOST_EXPECTED],
            judged.calls,
            judged.validation,
            judged.repairs,
            judged.repaired,
            judged.repaired_validation,
        )

    def _expected(self, text: str, match: Match, state: MatchState) -> tuple[Expectation, str]:
        """Return what may come next, and the problem of a text that is not complete."""
        terminals = " or ".join(match.expected[:_MOST_EXPECTED]) or "nothing"
        expectation, expected, why, begun = Expectation(terminals), terminals, "", match.position
        try:
            with limit_effort(MAX_VALIDATION_EFFORT):
                json_text = self._json_text(text[: match.position], state)
                expectation = self._expectation(json_text, state)
                expected = expectation.following
                if json_text.at is not None and not match.accepted:
                    position = locate(json_text.text)
                    if _ends_number(position, json_text.text, state, text[match.position]):
                        position = after_scalar(position)
                        expected = self._expectation(json_text, state, position).following
                    elif position.where in ("inside", "key") and position.start < position.end:
                        begun = json_text.at + position.start
                        earlier = self.grammar.matcher.start().advance(text[:begun])
                        assert earlier is not None
                        before = replace(json_text, text=json_text.text[: position.start])
                        expected = self._expectation(before, earlier).following
                    at, words = match.position - json_text.at, json_text.words_at(position)
                    why = why_refused(text[json_text.at :], at, position, state, words, self._choice)
        except (EffortSpentError, AmbiguousGrammarError, SchemaError, RecursionError):
            pass
        if match.accepted:
            return expectation, "" if match.complete else f"expected {expected}, but the text ends"
        end = match.position + _FOUND
        refused = text[max(begun, match.position - _FOUND) : end] + ("…" if end < len(text) else "")
        found = f"found {json.dumps(refused, ensure_ascii=False)}"
        return expectation, f"expected {expected}, but {found}{why and ': '}{why}"

    def _expectation(
        self, json_text: _JsonText, state: MatchState, position: JsonPosition | None = None
    ) -> Expectation:
        """Return what may come next. `position`: where the text ends, if that is known."""
        if json_text.outside is not None:
            return json_text.outside
        position = position or locate(json_text.text)
        expecting = JsonExpectations(state, json_text.text, position, json_text.words_at, json_text.prefix)
        found = expecting.expectation()
        if self._tools and not json_text.prefix and position.where == "value" and not position.path:
            options = tuple(replace(option, words="a call") for option in found.options)
            return Expectation("a call, that is an object", options)
        return found

    def _json_text(self, accepted: str, state: MatchState) -> _JsonText:
        """Return the JSON at the end of a text that the grammar accepts."""
        if self._choice.tool_format is None:
            return _JsonText(accepted, 0, self._words_of_call)
        call = read_call_text(self._choice.tool_format, self._tools, accepted, state)

        def words_at(position: JsonPosition) -> ValueWords:
            return self._words(call.name, position.path, position)

        if call.json_at is not None:
            return _JsonText(accepted[call.json_at :], call.json_at, words_at, "/arguments")
        position = locate(call.arguments)
        outside = call.expectation
        if call.arguments and position.where in ("value", "inside"):
            words = words_at(position).described()
            outside = replace(
                outside, following=f"{outside.following}, in {words} at /arguments{position.pointer}"
            )
        return _JsonText("", None, words_at, "/arguments", outside)

    def _words_of_call(self, position: JsonPosition) -> ValueWords:
        """Return the words for a position in a call as JSON, or in a value of the schema."""
        if not self._tools:
            return self._words(None, position.path, position)
        match position.path:
            case ("arguments", *inner):
                name = position.known[0].get("name") if position.known else None
                below = replace(position, known=position.known[1:])
                return self._words(name if isinstance(name, str) else "", tuple(inner), below)
        return self._call_words.at(position.path)

    def _words(self, name: str | None, path: tuple[str | int, ...], position: JsonPosition) -> ValueWords:
        try:
            return self._schema_words(name).at(path, position.known)
        except SchemaError:  # of a reference that leads nowhere
            return SchemaWords(True).at(())

    def _compute_words(self, name: str | None) -> SchemaWords:
        """Return the words of a tool's arguments; of the schema for None."""
        if name is None:
            return SchemaWords(self._schema)
        tool = self._by_name.get(name)
        return SchemaWords(True if tool is None else offered_args(tool, STEPS))

    @cached_property
    def _call_words(self) -> SchemaWords:
        return SchemaWords(
            {
                "type": "object",
                "required": ["name", "arguments"],
                "properties": {"name": {"enum": list(self._by_name)}, "arguments": {"type": "object"}},
            }
        )

    def _judged(self, text: str) -> Judgement:
        """Return what the parser, the validator and the repairer say."""
        if self._choice.tool_format is not None:
            return self._judged_calls(text)
        try:
            value = parse_json(text)
        except InvalidJsonError:
            return self._parsed(text) if self._tools and text.strip() else Judgement()
        if not self._tools:
            return Judgement(validation=tuple(self._schema_errors(value)))
        errors = validate_call(value, self._tools, steps=STEPS).errors
        if not errors or not isinstance(value, dict):
            return Judgement(validation=errors)
        return replace(self._repaired(value), validation=errors)

    def _judged_calls(self, text: str) -> Judgement:
        """Return what the parser of the chat template's format makes of a text."""
        assert self._choice.tool_format is not None
        found = self._choice.tool_format.parse(text, self._tools)
        lines = [f"reasoning: {_start(found.reasoning)}"] if found.reasoning else []
        lines += [f"text: {_start(found.content)}"] if found.content.strip() else []
        if not isinstance(found, ToolCalls):
            return Judgement((*lines, "no call"))
        lines += [_described(call) for call in found.calls]
        lines += [f"a call that cannot be used: {invalid.error}" for invalid in found.invalid]
        usable = [call for call in found.calls if not call.truncated]
        errors: list[str] = []
        repaired = Judgement()
        for call in usable:
            found_errors = validate_call(call.as_call(), self._tools, steps=STEPS).errors
            errors += [error if len(usable) == 1 else f"{call.name}: {error}" for error in found_errors]
            if found_errors and not repaired.repaired:
                repaired = self._repaired(call.as_call())
        repairs = (*map(str, found.repairs), *repaired.repairs)
        validation = tuple(errors) if usable else None
        return replace(repaired, calls=tuple(lines), validation=validation, repairs=repairs)

    def _parsed(self, text: str) -> Judgement:
        """Return what the reader of text tool calls makes of a text that is not JSON."""
        found = parse_tool_calls(text, self._tools)
        if not isinstance(found, ToolCalls) or not found.calls:
            return Judgement()
        call = found.calls[0]
        read = tuple(str(repair) for repair in found.repairs)
        if call.truncated:
            return Judgement(repairs=(*read, "the call is truncated, so it would not be executed"))
        repaired = self._repaired(call.as_call())
        if not repaired.repaired:
            written = json.dumps(call.as_call(), ensure_ascii=False, indent=2)
            errors = validate_call(call.as_call(), self._tools, steps=STEPS).errors
            return Judgement(repairs=read, repaired=written, repaired_validation=errors)
        return replace(repaired, repairs=(*read, *repaired.repairs))

    def _repaired(self, call: dict[str, Any]) -> Judgement:
        result = repair_call(call, self._tools, steps=STEPS)
        if not result.coercions:
            return Judgement()
        written = json.dumps(result.call, ensure_ascii=False, indent=2)
        return Judgement(
            repairs=tuple(map(str, result.coercions)),
            repaired=written,
            repaired_validation=result.validation.errors,
        )

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
        except (EffortSpentError, RecursionError):
            yield "the value takes too much work to be judged"


def _ends_number(position: JsonPosition, text: str, state: MatchState, refused: str) -> bool:
    """Return whether a character comes after a number that is complete."""
    begun = text[position.start : position.start + 1]
    is_number = position.where == "inside" and begun in "-" + DIGITS
    return is_number and refused not in NUMBER and may_end_number(state)


def _described(call: ToolCall) -> str:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    state = ", truncated, so it would not be executed" if call.truncated else ""
    return f"a call of {call.name} with {_start(arguments)}{state}"


def _start(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 200 else f"{text[:199]}…"
