"""The clock, the zone and the settings that an executor sees."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gbnf_server.executors import AbsentPerson, Context, Field, Form, Workspace
from gbnf_server.executors.context import machine_timezone
from gbnf_server.system.errors import ExecutorError
from support.executors import ROME, SATURDAY, world


def test_now_is_aware_and_in_the_persons_zone(tmp_path: Path) -> None:
    assert world(tmp_path).now() == SATURDAY
    assert world(tmp_path).timezone is ROME
    context = world(
        tmp_path, now=datetime(2026, 7, 1, 12, tzinfo=UTC), settings={"GBNF_TIMEZONE": "Asia/Tokyo"}
    )
    assert context.now().isoformat() == "2026-07-01T21:00:00+09:00"
    assert Context(Workspace(tmp_path)).now().tzinfo is not None


def test_a_zone_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match="GBNF_TIMEZONE is 'Rome'"):
        world(tmp_path, settings={"GBNF_TIMEZONE": "Rome"}).now()


@pytest.mark.parametrize(
    ("tz", "key"), [(":Asia/Tokyo", "Asia/Tokyo"), ("Etc/UTC", "UTC"), ("nonsense", "UTC"), ("../x", "UTC")]
)
def test_the_machines_zone(monkeypatch: pytest.MonkeyPatch, tz: str, key: str) -> None:
    monkeypatch.setenv("TZ", tz)
    assert machine_timezone().key == key


def test_settings_are_the_projects_part_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GBNF_USER_EMAIL", "anna@example.org")
    monkeypatch.setenv("OTHER", "x")
    context = Context(Workspace(tmp_path))
    assert context.user_email == "anna@example.org"
    assert "OTHER" not in context.settings
    assert world(tmp_path).user_email == "me@localhost"


def test_every_run_has_a_turn_of_its_own(tmp_path: Path) -> None:
    context = Context(Workspace(tmp_path))
    assert len({context.turn, context.for_turn().turn, Context(Workspace(tmp_path)).turn}) == 3
    assert context.for_turn("x").turn == "x"


class Careless(AbsentPerson):
    def answer(self, form: Form) -> dict[str, Any]:
        return {"path": "../secret", "day": None}


@pytest.mark.parametrize(
    "field", [Field("path", "?", "file_path"), Field("day", "?", "date"), Field("x", "?", "text")]
)
def test_an_answer_is_checked_whoever_gives_it(tmp_path: Path, field: Field) -> None:
    with pytest.raises(ExecutorError, match="does not fit"):
        world(tmp_path, person=Careless()).ask(Form("F", (field,)))
