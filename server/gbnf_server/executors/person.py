"""The person who answers questions: at the terminal, by answers given in advance, or absent.

Invariants: an answer is checked by one function, `check_answer`, whoever gives it; text from a model is shown
without control characters, so that it cannot change what the person sees; credentials are not echoed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, assert_never, get_args

from gbnf.surrogates import replace_lone_surrogates
from gbnf_server.executors.call_paths import describe_paths
from gbnf_server.executors.workspace import Workspace
from gbnf_server.system.errors import ExecutorError

if TYPE_CHECKING:
    from rich.console import Console

FieldKind = Literal[
    "text",
    "credentials",
    "yes_no",
    "choice",
    "choice_with_preview",
    "multi_choice",
    "number",
    "date",
    "file_path",
    "location",
]

FIELD_KINDS: tuple[FieldKind, ...] = get_args(FieldKind)

_Value = TypeVar("_Value")
_CHOICES = ("choice", "choice_with_preview", "multi_choice")
_PREVIEW_BYTES = 64 * 1024
_PREVIEW_LINES = 5
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
"""Control characters, halves of surrogate pairs, and what changes the direction of writing."""


@dataclass(frozen=True, slots=True)
class Field:
    """One question. `var` names the answer in the result; only the kinds of choice have `options`."""

    var: str
    prompt: str
    kind: FieldKind
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in FIELD_KINDS:
            raise ExecutorError(
                f"field '{self.var}': '{self.kind}' is not a kind of field; use {', '.join(FIELD_KINDS)}"
            )
        if self.kind in _CHOICES and not self.options:
            raise ExecutorError(
                f"field '{self.var}' has no options: give 'options', or 'from_step' of a step with entries"
            )


@dataclass(frozen=True, slots=True)
class Form:
    """A title and its questions, in order."""

    title: str
    fields: tuple[Field, ...]


NOBODY_ANSWERS = "there is nobody to answer"
"""How the error of a question begins if there is nobody to ask."""


class Person(Protocol):
    """Someone to ask. Both methods raise `ExecutorError` if nobody answers, or the person cancels.

    A class that derives from this one has no `approve` of its own if only executors ask it.
    """

    def answer(self, form: Form) -> dict[str, Any]:
        """Return a validated value for each field's `var`."""

    def approve(self, call: Mapping[str, Any]) -> bool:
        """Return whether the call may be executed."""
        raise ExecutorError(f"'{call.get('name')}': approval is asked before an executor runs, not by it")


