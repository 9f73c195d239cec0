"""The context of an executor: its environment, besides its arguments.

An executor reads the clock, the settings and the workspace from here, so that a test, or another runtime,
can replace them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from gbnf.errors import clip
from gbnf_server.executors.executed_files import MARKERS, is_executed, refusal
from gbnf_server.executors.journal import Change, Journal, Write
from gbnf_server.executors.person import AbsentPerson, Field, Form, Person, check_answer
from gbnf_server.executors.secrets import Secrets
from gbnf_server.executors.workspace import Workspace
from gbnf_server.system.errors import ExecutorError

_SHOWN = 8000  # characters of files that programs execute
_LONGEST_LIST = 1000  # characters of their names

SETTINGS_PREFIX = "GBNF_"
"""Environment variables with this prefix are the settings."""


COMMON_SETTINGS = frozenset({"GBNF_TIMEZONE", "GBNF_USER_EMAIL"})
"""Settings that every executor gets: the person's time zone and address."""


def settings_from_environment() -> dict[str, str]:
    """Return the settings in the environment."""
    return {name: value for name, value in os.environ.items() if name.startswith(SETTINGS_PREFIX)}


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """What the executors of one planner run use.

    `turn` identifies the run: undo works by turn. `settings` are the ``GBNF_`` variables of the environment;
    an executor sees those that its manifest names, and `COMMON_SETTINGS`. `clock` returns aware times in the
    person's time zone. `secrets` are the credentials that a person typed in this run. `tool` is the name of
    the executor that runs. Once `ended` is set, the call ends: an executor can neither change files nor ask.
    `on_output` gets what its process printed (stdout and stderr), once the call has ended: at most the last
    4,000 characters.
    """

    workspace: Workspace
    person: Person = field(default_factory=AbsentPerson)
    turn: str = field(default_factory=lambda: os.urandom(16).hex())
    settings: Mapping[str, str] = field(default_factory=settings_from_environment, repr=False)
    clock: Callable[[], datetime] | None = None
    secrets: Secrets = field(default_factory=Secrets, repr=False)
    tool: str = ""
    ended: threading.Event = field(default_factory=threading.Event, repr=False)
    on_output: Callable[[str], None] | None = field(default=None, repr=False)

    def now(self) -> datetime:
        """Return the current time, aware, in the person's time zone."""
        return (self.clock() if self.clock is not None else datetime.now(UTC)).astimezone(self.timezone)

    @property
    def timezone(self) -> ZoneInfo:
        """The person's zone: setting ``GBNF_TIMEZONE``, else the clock's, else the machine's."""
        named = self.settings.get("GBNF_TIMEZONE")
        if named:
            try:
                return ZoneInfo(named)
            except (KeyError, ValueError, OSError):
                raise ExecutorError(
                    f"GBNF_TIMEZONE is '{named}', which is not an IANA time zone such as Europe/Rome"
                ) from None
        zone = self.clock().tzinfo if self.clock is not None else None
        return zone if isinstance(zone, ZoneInfo) else machine_timezone()

    @property
    def user_email(self) -> str:
        """The address of the person who asks: setting ``GBNF_USER_EMAIL``."""
        return self.settings.get("GBNF_USER_EMAIL") or "me@localhost"

    def for_turn(self, turn: str | None = None) -> Context:
        """Return the same context for another planner run; `turn`: by default a new id."""
        return replace(self, turn=turn or os.urandom(16).hex(), secrets=Secrets())

    def ask(self, form: Form) -> dict[str, Any]:
        """Return the person's answers, validated again. Raises `ExecutorError`."""
        self.check_not_ended()
        values = self.person.answer(form)
        answers = {}
        for question in form.fields:
            try:
                answers[question.var] = check_answer(question, values.get(question.var), self.workspace)
            except ValueError as error:
                raise ExecutorError(f"the answer for '{question.var}' does not fit: {error}") from None
        return answers

    def answers(self, form: Form) -> dict[str, Any]:
        """Return the person's answers as given, and keep the credentials among them as this run's secrets."""
        values = self.person.answer(form)
        for question in form.fields:
            if question.kind == "credentials" and isinstance(value := values.get(question.var), str):
                self.secrets.keep(value, question.prompt)
        return values

    def secret(self, handle: str) -> str:
        """Return a credential that the person typed earlier in this run. Raises `ExecutorError` if unknown.

        `handle` stands for it in the conversation: "secret:" and random digits.
        """
        value = self.secrets.value(handle)
        if value is None:
            raise ExecutorError(
                f"'{handle}' is not the handle of a credential of this run. Request it with get_inputs, "
                "and use the handle that it returns."
            )
        return value

    def check_not_ended(self) -> None:
        """Raise `ExecutorError` if the call has ended: its time is up, or its run was cancelled."""
        if self.ended.is_set():
            raise ExecutorError(
                f"the call of '{self.tool}' has ended, so it can neither change files nor ask"
            )

    @property
    def journal(self) -> Journal:
        """The journal of the changes in the workspace, for undo."""
        return Journal(self.workspace, self.check_not_ended)

    def change(self, *changes: Change) -> None:
        """Make all of the changes or none, as one operation that can be undone. Raises `ExecutorError`.

        A person is asked before a file is written that programs execute (`executed_files`).
        """
        journal, approved = self.journal, self._approved(changes)
        with journal.locked():
            journal.apply(changes, turn=self.turn, tool=self.tool, action=lambda: None, approved=approved)

    def _approved(self, changes: Sequence[Change]) -> list[str]:
        """Return the paths that are written, once the person has approved those that programs execute."""
        workspace = self.workspace
        writes = {
            workspace.relative(workspace.resolve(change.path)): change.data
            for change in changes
            if isinstance(change, Write)
        }
        marked = {Path(path).parent for path in writes if Path(path).name in MARKERS} - {Path()}
        executed = [
            path
            for path in writes
            if is_executed(workspace.root, path) or not marked.isdisjoint(Path(path).parents)
        ]
        if not executed:
            return [*writes]
        named = clip(", ".join(map(repr, executed)), _LONGEST_LIST)
        texts = [f"{path}:\n{_shown(writes[path], _SHOWN // len(executed))}" for path in executed]
        allow = Field("allow", f"Allow it to write {named}, which programs execute?", "yes_no")
        form = Form("\n".join([f"{self.tool} writes", *texts]), (allow,))
        try:
            allowed = self.ask(form)["allow"]
        except ExecutorError as error:
            raise ExecutorError(f"{refusal(named)}: {error}") from None
        if not allowed:
            raise ExecutorError(f"{refusal(named)}, and the person did not")
        return [*writes]


def _shown(data: bytes, limit: int) -> str:
    """Return the begin and the end of what is written, and how much is between them."""
    text = data.decode(errors="replace")
    half = limit // 2
    if len(text) <= 2 * half:
        return text
    return f"{text[:half]}\n… {len(text) - 2 * half} characters are not shown …\n{text[-half:]}"


def machine_timezone() -> ZoneInfo:
    """Return the zone named by ``TZ``, else by the link ``/etc/localtime`` (localtime(5)), else UTC."""
    named = os.environ.get("TZ", "").removeprefix(":")
    if not named:
        _, separator, named = str(Path("/etc/localtime").resolve()).partition("zoneinfo/")
        named = named if separator else ""
    try:
        return ZoneInfo("UTC" if named in {"", "Etc/UTC", "Etc/UCT", "Etc/Zulu"} else named)
    except (KeyError, ValueError, OSError):
        return ZoneInfo("UTC")
