"""An output contract: named fields, each on its own line, with prompt, grammar and parser."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from gbnf.calls.parsing.tool_names import fold
from gbnf.compiler.grammar import Grammar
from gbnf.compiler.rules import RuleTable, Scope
from gbnf.contracts.fields import ChoiceField, Field, FieldError, LinesField, TextField
from gbnf.contracts.line_text import strip_markup, unwrap_answer
from gbnf.errors import InvalidArgumentError
from gbnf.grammar.ir import Expr, Literal, Rules, seq
from gbnf.grammar.passes import run_passes
from gbnf.tools.tool import supported_language


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """The values of an answer by field. `notes` list what was left out or moved, in one line each."""

    values: Mapping[str, Any]
    raw: str
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


@dataclass(frozen=True, slots=True)
class InvalidAnswer:
    """An answer that breaks the contract: the raw text, the reason, and the field that fails."""

    raw: str
    reason: str
    field: str


ParseOutcome: TypeAlias = ParsedAnswer | InvalidAnswer

_HEAD = {
    "en": ("Answer with {count}, in this order and nothing else. Put your own words in place of each <…>:"),
    "it": ("Rispondi con {count}, in quest'ordine e nient'altro. Metti parole tue al posto di ogni <…>:"),
}
_COUNTS = {
    "en": ("exactly one line", "exactly {} lines", "at least {} lines"),
    "it": ("esattamente una riga", "esattamente {} righe", "almeno {} righe"),
}
_REST = {"en": "(as many lines as you need)", "it": "(quante righe servono)"}
_PLACEHOLDER = re.compile(r"<[^<>]*[^<>\s=-]>")
_PREAMBLE = re.compile(
    r"(?:sure|ok|okay|certainly|of course|here|below|(?:my|the|final)? ?answer|certo|va bene|ecco|di seguito|"
    r"(?:la )?(?:mia )?risposta)\b.*:",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"(\d{1,2})[.):][ \t]+")


class Contract:
    """The fields of an answer, in order: `Contract(best=pick(3), reason=text())`.

    Names become placeholders in the prompt. Raises InvalidArgumentError without fields, or if text with
    `rest` is not the last field.
    """

    def __init__(self, **fields: Field) -> None:
        """Declare the fields."""
        if not fields:
            raise InvalidArgumentError("a contract needs fields: give at least one, such as text()")
        self.fields: dict[str, Field] = dict(fields)
        for name in list(fields)[:-1]:
            field = fields[name]
            if isinstance(field, TextField) and field.rest:
                raise InvalidArgumentError(
                    f"the field {name!r} takes the rest of the answer: make it the last"
                )

    def prompt(self, language: str = "en") -> str:
        """Return the section of a prompt that says how to answer, with placeholders and no sample answer."""
        language = supported_language(language, _HEAD)
        placeholder_lines = [
            line
            for name, field in self.fields.items()
            for line in field.placeholder_lines(_label(name), language)
        ]
        one, many, least = _COUNTS[language]
        last = list(self.fields.values())[-1]
        takes_rest = isinstance(last, TextField) and last.rest
        count = (least if takes_rest else one if len(placeholder_lines) == 1 else many).format(
            len(placeholder_lines)
        )
        if takes_rest:
            placeholder_lines[-1] = f"{placeholder_lines[-1]} {_REST[language]}"
        return "\n".join([_HEAD[language].format(count=count), "", *placeholder_lines])

    @cached_property
    def grammar(self) -> Grammar:
        """The grammar of the answers."""
        table = RuleTable(frozenset())
        root = table.reserve("root")
        parts: list[Expr] = []
        for number, field in enumerate(self.fields.values(), 1):
            scope = Scope(table, (f"field{number}",))
            parts += [Literal("\n"), scope.add("", field.expr(scope))]
        table.define(root, seq(*parts[1:]))
        return Grammar(run_passes(Rules(table.productions)))

    def render(self, values: Mapping[str, Any]) -> str:
        """Return the answer with these values, as the grammar spells it.

        Raises InvalidArgumentError for a value that the grammar cannot spell: one out of its range or list, a
        line that begins like a list or contains a tag, a number that rounding moves out of its range.
        """
        return "\n".join(line for name, field in self.fields.items() for line in field.render(values[name]))

    def parse(self, text: str, *, truncated: bool = False, constrained: bool = False) -> ParseOutcome:
        """Parse an answer. Never raises.

        `truncated`: the token limit ended it, so its last line is dropped. `constrained`: the grammar was
        enforced, so each line is a field's; otherwise lines before the answer and labels on lines of their
        own are left out.
        """
        notes: list[str] = []
        answer_lines = [line.rstrip("\r") for line in unwrap_answer(text, notes).split("\n")]
        if truncated:
            notes.append("left out the last line, which was truncated")
            answer_lines = answer_lines[:-1]
        plain = _AnswerParser(self, text, answer_lines, list(notes), lenient=False).outcome()
        if constrained:
            return plain
        outcome = _AnswerParser(self, text, answer_lines, notes, lenient=True).outcome()
        return plain if isinstance(outcome, InvalidAnswer) and isinstance(plain, ParsedAnswer) else outcome


class _AnswerParser:
    def __init__(
        self, contract: Contract, raw: str, answer_lines: list[str], notes: list[str], *, lenient: bool
    ) -> None:
        self._fields, self._raw, self._notes, self._lenient = contract.fields, raw, notes, lenient
        self._whole = answer_lines
        self._lines = [(index, line) for index, line in enumerate(answer_lines) if strip_markup(line)]

    def outcome(self) -> ParseOutcome:
        values: dict[str, Any] = {}
        needed = sum(field.count if isinstance(field, LinesField) else 1 for field in self._fields.values())
        if self._lenient:
            self._skip_preamble(needed)
        for name, field in self._fields.items():
            try:
                if self._lenient:
                    self._skip_bare_label(name, field, needed)
                values[name] = self._read(name, field)
            except FieldError as reason:
                return InvalidAnswer(self._raw, f"{name}: {reason}", name)
            needed -= field.count if isinstance(field, LinesField) else 1
        if self._lines:
            self._notes.append(f"left out {len(self._lines)} lines at the end")
        return ParsedAnswer(values, self._raw, tuple(self._notes))

    def _skip_preamble(self, needed: int) -> None:
        """Skip lines that are no value of the first field; before text, only `Here is my answer:`.

        A title may end in a colon too, and nothing is skipped before a text that is the whole answer.
        """
        name, first = next(iter(self._fields.items()))
        if len(self._fields) == 1 and isinstance(first, TextField) and first.rest:
            return
        skipped = 0
        while len(self._lines) > needed:
            line = self._lines[0][1].strip()
            if isinstance(first, TextField | LinesField):
                if skipped or not _PREAMBLE.fullmatch(line):
                    break
            elif self._answers(first, name, line):
                break
            self._lines.pop(0)
            skipped += 1
        if skipped:
            self._notes.append(f"left out {skipped} lines before the answer")

    def _answers(self, field: Field, name: str, line: str) -> bool:
        try:
            field.read(_field_text(line, name, field), [])
        except FieldError:
            return False
        return True

    def _skip_bare_label(self, name: str, field: Field, needed: int) -> None:
        """Skip `Reason:` on a line of its own, unless it is an option with the name of its field."""
        if len(self._lines) <= needed:
            return
        line = strip_markup(self._lines[0][1])
        if _is_label(line.rstrip(":*_ "), name) and not (isinstance(field, ChoiceField) and field.has(line)):
            self._lines.pop(0)

    def _read(self, name: str, field: Field) -> Any:
        if isinstance(field, LinesField):
            return self._read_lines(name, field)
        if isinstance(field, TextField) and field.rest and self._lines:
            index = self._lines[0][0]
            self._lines = []
            return _no_placeholder(_unlabelled("\n".join(self._whole[index:]).strip(), name))
        _, line = self._next(name)
        return field.read(_no_placeholder(_field_text(line, name, field)), self._notes)

    def _read_lines(self, name: str, field: LinesField) -> list[str]:
        if len(self._lines) < field.count:
            raise FieldError(f"there are {len(self._lines)} lines and not {field.count}")
        answer_lines = [strip_markup(self._next(name)[1]) for _ in range(field.count)]
        numbers = [_NUMBERED.match(line) for line in answer_lines]
        if field.count > 1 and all(
            found and int(found[1]) == number and found.end() < len(line)
            for number, (found, line) in enumerate(zip(numbers, answer_lines, strict=True), 1)
        ):
            self._notes.append("left out the numbers of the lines")
            answer_lines = [
                line[found.end() :] for line, found in zip(answer_lines, numbers, strict=True) if found
            ]
        return [field.read(_no_placeholder(line), self._notes) for line in answer_lines]

    def _next(self, name: str) -> tuple[int, str]:
        if not self._lines:
            raise FieldError(f"the answer ends before its <{_label(name)}>")
        return self._lines.pop(0)


def _field_text(line: str, name: str, field: Field) -> str:
    """Return a line without its markup and label, unless an option begins like the label."""
    plain = strip_markup(line)
    if isinstance(field, ChoiceField) and field.has(plain):
        return plain
    return strip_markup(_unlabelled(plain, name))


def _no_placeholder(line: str) -> str:
    """Return the line. Raises FieldError for a copied placeholder."""
    if _PLACEHOLDER.fullmatch(line):
        raise FieldError(f"the placeholder {line!r} was copied")
    return line


def _label(name: str) -> str:
    return name.replace("_", " ")


def _is_label(text: str, name: str) -> bool:
    return bool(fold(name)) and fold(text) == fold(name)


def _unlabelled(line: str, name: str) -> str:
    """Return `Reason: it rhymes` without the label; a label without text is kept."""
    label, colon, rest = line.partition(":")
    return rest.strip() if colon and rest.strip() and _is_label(label, name) else line