class TerminalPerson:
    """The person at the terminal, asked with rich's prompts until the answer fits its field.

    `workspace` gives the previews, tells whether a file path is allowed, and what is at the paths of a call
    to be approved; `approve_all` answers every request for approval with yes.
    """

    def __init__(
        self,
        *,
        console: Console | None = None,
        workspace: Workspace | None = None,
        approve_all: bool = False,
    ) -> None:
        from rich.console import Console  # noqa: PLC0415  # only a terminal needs rich

        self._console = console or Console(stderr=True)
        self._workspace = workspace
        self._approve_all = approve_all

    def answer(self, form: Form) -> dict[str, Any]:
        """Return a validated value for each field's `var`."""
        self._print(form.title, style="bold")
        return {field.var: self._ask(field) for field in form.fields}

    def approve(self, call: Mapping[str, Any]) -> bool:
        """Return whether the call may be executed."""
        if self._approve_all:
            return True
        self._print(f"{call.get('name')} wants to run with")
        arguments = call.get("arguments", {})
        self._print(json.dumps(arguments, ensure_ascii=False, indent=2))
        for line in describe_paths(arguments, self._workspace) if self._workspace else ():
            self._print(line)
        return self._until_valid("Allow it? [y/N] ", lambda typed: _yes_no(typed or "no"))

    def _ask(self, field: Field) -> Any:
        for number, option in enumerate(field.options, start=1):
            self._print(f"  {number}. {option}")
            if field.kind == "choice_with_preview":
                self._print(self._preview(option), style="dim")
        hint = _HINTS.get(field.kind, "").format(len(field.options))
        is_hidden = field.kind == "credentials"
        return self._until_valid(
            f"{field.prompt}{hint}: ", lambda typed: check_answer(field, typed, self._workspace), is_hidden
        )

    def _until_valid(self, prompt: str, read: Callable[[str], _Value], hidden: bool = False) -> _Value:
        """Ask until `read` accepts what is typed."""
        while True:
            try:
                return read(self._input(prompt, hidden=hidden))
            except ValueError as error:
                self._print(str(error), style="red")

    def _input(self, prompt: str, *, hidden: bool = False) -> str:
        from rich.text import Text  # noqa: PLC0415  # as above

        try:
            return self._console.input(Text(replace_control_characters(prompt)), password=hidden).strip()
        except EOFError:
            raise ExecutorError("the person closed the input without an answer") from None

    def _print(self, text: str, style: str | None = None) -> None:
        self._console.print(replace_control_characters(text), style=style, markup=False, highlight=False)

    def _preview(self, option: str) -> str:
        """Print the first lines of the file that an option names, if it does."""
        if self._workspace is None:
            return ""
        try:
            text = self._workspace.read(option, limit=_PREVIEW_BYTES).decode()
        except (ExecutorError, UnicodeDecodeError):
            return ""
        return "\n".join(f"     {line[:100]}" for line in text.splitlines()[:_PREVIEW_LINES])


class ScriptedPerson:
    """Answers given in advance, by field name. Missing or invalid ones raise `ExecutorError`.

    `approvals` is one answer for every call, or a function of the call.
    """

    def __init__(
        self,
        answers: Mapping[str, Any] | None = None,
        *,
        approvals: bool | Callable[[Mapping[str, Any]], bool] = True,
        workspace: Workspace | None = None,
    ) -> None:
        self._answers = dict(answers or {})
        self._approvals = approvals
        self._workspace = workspace
        self.asked: list[Form] = []

    def answer(self, form: Form) -> dict[str, Any]:
        """Return a validated value for each field's `var`."""
        self.asked.append(form)
        return {field.var: self._value(field) for field in form.fields}

    def approve(self, call: Mapping[str, Any]) -> bool:
        """Return whether the call may be executed."""
        return self._approvals if isinstance(self._approvals, bool) else self._approvals(call)

    def _value(self, field: Field) -> Any:
        if field.var not in self._answers:
            raise ExecutorError(f"there is no scripted answer for '{field.var}' ({field.prompt})")
        try:
            return check_answer(field, self._answers[field.var], self._workspace)
        except ValueError as error:
            raise ExecutorError(f"the scripted answer for '{field.var}': {error}") from None


class AbsentPerson:
    """Nobody to ask: questions raise `ExecutorError`, and approvals, too, unless `approve_all`."""

    def __init__(self, *, approve_all: bool = False) -> None:
        self._approve_all = approve_all

    def answer(self, form: Form) -> dict[str, Any]:
        """Return a validated value for each field's `var`."""
        names = ", ".join(f"'{field.var}'" for field in form.fields)
        title = form.title.partition("\n")[0]
        raise ExecutorError(f"{NOBODY_ANSWERS} {names} of '{title}': run at a terminal")

    def approve(self, call: Mapping[str, Any]) -> bool:
        """Return whether the call may be executed."""
        del call  # small models copy the error, and write another name into it
        if self._approve_all:
            return True
        raise ExecutorError(
            "the call requires approval, and there is nobody to ask: "
            "run at a terminal, or approve calls in advance"
        )


