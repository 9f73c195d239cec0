"""What of a small model's call is written as its request says: its texts, its files and the call itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gbnf.tools import Tool
from gbnf_server.backends.base import Completion
from gbnf_server.planner.events import CallBlocked, ExecuteTool
from gbnf_server.planner.guidance import GUIDED
from support.by_hand import completion, drive_by_hand, resolved
from support.pools import BUNDLED
from support.small_models import FOLDER_CALL, FOLDER_REQUEST, LARGE, SMALL, drive, odds, written


def test_an_answer_that_proposes_a_call_makes_it() -> None:
    proposed = f"You can use this call:\n\n```json\n{json.dumps(FOLDER_CALL)}\n```\n\nIt makes a folder."
    texts: list[str | Completion] = [odds(-5), proposed, written(FOLDER_CALL), "Done: invoices."]
    options = {**SMALL, "gives_logprobs": True}
    driven = drive(FOLDER_REQUEST, *texts, options=options, replies=[{"entries": ["invoices"]}])
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["create_dirs"]
    assert driven.run.answer == "Done: invoices."


@pytest.mark.parametrize("options", [SMALL, LARGE])
@pytest.mark.parametrize(
    ("query", "call", "made"),
    [
        (FOLDER_REQUEST, FOLDER_CALL, True),
        (FOLDER_REQUEST, {"name": "create_dirs", "arguments": {"paths": "invoices"}}, True),
        (FOLDER_REQUEST, {"name": "create_folder", "arguments": {"paths": ["invoices"]}}, False),
    ],
)
def test_a_call_between_prose_is_one_of_a_small_model_only(
    options: Any, query: str, call: Any, made: bool
) -> None:
    text = f"I will make it:\n\n{written(call)}\n\nThen it is there."
    driven = drive(query, text, "Done: invoices.", options=options, replies=[{"entries": ["invoices"]}])
    made = made and options is SMALL
    assert [effect.arguments for effect in driven.of(ExecuteTool)] == [{"paths": ["invoices"]}] * made
    assert driven.run.answer == ("Done: invoices." if options is SMALL else text)


def test_only_the_file_that_a_request_names_is_deleted() -> None:
    find = {"name": "find_files", "arguments": {"base_path": "old", "pattern": "*.txt"}}
    files = ["old/draft.txt", "old/final.txt"]
    delete, referring, wrong = (
        {"name": "delete_files", "arguments": arguments}
        for arguments in ({"paths": files}, {"from_step": 1}, {"paths": files[1:]})
    )
    request, found = "delete old/draft.txt", [{"entries": files}, {}]
    ending = {"name": "final_answer", "arguments": {"message": "Gone."}}
    in_json = [json.dumps(find), json.dumps(referring), json.dumps(ending)]
    for driven in (
        drive(request, written(find), written(delete), "Gone.", replies=found),
        drive(request, *in_json, options={"guidance": GUIDED.in_prompt()}, replies=found),
    ):
        assert [effect.arguments for effect in driven.of(ExecuteTool)][1:] == [{"paths": files[:1]}]
        assert driven.run.outcome == "answered"
    driven = drive(request, written(find), written(wrong), *["It is not there."] * 5, replies=found)
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["find_files"]
    assert driven.of(CallBlocked)[0].error.startswith("the request is not about old/final.txt")
    again = [json.dumps(find), *[json.dumps(delete)] * 2, json.dumps(ending)]
    driven = drive(request, *again, options={"guidance": GUIDED.in_prompt()}, replies=found)
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["find_files", "delete_files"]
    assert [blocked.refusal for blocked in driven.of(CallBlocked)] == ["repeated"]


def test_a_call_that_is_invalid_without_other_files_is_refused() -> None:
    paths = {"type": "array", "items": {"type": "string"}, "minItems": 2}
    args = {"type": "object", "required": ["paths"], "properties": {"paths": paths}}
    merge = Tool.from_mapping(
        {
            "name": "delete_both",
            "description": {"en": "Delete files."},
            "args": args,
            "run": {"effect": "write"},
        }
    )
    files = ["old/a.txt", "old/b.txt"]
    find = {"name": "find_files", "arguments": {"base_path": "old", "pattern": "*.txt"}}
    calls = [find, {"name": "delete_both", "arguments": {"paths": files}}]
    texts = [*map(json.dumps, calls), json.dumps({"name": "final_answer", "arguments": {"message": "No."}})]
    driven = drive_by_hand(
        (*BUNDLED, merge),
        map(completion, texts),
        query="delete old/a.txt",
        options=resolved(guidance=GUIDED.in_prompt()),
        replies=[{"entries": files}],
    )
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["find_files"]
    assert [blocked.refusal for blocked in driven.of(CallBlocked)] == ["invalid"]


def test_what_was_read_is_mailed_after_a_folder_was_made() -> None:
    request_ = (
        "make a folder plans for the file plans/list.xml. "
        "Also read boat.xml for it, and email it to ann@example.com"
    )
    calls = [
        {"name": "read_files", "arguments": {"paths": ["boat.xml"]}},
        {"name": "create_dirs", "arguments": {"paths": ["plans/list.xml"]}},
        {
            "name": "send_messages",
            "arguments": {"to": ["ann@example.com"], "subject": "boat", "body": "I cannot help."},
        },
    ]
    replies = [{"entries": ["the oars are wet"]}, {"entries": ["plans"]}, {"sent_to": ["ann@example.com"]}]
    driven = drive(request_, *map(written, calls), "The oars are wet.", replies=replies)
    read, make, send = (effect.arguments for effect in driven.of(ExecuteTool))
    assert read == calls[0]["arguments"]
    assert make == {"paths": ["plans"]}
    assert send["body"] == "the oars are wet"


def test_a_path_is_completed_from_an_absolute_one_of_the_request() -> None:
    request_ = "/family/merit/north.txt can go, remove it"
    delete = {"name": "delete_files", "arguments": {"paths": ["north.txt"]}}
    driven = drive(request_, written(delete), "It is gone.", replies=[{"entries": []}])
    assert [effect.arguments for effect in driven.of(ExecuteTool)] == [{"paths": ["family/merit/north.txt"]}]


@pytest.mark.parametrize(
    ("query", "made"),
    [
        ("create the folder trips and write hello to trips/a.txt in it", ["trips"]),
        ("crea la cartella trips e scrivici ciao in trips/a.txt", ["trips"]),
        ("create the folder trips/a.txt", ["trips/a.txt", "trips"]),
    ],
)
def test_a_file_that_is_to_be_written_is_made_no_folder(query: str, made: list[str]) -> None:
    call = {"name": "create_dirs", "arguments": {"paths": ["trips/a.txt", "trips"]}}
    driven = drive(query, written(call), "Done.", "Done.", replies=[{"entries": made}])
    assert driven.of(ExecuteTool)[0].arguments == {"paths": made}
