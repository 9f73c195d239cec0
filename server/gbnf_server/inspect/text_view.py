"""What the page shows of a text: how far the grammar accepts it, what may come next, what the validator says.

All of it is bounded: texts have at most `MOST_CHARACTERS`, validation and repair count their work.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property, lru_cache
from typing import Any

from gbnf import Grammar, SchemaError, validate_call
from gbnf.calls import ToolCalls, parse_tool_calls
from gbnf.calls.repair import repair_call
from gbnf.compiler.literals import json_string
from gbnf.errors import AmbiguousGrammarError, GrammarError, PoolError, clip
from gbnf.grammar.match import Match, MatchState
from gbnf.partial_json import JsonPosition, locate
from gbnf.schema.document import Document
from gbnf.schema.drafts import as_2020_12
from gbnf.schema.keywords import path_pointer
from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf.tools import Tool
from gbnf.tools.tool import offered_args
from gbnf.work_limits import MAX_VALIDATION_WORK, WorkLimitError, limit_work
from gbnf_server.inspect.declarations import Declared, declared_at
from gbnf_server.inspect.expectations import (
    MOST_OPTIONS,
    Continuation,
    Expectation,
    JsonExpectations,
    may_end_number,
    outside_json,
    read_call_text,
)
from gbnf_server.inspect.grammar_choice import PLAIN, GrammarChoice
from gbnf_server.inspect.grammar_view import STEPS

MOST_CHARACTERS = 100_000
_MOST_EXPECTED = 12
_FOUND = 24
"""Characters of the refused text that a message shows."""
_CLOSE = 0.75
"""Similarity above which a text is taken for a misspelt one."""
_STRING = re.compile(r'\s*,?\s*("(?:[^"\\]|\\.)*")')
_NAME = re.compile(r'\s*\{\s*"name"\s*:\s*"([^"]*)"')


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the parser, the validator and the repairer say of a text.

    `calls`: what the parser of the chat template's format reads, one line each. `validation`: lines of the
    validator, none for a valid value; None if there is no value. `repaired`: the call as JSON after the
    `repairs`.
    """

    calls: tuple[str, ...] = ()
    validation: tuple[str, ...] | None = None
    repairs: tuple[str, ...] = ()
    repaired: str = ""
    repaired_validation: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TextView:
    """A text against a grammar: `accepted` and `refused` joined are the text.

    `problem` says where and why it fails, or what is missing; "" for a complete text. `following` is what may
    come next, in words, `terminals` the same as GBNF, `options` the texts among it, which the grammar accepts
    after `accepted`.
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
    judgement: Judgement = Judgement()

    @property
    def has_more(self) -> bool:
        """Whether only the first of many options are shown."""
        return len(self.options) >= MOST_OPTIONS

    @property
    def accepted_units(self) -> int:
        """The length of `accepted` in UTF-16 code units, in which a browser counts."""
        return len(self.accepted.encode("utf-16-le", "surrogatepass")) // 2


@dataclass(frozen=True, slots=True)
class _JsonText:
    """The JSON in which a text ends. `at`: where it begins, `prefix`: of its paths.

    `tool`: whose arguments they are; None for a call, or for a value of the schema.
    """

    text: str
    at: int
    prefix: str
    tool: str | None


class TextChecker:
    """Checks texts against the calls of tools, or against one schema."""

    def __init__(self, tools: Sequence[Tool], schema: Any = None, choice: GrammarChoice = PLAIN) -> None:
        self._tools = tuple(tools)
        self._by_name = {tool.name: tool for tool in tools}
        self._schema, self._choice = schema, choice
        self._document = lru_cache(maxsize=64)(self._create_document)

    @cached_property
    def grammar(self) -> Grammar:
        """The grammar of all calls, or of the schema. Raises PoolError, SchemaError and GrammarError."""
        if self._tools:
            return self._choice.of_tools(self._tools, steps=STEPS)
        return self._choice.of_schema(self._schema)

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
            Judgement() if begins_one else self._judged(text),
        )

    def _expected(self, text: str, match: Match, state: MatchState) -> tuple[Expectation, str]:
        """Return what may come next, and the problem of a text that is not complete."""
        following = " or ".join(match.expected[:_MOST_EXPECTED]) or "nothing"
        expectation, expected, why, begun = Expectation(following), following, "", match.position
        try:
            with limit_work(MAX_VALIDATION_WORK):
                json_text, expectation = self._expectation(text[: match.position], state)
                expected = expectation.following
                if json_text is not None and not match.accepted:
                    position = locate(json_text.text)
                    why = self._why_refused(text, match.position, json_text, expectation, state)
                    token = json_text.text[position.start :]
                    if token and (
                        token[0] == '"' or (position.where == "inside" and not may_end_number(state))
                    ):
                        begun = json_text.at + position.start
                        earlier = self.grammar.matcher.start().advance(text[:begun])
                        assert earlier is not None
                        expected = self._expectation(text[:begun], earlier)[1].following
        except (WorkLimitError, AmbiguousGrammarError, SchemaError, RecursionError):
            pass
        if match.accepted:
            return expectation, "" if match.complete else f"expected {expected}, but the text ends"
        end = match.position + _FOUND
        refused = text[max(begun, match.position - _FOUND) : end] + ("…" if end < len(text) else "")
        refused_text = f"found {json.dumps(refused, ensure_ascii=False)}"
        return expectation, f"expected {expected}, but {refused_text}{why and ': '}{why}"

    def _why_refused(
        self, text: str, place: int, json_text: _JsonText, expectation: Expectation, state: MatchState
    ) -> str:
        """Return why the character at `place` is refused, beyond the expectation; "" if that says it all."""
        position = locate(json_text.text)
        rest = text[place:].lstrip()
        in_string = json_text.text.startswith('"', position.start)
        if not in_string and rest and rest != text[place:] and state.advance(rest[0]) is not None:
            option = "" if self._choice.tool_format is not None else ", which --whitespace free allows"
            return f"only the whitespace is refused{option}"
        match = _STRING.match(text, json_text.at + position.start)
        if match is not None and position.where in ("key", "after"):
            if match[1] in map(json_string, position.keys):
                return f"{match[1]} is given already"
            if match[1] in self._declared_at(json_text, position).names:
                return f"{match[1]} is declared, but cannot come here"
        if match is not None:
            labels = {option.label.casefold(): option.label for option in expectation.options}
            if close := get_close_matches(match[1].casefold()[:100], labels, 1, _CLOSE):
                return f"did you mean {labels[close[0]]}?"
        try:
            json.loads(text[json_text.at :])
        except json.JSONDecodeError as error:
            is_truncated = error.msg.startswith("Unterminated")
            return (
                ""
                if is_truncated or error.pos > place - json_text.at
                else f"in JSON: {error.msg.removesuffix(' at')}"
            )
        except (ValueError, RecursionError):
            pass
        return ""

    def _expectation(self, accepted: str, state: MatchState) -> tuple[_JsonText | None, Expectation]:
        """Return the JSON in which an accepted text ends, if there is any, and what may come next."""
        json_text = _JsonText(accepted, 0, "", None)
        if (tool_format := self._choice.tool_format) is not None:
            call = read_call_text(tool_format, self._tools, accepted)
            if call.json_at is None:
                outside = outside_json(tool_format, self._tools, accepted, state, call)
                position = locate(call.arguments)
                if call.arguments and position.where in ("value", "inside"):
                    types = self._declared_at(_JsonText("", 0, "", call.name), position).types
                    where = f"at /arguments{path_pointer(position.path)}{types and f' ({types})'}"
                    outside = replace(outside, following=f"{outside.following} {where}")
                return None, outside
            json_text = _JsonText(accepted[call.json_at :], call.json_at, "/arguments", call.name)
        expectations = JsonExpectations(
            state,
            json_text.text,
            locate(json_text.text),
            lambda position: self._declared_at(json_text, position),
            json_text.prefix,
        )
        return json_text, expectations.expectation()

    def _declared_at(self, json_text: _JsonText, position: JsonPosition) -> Declared:
        """Return what is declared at a position in a call as JSON, in arguments, or in a value."""
        tool, path = json_text.tool, position.path
        if self._tools and tool is None and path[:1] == ("arguments",):
            name = _NAME.match(json_text.text)
            tool, path = name[1] if name is not None else "", path[1:]
        try:
            return declared_at(self._document(tool), path)
        except SchemaError:  # of a reference that leads nowhere
            return Declared()

    def _create_document(self, name: str | None) -> Document:
        """Return the schema of a tool's arguments; of a call, or of a value, for None."""
        if name is not None:
            return Document(
                as_2020_12(offered_args(self._by_name[name], STEPS) if name in self._by_name else True)
            )
        if not self._tools:
            return Document(as_2020_12(self._schema))
        properties = {"name": {"enum": [*self._by_name]}, "arguments": {"type": "object"}}
        return Document({"type": "object", "properties": properties, "required": [*properties]})

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
        parsed = self._choice.tool_format.parse(text, self._tools)
        lines = [f"reasoning: {_start(parsed.reasoning)}"] if parsed.reasoning else []
        lines += [f"text: {_start(parsed.content)}"] if parsed.content.strip() else []
        if not isinstance(parsed, ToolCalls):
            return Judgement((*lines, "no call"))
        for call in parsed.calls:
            state = ", truncated, so it would not be executed" if call.truncated else ""
            arguments = _start(json.dumps(call.arguments, ensure_ascii=False))
            lines.append(f"a call of {call.name} with {arguments}{state}")
        lines += [f"a call that cannot be used: {invalid.error}" for invalid in parsed.invalid]
        usable = [call for call in parsed.calls if not call.truncated]
        errors: list[str] = []
        repaired = Judgement()
        for call in usable:
            found_errors = validate_call(call.as_call(), self._tools, steps=STEPS).errors
            errors += [error if len(usable) == 1 else f"{call.name}: {error}" for error in found_errors]
            if found_errors and not repaired.repaired:
                repaired = self._repaired(call.as_call())
        repairs = (*map(str, parsed.repairs), *repaired.repairs)
        validation = tuple(errors) if usable else None
        return replace(repaired, calls=tuple(lines), validation=validation, repairs=repairs)

    def _parsed(self, text: str) -> Judgement:
        """Return what the reader of text tool calls makes of a text that is not JSON."""
        parsed = parse_tool_calls(text, self._tools)
        if not isinstance(parsed, ToolCalls) or not parsed.calls:
            return Judgement()
        call = parsed.calls[0]
        read = tuple(str(repair) for repair in parsed.repairs)
        if call.truncated:
            return Judgement(repairs=(*read, "the call is truncated, so it would not be executed"))
        repaired = self._repaired(call.as_call(), is_new=True)
        return replace(repaired, repairs=(*read, *repaired.repairs))

    def _repaired(self, call: dict[str, Any], *, is_new: bool = False) -> Judgement:
        """Return the repair of a call; nothing of one that needs none, unless the text does not show it."""
        result = repair_call(call, self._tools, steps=STEPS)
        if not result.coercions and not is_new:
            return Judgement()
        written = json.dumps(result.call, ensure_ascii=False, indent=2)
        return Judgement(
            repairs=tuple(map(str, result.coercions)),
            repaired=written,
            repaired_validation=result.validation.errors,
        )

    def _schema_errors(self, value: Any) -> Iterator[str]:
        from gbnf.schema.validators import schema_validator  # noqa: PLC0415  # only a complete text needs it

        try:
            with limit_work(MAX_VALIDATION_WORK, may_backtrack=True):
                for number, error in enumerate(schema_validator(self._schema).iter_errors(value)):
                    if number == _MOST_EXPECTED:
                        yield "and more"
                        return
                    path = "".join(f"/{step}" for step in error.absolute_path)
                    yield f"{path or 'the value'}: {error.message[:300]}"
        except (WorkLimitError, RecursionError):
            yield "the value takes too much work to be judged"


def _start(text: str) -> str:
    return clip(" ".join(text.split()), 200)
