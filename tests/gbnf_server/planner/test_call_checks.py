"""Which calls are refused: changes that the request does not ask for, and what is no value."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gbnf_server.planner.events import CallModel, ExecuteTool
from gbnf_server.planner.guidance import GUIDED
from gbnf_server.system.errors import ExecutorError
from support.by_hand import call, completion
from support.small_models import drive, drive_in, written


@pytest.mark.parametrize(
    ("request_", "sent"),
    [
        ("tell ann@example.com I'm late", "I'm late"),  # dictated
        ("send a mail to ann@example.com about dinner", None),  # worded by the model
        # words of the request
        ("mail ann@example.com: the tool that fits best is a saw", "the tool that fits best"),
    ],
)
def test_what_the_prompt_adds_to_a_request_is_never_sent(request_: str, sent: str | None) -> None:
    arguments = {"to": ["ann@example.com"], "subject": "late", "body": "the tool that fits best"}
    calls = [json.dumps({"name": "send_messages", "arguments": arguments})] * 4
    ending = json.dumps({"name": "final_answer", "arguments": {"message": "Sent."}})
    driven = drive(
        request_, *(calls if sent is None else calls[:1]), ending, options={"guidance": GUIDED.in_prompt()}
    )
    suggested = driven.of(CallModel)[0].request.messages[-1]["content"]
    assert suggested.startswith(f"{request_}\n\nThe tool that fits best: send_messages")
    executed = [effect.arguments["body"] for effect in driven.of(ExecuteTool)]
    assert executed == ([] if sent is None else [sent])


@pytest.mark.parametrize(
    ("query", "outcomes"),
    [
        ("let ann@example.com know about the dinner at eight", ["invalid", None]),
        ("mail ann@example.com an apology: sorry, we cannot help", [None]),
        ("write to ann@example.com and say that we could not help", [None]),
    ],
)
def test_an_apology_of_the_model_is_sent_to_nobody(query: str, outcomes: list[str | None]) -> None:
    mail = {
        "to": ["ann@example.com"],
        "subject": "Dinner",
        "body": "I'm sorry, but we cannot help you with it.",
    }
    sent = written({"name": "send_messages", "arguments": mail})
    better = written({"name": "send_messages", "arguments": {**mail, "body": "Dinner is at eight."}})
    driven = drive(query, sent, better, "Sent.", replies=[{"sent_to": ["ann@example.com"]}])
    assert [step.refusal for step in driven.run.steps][: len(outcomes)] == outcomes
    bodies = [effect.arguments["body"] for effect in driven.of(ExecuteTool)]
    assert bodies == [mail["body"] if outcomes == [None] else "Dinner is at eight."]


@pytest.mark.parametrize(
    ("query", "is_written"),
    [
        ("mail ann@example.com a list of the notes, and keep it for me", False),
        ("update the notes in wiki, and save them in capitals", True),
        ("find the notes in wiki, then write hello to home.md there", True),
        ("find my home page in wiki and write hello", True),
        ("find the notes in wiki and write hello into each", True),
    ],
)
def test_a_file_that_was_only_found_is_not_written_over(query: str, is_written: bool) -> None:
    find = {"name": "find_files", "arguments": {"base_path": "wiki", "pattern": "*.md"}}
    write = {"name": "write_files", "arguments": {"files": [{"path": "wiki/home.md", "content": "hello"}]}}
    replies = [{"entries": ["wiki/home.md"]}, {"entries": ["wiki/home.md"]}]
    driven = drive(query, written(find), written(write), "It is done.", replies=replies)
    assert any(effect.tool.name == "write_files" for effect in driven.of(ExecuteTool)) == is_written


@pytest.mark.parametrize(
    ("request_", "may"),
    [
        ("tidy up, delete drafts", False),
        ("find the drafts, remove them", False),
        ("make a/b, then delete a/b", True),
        ("make a/b, and when done remove it", True),
        ("crea la cartella a/b e poi cancellala", True),
    ],
)
def test_what_a_run_has_made_is_deleted_only_if_the_request_names_it_again(request_: str, may: bool) -> None:
    request_ = request_ if may else f"make the folder a/b and {request_}"
    make = {"name": "create_dirs", "arguments": {"paths": ["a/b"]}}
    delete = {"name": "delete_files", "arguments": {"paths": ["a/b"]}}
    texts = [written(make), *[written(delete)] * 3, *["Done."] * 3]
    driven = drive(request_, *texts, replies=[{"entries": ["a/b"]}] * 4)
    assert ("delete_files" in [effect.tool.name for effect in driven.of(ExecuteTool)]) == may


@pytest.mark.parametrize("address", ["ann@example.com", "giulia.rossi@studio.it"])
def test_no_file_has_an_address_for_its_name(address: str) -> None:
    request_ = f"write {address} that dinner is ready"
    write = {"files": [{"path": address, "content": "dinner is ready"}]}
    texts = [written({"name": "write_files", "arguments": write})] * 3
    driven = drive(request_, *texts, *["No."] * 3)
    assert not driven.of(ExecuteTool)
    assert driven.run.outcome != "failed"
    named = drive(f"write dinner is ready into the file {address}", *texts, *["Done."] * 3, replies=[{}])
    assert named.of(ExecuteTool)
    texts = [
        written({"name": "write_files", "arguments": {"files": [{"path": "ann@b.org.txt", "content": "x"}]}})
    ]
    assert drive("write x to ann@b.org.txt", *texts, *["Done."] * 3, replies=[{}]).of(ExecuteTool)
    save = {"files": [{"path": "contacts.txt", "content": "ann@example.com"}]}
    texts = [written({"name": "write_files", "arguments": save})]
    saved = drive("write ann@example.com to contacts.txt", *texts, *["Done."] * 3, replies=[{}])
    assert saved.of(ExecuteTool)


@pytest.mark.parametrize(
    ("repeated", "rest", "executed"),
    [
        ("\\n", '"}]}}', "milk"),
        (" ", '  "}]}}', "milk"),
        ("\\n", 'x"}]}}', None),  # more was cut than blank lines
        ("\\n", '", "path": "a"}]}}', None),
        ("milk", '"}]}}', None),
    ],
)
def test_a_text_that_goes_on_with_blank_lines_ends_before_them(
    repeated: str, rest: str, executed: str | None
) -> None:
    path = "" if "path" in rest else '"path": "a.txt", '
    begun = f'{{"name": "write_files", "arguments": {{"files": [{{{path}"content": "milk{repeated * 30}'
    cut = replace(completion(begun + rest), shortened_at=len(begun), repeated=repeated)
    none = drive("write a poem to a.txt", cut, *["I have no poem."] * 3)
    assert not none.of(ExecuteTool)  # more of it may come
    driven = drive("write milk to a.txt", cut, *["Done: milk."] * 3, replies=[{"entries": ["a.txt"]}])
    contents = [effect.arguments["files"][0]["content"] for effect in driven.of(ExecuteTool)]
    assert contents == ([] if executed is None else [executed])


def test_the_file_of_a_mail_is_not_written_over() -> None:
    mail = {"to": ["ann@example.com"], "subject": "order", "body": "the order is ready"}
    over = {"files": [{"path": "outbox/order.eml", "content": "the order is ready"}]}
    calls = [{"name": "send_messages", "arguments": mail}, {"name": "write_files", "arguments": over}]
    request_ = "mail ann@example.com: the order is ready. Then write the text done to log.txt"
    replies = [{"sent_to": ["ann@example.com"], "file": "outbox/order.eml"}, {"entries": []}]
    driven = drive(request_, *map(written, calls), *["Done."] * 3, replies=replies)
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["send_messages"]


@pytest.mark.parametrize(
    ("reply", "writes"),
    [
        ({"entries": ["buy milk"], "paths": ["notes/todo.txt"]}, True),
        (ExecutorError("'notes/todo.txt' does not exist"), True),
        (ExecutorError("'notes/todo.txt' is a file, and no folder"), False),
    ],
)
def test_nothing_is_written_over_a_file_that_is_only_added_to(reply: Any, writes: bool) -> None:
    read = {"name": "read_files", "arguments": {"paths": ["notes/todo.txt"]}}
    add = {"name": "write_files", "arguments": {"files": [{"path": "notes/todo.txt", "content": "oat milk"}]}}
    query = "add oat milk to notes/todo.txt"
    driven = drive(query, written(read), written(add), written(add), "Done.", replies=[reply])
    effects = [effect.tool.name for effect in driven.of(ExecuteTool)]
    assert ("write_files" in effects) == writes


@pytest.mark.parametrize(("content", "writes"), [("buy milk\n", False), ("oat milk", True)])
def test_what_was_there_is_no_addition(content: str, writes: bool) -> None:
    read = {"name": "read_files", "arguments": {"paths": ["todo.txt"]}}
    add = {"name": "write_files", "arguments": {"files": [{"path": "todo.txt", "content": content}]}}
    driven = drive(
        "add oat milk to todo.txt",
        written(read),
        written(add),
        "Done.",
        replies=[{"entries": ["buy milk\n"]}],
    )
    written_files = [
        effect.arguments for effect in driven.of(ExecuteTool) if effect.tool.name == "write_files"
    ]
    assert written_files == (
        [{"files": [{"path": "todo.txt", "content": "buy milk\noat milk"}]}] if writes else []
    )


@pytest.mark.parametrize("mode", ["text", "lines", "small", "large"])
@pytest.mark.parametrize("name", ["read_files", "final_answer"])
def test_a_call_with_a_placeholder_is_not_made(mode: str, name: str) -> None:
    copied = call("read_files", paths=["<paths: string>"])
    if name == "final_answer":
        copied = call(name, message="<message: string>") if mode in ("text", "lines") else "<message: string>"
    driven = drive_in(mode, copied, "It is nine.", query="what does a.txt say?")
    assert driven.run.steps[0].refusal == "invalid"
    assert driven.run.answer != "<message: string>"
