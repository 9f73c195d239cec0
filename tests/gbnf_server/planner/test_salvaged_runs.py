"""A run without an answer of its own: what becomes of its results, with both drivers and by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gbnf.errors import GbnfError
from gbnf_server.planner import ModelCalled, SalvageStarted
from gbnf_server.planner.events import CallModel
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.system.errors import BackendUnreachableError, ContextOverflowError, ExecutorError
from support.by_hand import NOW, POOL, Driven, call, completion, drive_by_hand, resolved

TIME = {"time": "10:32"}
SALVAGE = resolved(salvage=True, max_steps=2, max_blocked=1)


def driven(*texts: Any, options: ResolvedOptions = SALVAGE, **more: Any) -> Driven:
    given = [text if isinstance(text, GbnfError) else completion(text) for text in texts]
    return drive_by_hand(POOL, given, replies=[TIME], options=options, **more)


@pytest.mark.parametrize(
    ("second", "ended"),
    [
        ("nonsense", "blocked"),
        (call("create_dirs", paths=["a"]), "exhausted"),
        (ContextOverflowError(9, 8), "failed"),
    ],
)
def test_however_a_run_ends_its_results_are_kept(second: Any, ended: str) -> None:
    found = driven(NOW, second, "It is 10:32 [1].")
    assert (found.run.outcome, found.run.answer) == ("salvaged", "It is 10:32 [1].")
    [started] = found.of(SalvageStarted)
    assert (started.ended, started.error) == (ended, found.run.error)
    assert found.run.salvage is not None
    assert (found.run.salvage.by, found.run.salvage.steps) == ("model", started.steps[:1])


def test_the_question_has_the_results_and_no_tools() -> None:
    found = driven(NOW, "nonsense", "It is late.")
    asked = found.of(CallModel)[-1]
    [message] = asked.request.messages
    assert (asked.purpose, message["role"]) == ("salvage", "user")
    assert '"10:32"' in message["content"]
    assert not [tool.name for tool in POOL if f"{tool.name}(" in message["content"]]
    assert "tool" not in message["content"]
    assert asked.request.grammar is not None
    freely: list[dict[str, Any]] = [{"call_format": "json", "constrained": False}, {"dialect": "json_schema"}]
    for more in freely:
        free = driven(NOW, "nonsense", "It is late.", options=replace(SALVAGE, **more))
        assert free.of(CallModel)[-1].request.grammar is None
    # it is counted with the rest
    assert found.run.completion_tokens == 3 * 7
    assert [event.purpose for event in found.of(ModelCalled)] == ["call", "call", "salvage"]
    assert len(found.run.steps) == 2


@pytest.mark.parametrize(
    ("texts", "more"),
    [
        (["nonsense", "an answer"], {}),
        ([NOW, "nonsense", "an answer"], {"options": replace(SALVAGE, salvage=False)}),
        ([BackendUnreachableError("gone")], {}),
    ],
    ids=["no results", "turned off", "no model"],
)
def test_otherwise_the_run_ends_with_the_error(texts: list[Any], more: dict[str, Any]) -> None:
    run = driven(*texts, **more).run
    assert run.outcome in {"blocked", "failed"}
    assert (run.answer, run.salvage) == (None, None)


def test_what_waits_for_approval_is_not_talked_over() -> None:
    texts = [NOW, call("delete_files", paths=["a.txt"])]
    nobody = ExecutorError("nobody is there")
    for said, outcome in ((nobody, "exhausted"), (False, "salvaged")):
        assert driven(*texts, query="what time is it? delete a.txt", approvals=[said]).run.outcome == outcome


@pytest.mark.parametrize(
    ("fault", "asked", "error"),
    [
        (BackendUnreachableError("gone"), 2, "error: the server is gone"),
        (ContextOverflowError(9, 8), 3, "error: the messages"),
    ],
)
def test_if_salvaging_fails_the_answer_is_the_result(fault: GbnfError, asked: int, error: str) -> None:
    found = driven(NOW, fault)
    assert (found.run.outcome, len(found.of(CallModel))) == ("salvaged", asked)
    assert found.run.answer == "10:32"
    assert found.run.salvage is not None
    assert found.run.salvage.error.startswith(error)


@pytest.mark.parametrize(
    ("language", "answer_from_results", "asked"),
    [
        *((tag, "Prima di fermarsi", "La richiesta era") for tag in ("it", "it-IT", "it_CH")),
        *((tag, "This was done", "The request was") for tag in ("en-GB", "item", "de")),
    ],
)
def test_salvaged_answers_are_in_the_language_of_the_run(
    language: str, answer_from_results: str, asked: str
) -> None:
    found = driven(
        NOW,
        call("create_dirs", paths=["a"]),
        BackendUnreachableError("gone"),
        options=replace(SALVAGE, language=language),
    )
    assert str(found.run.answer).startswith(answer_from_results)
    talked = driven(NOW, "nonsense", "It is 10:32 [1].", options=replace(SALVAGE, language=language))
    assert talked.of(CallModel)[-1].request.messages[0]["content"].startswith(asked)
