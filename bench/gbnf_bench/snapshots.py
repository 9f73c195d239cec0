"""Create the initial state of a case in a folder, and take a snapshot of the state after a run.

A `Snapshot` contains what a person would see: files, folders, events, messages. It is JSON and stored with
the run, so that the run can be scored again. Executors get no environment variables: no mail server, no
token.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from email import message_from_bytes, policy
from email.utils import getaddresses
from pathlib import Path
from typing import Any

from gbnf.tools import Tool
from gbnf_bench.cases import Case, PersonScript
from gbnf_server.executors import (
    STATE_FOLDER,
    Context,
    Field,
    ScriptedPerson,
    Workspace,
    calendar_file,
    check_answer,
    run_executor,
)
from gbnf_server.system.errors import ExecutorError, SetupError

OUTBOX = "outbox"
_KEPT_CHARACTERS = 20_000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The workspace's content, calendar and outbox parsed.

    `files`: path -> text, without line breaks at its end; bytes that are not UTF-8 are replaced. A calendar
    or message that cannot be parsed is listed as a file. `events` have title, start, end and location, with
    local times; `messages` have to (bare addresses), subject, body.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    folders: Sequence[str] = ()
    events: Sequence[Mapping[str, str]] = ()
    messages: Sequence[Mapping[str, Any]] = ()


class CasePerson(ScriptedPerson):
    """Answer by a field's name, else by its kind; for a choice, select the scripted option.

    A question without an answer is an `ExecutorError`, which the model reads.
    """

    def __init__(self, script: PersonScript, workspace: Workspace) -> None:
        super().__init__(approvals=script.approve, workspace=workspace)
        self._script = script

    def _value(self, field: Field) -> Any:
        try:
            return check_answer(field, self._given(field), self._workspace)
        except ValueError as error:
            raise ExecutorError(f"the person cannot answer '{field.var}': {error}") from None

    def _given(self, field: Field) -> Any:
        for key in (field.var, field.kind):
            if key in self._script.answers:
                return self._script.answers[key]
        if field.options:
            choice = field.options[min(self._script.choose, len(field.options)) - 1]
            return [choice] if field.kind == "multi_choice" else choice
        raise ExecutorError(f"the person has no answer to '{field.prompt}'")


def make_case_context(case: Case, root: Path, tools: Mapping[str, Tool]) -> Context:
    """Return a context with the case's initial state in the folder `root`, its person and its clock.

    `tools` are those of the earlier calls of the case. Raises SetupError if the state cannot be made.
    """
    workspace = Workspace(root)
    context = Context(
        workspace,
        person=CasePerson(case.script, workspace),
        settings={"GBNF_TIMEZONE": str(case.now.tzinfo), "GBNF_USER_EMAIL": case.user_email},
        clock=lambda: case.now,
    )
    before = case.before
    for folder in before.folders:
        _inside(root, folder).mkdir(parents=True, exist_ok=True)
    for path, text in before.files.items():
        file = _inside(root, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    if before.events:
        calendar = calendar_file.load(workspace)
        for event in before.events:
            start, end = (_moment(event[key], case.now) for key in ("start", "end"))
            calendar_file.add(calendar, event["title"], start, end, event.get("location", ""), case.now)
        (root / calendar_file.FILE).write_bytes(calendar_file.dump(calendar))
    earlier = context.for_turn("earlier")
    for number, call in enumerate(before.calls, 1):
        try:
            run_executor(tools[call["name"]], call.get("arguments", {}), earlier)
        except ExecutorError as error:
            raise SetupError(f"case {case.id}: before.calls[{number}], {call['name']}: {error}") from None
    return context


def snapshot(context: Context) -> Snapshot:
    """Return the current content of the context's workspace, without the runtime's own folder."""
    root = context.workspace.root
    files: dict[str, str] = {}
    folders: list[str] = []
    messages: list[dict[str, Any]] = []
    events = _events(context)
    for here, below, names in os.walk(root):
        below[:] = sorted(name for name in below if not (name == STATE_FOLDER and here == str(root)))
        folders += [_relative(root, here, name) for name in below]
        for name in sorted(names):
            path = _relative(root, here, name)
            data = Path(here, name).read_bytes() if Path(here, name).is_file() else b""
            in_outbox = path.startswith(f"{OUTBOX}/") and path.endswith(".eml")
            if in_outbox and (message := _message(data)) is not None:
                messages.append(message)
            elif path != calendar_file.FILE or events is None:
                files[path] = data.decode(errors="replace").rstrip("\r\n")[:_KEPT_CHARACTERS]
    return Snapshot(files, [folder for folder in folders if folder != OUTBOX], events or [], messages)


def _inside(root: Path, path: str) -> Path:
    parts = path.split("/")
    if path.startswith("/") or ".." in parts:
        raise SetupError(f"the case's world names {path!r}: give a path that stays in the workspace")
    return root.joinpath(*parts)


def _relative(root: Path, here: str, name: str) -> str:
    return Path(here, name).relative_to(root).as_posix()


def _moment(text: str, now: datetime) -> calendar_file.Moment:
    if "T" not in text:
        return date.fromisoformat(text)
    return datetime.fromisoformat(text).replace(tzinfo=now.tzinfo)


def _events(context: Context) -> list[dict[str, str]] | None:
    """Return the calendar's events; None if its file is not a calendar."""
    try:
        events = [
            {
                "title": str(event.get("SUMMARY", "")),
                "start": _local(event["DTSTART"].dt, context),
                "end": _local(event.get("DTEND", event["DTSTART"]).dt, context),
                "location": str(event.get("LOCATION", "")),
            }
            for event in calendar_file.load(context.workspace).walk("VEVENT")
        ]
    except Exception:  # noqa: BLE001  # icalendar's errors are many, and a model can write anything
        return None
    return sorted(events, key=lambda item: (item["start"], item["title"]))


def _local(moment: calendar_file.Moment, context: Context) -> str:
    if not isinstance(moment, datetime):
        return moment.isoformat()
    if moment.tzinfo is not None:
        moment = moment.astimezone(context.timezone)
    return f"{moment:%Y-%m-%dT%H:%M}"


def _message(data: bytes) -> dict[str, Any] | None:
    """Return the parsed message; None if its file is not a readable message."""
    try:
        message = message_from_bytes(data, policy=policy.default)
        body = message.get_body(("plain",))
        return {
            "to": [address for _, address in getaddresses(message.get_all("To", []))],
            "subject": str(message["Subject"]),
            "body": body.get_content().replace("\r\n", "\n").strip() if body is not None else "",
        }
    except Exception:  # noqa: BLE001  # the parser raises whatever it stumbles over
        return None
