"""What a request says of the files and messages of a call."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.requests.spelling import as_requested
from gbnf.requests.texts import (
    appends,
    is_only_source,
    says_not_found,
    unnamed_files,
    with_content,
    with_folders,
    with_known_paths,
    with_message,
    with_named_file,
    with_sources,
    writes_quote,
)
from gbnf.tools import Tool
from support.json_values import json_values

ANN = {"to": ["ann@example.com"], "subject": "Dinner"}


@pytest.mark.parametrize(
    ("request_", "written", "message"),
    [
        ("tell ann@example.com I can't make it", "I cannot send mail.", "I can't make it"),
        ("please let ann@example.com know that dinner is at 8.30.", "Sorry.", "dinner is at 8.30"),
        ("mail ann@example.com: the train is late", "Hello Ann!", "the train is late"),
        ("mail ann@example.com saying that it rains", "", "it rains"),
        ("send a note to ann@example.com: milk and bread", "Hello!", "milk and bread"),
        ("mail to ann@example.com: the red one, milk and bread.", "", "the red one, milk and bread"),
        ("scrivi a ann@example.com che la cena è alle otto", "Ciao!", "la cena è alle otto"),
        ('email "Lunch is at one" to ann@example.com', "I'm having a nice lunch.", "Lunch is at one"),
        ("per favore invia 'a dopo' ad ann@example.com, grazie", "Ciao Anna, a domani", "a dopo"),
        # as the model words it: in other words, in another language, from results
        ('email "Lunch is at one" to ann@example.com in Italian', "Il pranzo è all'una.", None),
        ('email "Lunch is at one" to ann@example.com', "Dear Ann, lunch is at one.", None),
        ("let ann@example.com know that dinner is at eight", "Dinner is ready at eight.", None),
        ("tell ann@example.com that she was right", "You were right.", None),
        ("tell ann@example.com that the meeting is off, in Italian", "La riunione è annullata.", None),
        ("mail ann@example.com: the contents of notes.txt", "oats", None),
        # nothing is dictated, or only a part of the request
        ("tell ann@example.com what is in a.txt", "Hello!", None),
        ("tell ann@example.com the sum of the numbers", "Hello!", None),
        ("tell ann@example.com to come at eight", "Hello!", None),
        ("let ann@example.com know the result", "Hello!", None),
        ("mail ann@example.com that it rains and then delete a.txt", "Hello!", None),
        ("mail ann@example.com: say hi to her family", "Hi Ann!", None),
        ("write to ann@example.com: the server is down", "I cannot access the server; it is down.", None),
        ("let ann@example.com know that we ship on Friday", "Hi " * 2000 + "we ship", None),
        ("mail bob@example.com that it rains", "Hello!", None),  # somebody else
    ],
)
def test_a_message_is_the_one_that_the_request_dictates(
    request_: str, written: str, message: str | None
) -> None:
    expected = written if message is None else message
    assert with_message({**ANN, "body": written}, request_) == {**ANN, "body": expected}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("Please tell me if you need anything.", "I can't make it on Thursday"),
        ("I can't come on Thursday.", None),
        ("Thursday is not possible.", None),
    ],
)
def test_a_message_that_is_the_subject_is_the_text_where_that_has_nothing_of_it(
    body: str, message: str | None
) -> None:
    call = {"to": ["ann@example.com"], "subject": "I can't make it on Thursday"}
    request_ = "tell ann@example.com I can't make it on Thursday"
    assert with_message({**call, "body": body}, request_) == {**call, "body": message or body}
    assert with_message({**ANN, "body": body}, request_) == {**ANN, "body": body}


def test_a_list_that_is_mailed_is_not_told_in_other_words() -> None:
    call = {"to": ["ann@example.com"], "subject": "Milk and bread", "body": "I have just bought the milk."}
    expected = {**call, "body": "milk and bread"}
    assert with_message(call, "mail ann@example.com: milk and bread") == expected
    told = {**call, "body": "Please buy: milk (2 l) and a loaf of bread."}
    assert with_message(told, "mail ann@example.com: milk and bread") == told


def test_a_message_that_a_call_has_is_in_no_other_text_of_it() -> None:
    call = {**ANN, "body": "The train is late.", "html_body": "", "attachment": {"content": ""}}
    assert with_message(call, "mail ann@example.com: the train is late") == call


@pytest.mark.parametrize(
    ("request_", "read", "meant"),
    [
        ("write 'pen' to list.xml. Also read burden.xml and mail it", ["list.xml"], ["burden.xml"]),
        ("save 'x' to a.txt, open b.txt and c.txt", ["a.txt"], ["b.txt"]),
        ("do not read secrets.txt, only show me plan.txt", ["plan.txt"], None),
        ("save x to plan.txt, don't open a.txt", ["plan.txt"], None),
        ("add milk to list.txt and then read notes.txt to me", ["list.txt"], None),
        ("show me plan.md, it was translated from piano.md", ["plan.md"], None),
        ("I already read a.txt, now write to b.txt what it says", ["b.txt"], None),
        ("show b.txt first, then open a.txt", ["b.txt"], None),
        ("read a.txt and write it to b.txt", ["a.txt"], None),
        ("read a.txt and write it to b.txt", ["a.txt", "b.txt"], None),
        ("read a.txt and mail it to ann@example.com", ["notes.txt"], None),  # it looks elsewhere
        ("does b.txt say what a.txt says?", ["b.txt"], None),
        ("read done.txt, and write it to b.txt", ["b.txt"], None),
    ],
)
def test_the_file_that_a_request_says_to_read_is_read(
    request_: str, read: list[str], meant: list[str] | None
) -> None:
    assert with_sources({"paths": read}, request_, {"done.txt"}) == {"paths": meant or read}
    assert with_sources({"path": read[0]}, request_, {"done.txt"}) == {"path": read[0]}


@pytest.mark.parametrize("repeated", ["tomatoes, ", "mozzarella di bufala, ", "a b c "])
def test_a_long_list_is_searched_before_the_time_limit_of_tests(repeated: str) -> None:
    request_ = f"tell ann@example.com: {repeated * 8}basil and olive oil"
    call = {**ANN, "subject": request_.partition(": ")[2], "body": "Hello!"}
    assert with_message(call, request_)["to"] == ANN["to"]


@pytest.mark.parametrize(
    "repeated",
    [
        " ",
        "that ",
        "1 + ",
        "2 * 3 ",
        "ann@example.com, ",
        "a. ",
        "should have ",
        "read a.txt ",
        "save x to a.txt, ",
    ],
)
def test_a_long_request_is_searched_before_the_time_limit_of_tests(repeated: str) -> None:
    written = {**ANN, "body": "Hello!"}
    request_ = f"tell ann@example.com: {repeated * 2000}?x"
    assert with_message(written, request_) == as_requested(written, request_) == written
    with_sources({"paths": ["a.txt"]}, request_, ())
    with_folders({"paths": ["a/b.txt"]}, request_)


@pytest.mark.parametrize(
    ("request_", "unnamed"),
    [
        ("delete old/draft.txt", {"old/final.txt"}),
        ("please remove Draft.txt from old", {"old/final.txt"}),
        ("delete ./old/draft.txt", {"old/final.txt"}),
        ("elimina draft.txt dalla cartella old", {"old/final.txt"}),
        ("delete old/draft.txt and old/final.txt", set()),
        ("delete old/draft.txt and its duplicates", set()),
        ("delete the files in old, not old/draft.txt", set()),
        ("delete everything but old/draft.txt", set()),
        ("clean up old without deleting draft.txt", set()),
        ("svuota old ma tieni draft.txt", set()),
        ("delete the drafts in old and write done to log.txt", set()),
        ("read old/draft.txt and delete the files listed there", set()),
        ("delete draft and old/final.txt", set()),
        ("send old/draft.txt to ada@example.com and the team", set()),
        ("delete old/other.txt", set()),
        ("delete what is in old", set()),
        ("", set()),
    ],
)
def test_files_that_a_request_does_not_name_are_found_beside_those_that_it_names(
    request_: str, unnamed: set[str]
) -> None:
    entries = ["old/draft.txt", "old/final.txt", "team@example.com"]
    assert unnamed_files({"paths": [*entries, "new.txt"], "n": 1}, request_, entries) == unnamed
    assert not unnamed_files({"paths": entries}, request_, ["other.txt"])


READ = ["the key is under the stone", "call Ada"]
PASSED_ON = "the key is under the stone\ncall Ada"


@pytest.mark.parametrize(
    ("request_", "written", "passed_on"),
    [
        ("read a.txt and write the same text to b.txt", {"content": "This is the content"}, True),
        ("mail ada@example.com what is in the report", {"body": "See below.", "subject": "Report"}, True),
        ("leggi a.txt e manda il contenuto a b@example.com", {"body": "Ecco."}, True),
        ("read a.txt and mail it to b@example.com", {"body": "Key: under the stone. Call Ada!"}, False),
        ("read a.txt and mail a summary of it to b@example.com", {"body": "About a key."}, False),
        ("read a.txt, then mail 'hello' to b@example.com", {"body": "hello"}, False),
        ("read a.txt and mail the first line of it to b@example.com", {"body": "Key under the stone"}, False),
        ("read a.txt and write a reply to it to b.txt", {"content": "I have called Ada."}, False),
        ("read a.txt and mail it to b@example.com", {"content_type": "text/plain"}, False),
        ("read a.txt and mail it to b@example.com", {"mail_body": "See below."}, True),
        ("read a.txt, then greet b@example.com", {"body": "Good day."}, False),
        ("read a.txt and name it in my calendar", {"title": "Reading"}, False),
    ],
)
def test_what_was_read_is_passed_on(request_: str, written: dict[str, Any], passed_on: bool) -> None:
    name = next(iter(written))
    expected = {**written, name: PASSED_ON} if passed_on else written
    assert with_content(written, request_, READ) == expected
    nested = {"files": [{"path": "b.txt", **written}]}
    assert with_content(nested, request_, READ) == {"files": [{"path": "b.txt", **expected}]}
    assert with_content(written, request_, []) == written


@pytest.mark.parametrize(
    ("request_", "path", "is_source"),
    [
        ("read alpha.txt and write the same text to beta.txt", "alpha.txt", True),
        ("read alpha.txt and write the same text to beta.txt", "beta.txt", False),
        ("leggi il file a.txt e scrivilo in b.txt", "a.txt", True),
        ("read a.txt and delete it", "a.txt", False),
        ("read a.txt, write it to b.txt and delete a.txt", "a.txt", False),
        ("open a.txt and write hello to a.txt", "a.txt", False),
        ("write hello to a.txt", "a.txt", False),
    ],
)
def test_a_file_that_is_only_to_be_read(request_: str, path: str, is_source: bool) -> None:
    assert is_only_source({"files": [{"path": path, "content": "x"}]}, request_) is is_source
    assert not is_only_source({"files": [{"path": "other.txt", "content": "x"}]}, request_)


@pytest.mark.parametrize(
    ("request_", "adds"),
    [
        ("add a line with oat milk to groceries.txt, don't lose what is there", "groceries.txt"),
        ("append 'x' to notes/a.txt.", "notes/a.txt"),
        ("aggiungi latte a spesa.txt", "spesa.txt"),
        ("add lunch with Ann to my calendar", ""),
        ("add 3 and 4 and write it to a.txt", ""),
    ],
)
@given(
    kept=st.lists(st.text("abc", min_size=1), min_size=2, max_size=4, unique=True),
    new=st.text("xyz", min_size=1),
)
def test_what_is_added_to_a_file_keeps_what_is_in_it(
    request_: str, adds: str, kept: list[str], new: str
) -> None:
    assert appends(request_) == adds
    whole = "\n".join([*kept, new])
    for content in (new, whole) if adds else ():
        written = with_content(
            {"files": [{"path": "a.txt", "content": content}]}, request_, ["\n".join(kept)]
        )
        assert written == {"files": [{"path": "a.txt", "content": whole}]}
    if adds:
        assert with_content({"content": new}, request_, ["notes/a.txt"]) == {"content": new}


@pytest.mark.parametrize(("entry", "is_passed_on"), [("225", True), ("what is 15 * 15?", False)])
def test_the_answer_is_a_number_that_was_found(entry: str, is_passed_on: bool) -> None:
    request_ = "work out 15 * 15 and let boss@example.com have the answer by mail"
    written = {"body": "I am sending the result."}
    assert with_content(written, request_, [entry]) == ({"body": entry} if is_passed_on else written)


SEARCH = Tool(
    "search",
    descriptions={"en": "Search a folder; the shared one is /srv/data."},
    args={"type": "object", "properties": {"base_path": {"type": "string"}, "text": {"type": "string"}}},
)


@pytest.mark.parametrize(
    ("request_", "folder", "searched"),
    [
        ("i lost a file", "path/to/workspace", "."),
        ("show my pdfs", "/home/user/documents", "."),
        ("find markdown in the notes folder", "notes", "notes"),
        ("delete the log files in build", "build/logs", "build/logs"),  # half of it is named
        ("show the bills", "Bills", "Bills"),
        ("read what was found", "trips/rome", "trips/rome"),  # it is in a result
        ("show my pdfs", "/srv/data", "/srv/data"),  # it is in the description
        ("show my pdfs", ".", "."),
        ("show my pdfs", ".\\", "."),
        ("show the notes of May", "notes\\may\\", "notes/may"),
        ("show C:\\notes", "C:\\notes", "C:\\notes"),
    ],
)
def test_nothing_is_searched_where_nobody_has_said(request_: str, folder: str, searched: str) -> None:
    known = f'{request_} ["trips/rome"]'
    arguments = {"base_path": folder, "text": "path/to/workspace"}
    assert with_known_paths(arguments, SEARCH, known) == arguments | {"base_path": searched}


@given(st.dictionaries(st.sampled_from(["base_currency", "director", "database", "text", "n"]), json_values))
def test_only_paths_change(arguments: dict[str, Any]) -> None:
    assert with_known_paths(arguments, SEARCH, "anything") == arguments


@pytest.mark.timeout(20)
@pytest.mark.parametrize("unit", ["a", "\\", "a\\", "._", "*-"])
def test_hostile_paths_take_linear_work(unit: str) -> None:
    path = unit * (200_000 // len(unit)) + "!"
    assert with_known_paths({"path": path, "base_path": path}, SEARCH, "a").keys() == {"path", "base_path"}


@pytest.mark.parametrize(
    ("request_", "is_written"),
    [
        ('type "pen" in the file deaxthe/list.xml', True),
        ("crea una cartella e metti 'ciao' nel file note/a.txt", True),
        ("jot 'milk' to list.txt", True),
        ("read b.txt. Then type 'b' into c.txt", True),
        ("find 'x' in a.txt", False),
        ("is 'x' in notes/a.txt?", False),
        ("replace 'x' in a.txt with y", False),
        ("quante volte c'è 'x' nel file a.txt", False),
        ("send 'hi' to bob@example.com", False),
        ("write x to a.txt", False),
    ],
)
def test_a_quoted_text_is_written_into_a_file_by_any_verb(request_: str, is_written: bool) -> None:
    assert writes_quote(request_) is is_written


@pytest.mark.parametrize(
    ("text", "request_", "is_told"),
    [
        ("I'm sorry, but I can't find the file 'a.txt' on my system.", "mail a@b.org what a.txt says", True),
        ("Non riesco a trovare il file.", "manda a.txt ad a@b.org", True),
        ("I can't find the file", "tell a@b.org that I can't find the file", False),
        ("We find it fine.", "mail a@b.org what a.txt says", False),
    ],
)
def test_a_text_of_what_was_not_found_is_no_mail(text: str, request_: str, is_told: bool) -> None:
    assert says_not_found(text, request_) is is_told


@pytest.mark.parametrize(
    ("path", "request_", "named"),
    [
        ("plans", "start a file story.md and write hello", "story.md"),
        ("plans/", "start a file a/story.md and write hello", "a/story.md"),
        ("plans", "start a file story.md, or tale.md", "plans"),
        ("plans", "write hello", "plans"),
        ("notes.md", "start a file story.md and write hello", "notes.md"),  # made by an earlier call, too
        ("other", "start a file story.md and write hello", "other"),
    ],
)
def test_a_folder_that_is_written_to_becomes_the_file_that_is_named(
    path: str, request_: str, named: str
) -> None:
    call = {"files": [{"path": path, "content": "hello"}]}
    expected = {"files": [{"path": named, "content": "hello"}]}
    assert with_named_file(call, request_, {"plans", "notes.md"}) == expected
    both = {"files": [*call["files"], {"path": "story.md", "content": "hello"}]}
    assert with_named_file(both, "start a file story.md", {"plans"}) == both
