"""Messages of a small model go to addresses that the request or a result has, never to invented ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gbnf import Tool, compile_pool
from gbnf.requests.coverage import with_known_addresses
from gbnf_server.planner.events import CallModel, ExecuteTool, StepStarted
from support.by_hand import Driven, completion, drive_by_hand, resolved
from support.pools import BUNDLED
from support.small_models import LARGE, SMALL, drive, written

INVENTED = "your_email@example.com"
SEND = next(tool for tool in BUNDLED if tool.name == "send_messages")
LOCAL = st.from_regex(r"[a-z0-9_+'&-]{1,8}(?:\.[a-z0-9]{1,8})?", fullmatch=True)
DOMAIN = st.from_regex(r"[a-z0-9]{1,8}(?:\.[a-z]{2,5}){1,2}", fullmatch=True)
ADDRESS = st.builds("{}@{}".format, LOCAL, DOMAIN)


def mail(to: str) -> dict[str, Any]:
    return {"name": "send_messages", "arguments": {"to": [to], "subject": "hi", "body": "hi"}}


def takes(tool: Tool, to: str) -> bool:
    return bool(compile_pool((tool,)).match(json.dumps(mail(to))).complete)


@given(
    st.lists(ADDRESS, max_size=3),
    ADDRESS,
    st.sampled_from(["send hi to {}.", "for <{}>, please", "cc: {}\n"]),
)
def test_a_message_goes_to_known_addresses_only(known: list[str], other: str, sentence: str) -> None:
    assume(other not in known)
    limited = with_known_addresses(SEND, " ".join(map(sentence.format, known)))
    assert all(takes(limited, address) for address in known)
    assert not takes(limited, other)
    assert takes(SEND, other)
    assert takes(limited, "me")


@pytest.mark.parametrize(
    ("request_", "may"),
    [
        ("comunica a ann@example.com che piove", False),
        ("let ann@example.com know that it rains", False),
        ("send it to me and ann@example.com", True),
        ("mandami una copia della mail per ann@example.com", True),
        ("send ann@example.com a note, with a copy to my own inbox", True),
        ("send the list to myself", True),
        ("puoi mandarmi per mail la lista di ann@example.com?", True),
        ("girami la lista di ann@example.com", True),
        ("I want an email with the list from ann@example.com", True),
        ("mail the list of ann@example.com", True),
    ],
)
def test_a_message_for_others_is_not_sent_to_the_person_who_asks(request_: str, may: bool) -> None:
    assert takes(with_known_addresses(SEND, request_, request_), "me") == may
    assert takes(with_known_addresses(SEND, request_, request_), "ann@example.com") == ("@" in request_)


def test_a_tool_with_names_of_its_own_for_recipients_keeps_them() -> None:
    items = {"type": "string", "pattern": r"^[a-z]+(@[a-z.]+)?$"}
    args = {"type": "object", "properties": {"to": {"type": "array", "items": items}}}
    tool = Tool.from_mapping({"name": "send_messages", "description": "Mail.", "args": args})
    call = {"name": "send_messages", "arguments": {"to": ["sales"]}}
    limited = with_known_addresses(tool, "mail ann@example.com", "mail ann@example.com and sales")
    assert compile_pool((limited,)).match(json.dumps(call)).complete


@given(st.text("email me@.:<> \n", max_size=40))
def test_other_tools_and_texts_stay_as_they_are(text: str) -> None:
    others = [tool for tool in BUNDLED if tool is not SEND]
    assert [with_known_addresses(tool, text) for tool in others] == others


def run(query: str, *texts: Any, options: dict[str, Any] = SMALL, **more: Any) -> Driven:
    said = [text if isinstance(text, str) else written(text) for text in texts]
    return drive(query, *said, "Done.", options=options, **more)


def accepts(driven: Driven, call: dict[str, Any]) -> bool:
    calls = [each.request.grammar for each in driven.of(CallModel) if each.purpose == "call"]
    grammar: Any = calls[-1]
    return bool(grammar.match(f"<tool_call>\n{json.dumps(call)}\n</tool_call>").complete)


@pytest.mark.parametrize(
    ("query", "to", "possible"),
    [
        ("email me that the door is open", "me", True),
        ("email me that the door is open", INVENTED, False),
        ("send 'hi' to anna@example.org by mail", "anna@example.org", True),
        ("send 'hi' to anna@example.org by mail", "anna@example.com", False),
    ],
)
def test_a_step_offers_known_addresses_only(query: str, to: str, possible: bool) -> None:
    driven = run(query, mail(to), "x")
    assert accepts(driven, mail(to)) == possible


def test_an_address_in_a_result_is_known() -> None:
    read = {"name": "read_files", "arguments": {"paths": ["contacts.txt"]}}
    query = "read contacts.txt and send the text 'hi' to Anna by mail, to her address in it"
    driven = run(query, read, mail("anna@example.org"), replies=[{"entries": ["Anna: anna@example.org"]}, {}])
    assert [each.tool.name for each in driven.of(ExecuteTool)] == ["read_files", "send_messages"]


@pytest.mark.parametrize(
    "content", ["Team:\nanna@example.org\nbob@x.org", "Anna\tanna@example.org", "_anna@example.org_"]
)
def test_an_address_is_read_as_it_is(content: str) -> None:
    read = {"name": "read_files", "arguments": {"paths": ["contacts.txt"]}}
    query = "read contacts.txt and send the text 'hi' to Anna by mail"
    driven = run(query, read, mail("anna@example.org"), replies=[{"entries": [content]}, {}])
    assert accepts(driven, mail("anna@example.org"))
    assert not accepts(driven, mail("nanna@example.org"))
    assert not accepts(driven, mail("tanna@example.org"))


@pytest.mark.parametrize(
    "schema", [{"pattern": r"^\\S+$"}, {"pattern": "^[^ ]+$"}, {"format": "uri-reference"}]
)
def test_a_text_without_spaces_is_no_address(schema: dict[str, str]) -> None:
    to = {"type": "string", **schema}
    tool = Tool(
        name="get", args={"type": "object", "properties": {"to": to}, "required": ["to"]}, descriptions={}
    )
    assert with_known_addresses(tool, "get @types/node") is tool


def test_an_address_of_an_earlier_exchange_is_known() -> None:
    history = (
        {"role": "user", "content": "what is Anna's address?"},
        {"role": "assistant", "content": "It is anna@example.org."},
    )
    driven = run("send her the text 'hi' by mail", mail("anna@example.org"), history=history)
    assert [each.tool.name for each in driven.of(ExecuteTool)] == ["send_messages"]


def test_a_large_model_writes_any_address() -> None:
    assert accepts(run("email me that the door is open", mail(INVENTED), options=LARGE), mail(INVENTED))


def test_a_tool_that_takes_addresses_only_needs_a_known_one() -> None:
    to = {"type": "string", "format": "email"}
    args = {"type": "object", "properties": {"to": to}, "required": ["to"]}
    post = Tool(name="post_card", args=args, descriptions={"en": "Send a postcard by email."})
    driven = drive_by_hand(
        [post],
        [completion("I do not know her address.")],
        query="send Anna a postcard",
        options=resolved(**SMALL),
    )
    assert driven.of(StepStarted)[0].tools == ("final_answer",)
    assert driven.run.outcome == "answered"