def check_answer(field: Field, answer: Any, workspace: Workspace | None = None) -> Any:
    """Parse an answer: text as typed, or a value of the right type.

    text, credentials, location: str; yes_no: bool; choice, choice_with_preview: str, by number or by text;
    multi_choice: list of str, numbers or texts separated by commas; number: int or float; date: str,
    YYYY-MM-DD; file_path: str, inside the workspace. Raises ValueError with what was expected.
    """
    match field.kind:
        case "text" | "location":
            return _text(answer)
        case "credentials":
            if not isinstance(answer, str) or not answer:
                raise ValueError("an answer is required")
            return answer
        case "yes_no":
            return answer if isinstance(answer, bool) else _yes_no(_text(answer))
        case "choice" | "choice_with_preview":
            return _choice(field.options, answer)
        case "multi_choice":
            return _choices(field.options, answer)
        case "number":
            return _number(answer)
        case "date":
            return _date(answer)
        case "file_path":
            path = _text(answer)
            if workspace is None:
                return path
            try:
                return workspace.relative(workspace.resolve(path))
            except ExecutorError as error:
                raise ValueError(str(error)) from None
        case _:
            assert_never(field.kind)


def replace_control_characters(text: str) -> str:
    """Replace control and direction-changing characters, except line breaks and tabs."""
    return _UNSEEN.sub("\ufffd", text)


def _text(answer: Any) -> str:
    if not isinstance(answer, str) or not answer.strip():
        raise ValueError("an answer is required")
    return replace_lone_surrogates(answer).strip()


def _yes_no(text: str) -> bool:
    answer = text.casefold()
    if answer in {"y", "yes", "true", "s", "si", "sì"}:
        return True
    if answer in {"n", "no", "false"}:
        return False
    raise ValueError(f"'{text}': answer yes or no")


def _choice(options: Sequence[str], answer: Any) -> str:
    if answer in options:
        return str(answer)
    text = str(answer).strip()
    # isascii: "²" is a digit for Python, but not a number
    if text.isascii() and text.isdecimal() and 1 <= int(text) <= len(options):
        return options[int(text) - 1]
    same = [option for option in options if option.casefold() == text.casefold()]
    if len(same) == 1:
        return same[0]
    raise ValueError(f"'{text}': answer with a number from 1 to {len(options)}, or one of the options")


def _choices(options: Sequence[str], answer: Any) -> list[str]:
    if isinstance(answer, str):
        answer = (
            [answer] if answer in options else [part for part in re.split(r"\s*,\s*", answer.strip()) if part]
        )
    if not isinstance(answer, (list, tuple)):
        answer = [answer]
    return list(dict.fromkeys(_choice(options, part) for part in answer))


def _number(answer: Any) -> int | float:
    if isinstance(answer, (int, float)) and not isinstance(answer, bool):
        value: int | float = answer
    else:
        text = _text(answer)
        # 3,5 is a number in many languages; 1,234 is ambiguous: three digits after a comma are refused
        if re.fullmatch(r"[-+]?\d+,(\d{1,2}|\d{4,})", text):
            text = text.replace(",", ".")
        if not re.fullmatch(r"[-+]?(\d{1,300}|(\d+\.\d*|\.\d+|\d+)([eE][-+]?\d+)?)", text, re.ASCII):
            raise ValueError(f"'{text}': answer with a number such as 12 or 3.5")
        value = int(text) if re.fullmatch(r"[-+]?\d+", text) and len(text) <= 300 else float(text)
    if not math.isfinite(value):
        raise ValueError(f"'{answer}': answer with a finite number")
    return value


def _date(answer: Any) -> str:
    text = _text(answer)
    try:
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
            raise ValueError  # noqa: TRY301  # both faults have one message
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ValueError(f"'{text}': answer with a date such as 2026-11-21") from None


_HINTS: dict[FieldKind, str] = {
    "yes_no": " [y/n]",
    "choice": " [1-{}]",
    "choice_with_preview": " [1-{}]",
    "multi_choice": " [1-{}, several with commas]",
    "date": " [YYYY-MM-DD]",
    "file_path": " [path in the workspace]",
}
"""What the prompt of a kind adds; `{}` is the number of its options."""
