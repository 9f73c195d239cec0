"""Conversations in the roles that a template knows: laws over random ones, then the ways of real models."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.prompts.messages import Message
from gbnf_server.backends.prompts import TemplateRoles, adapt_messages, roles_of
from gbnf_server.system.errors import ChatTemplateError

# The names of control tokens are escaped: a subject of their own tests.
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="<[]"), max_size=8)
CONVERSATIONS = st.lists(
    st.builds(
        lambda role, content: Message(role=role, content=content),
        st.sampled_from(["system", "user", "assistant", "tool"]),
        TEXTS,
    ),
    max_size=8,
)
ROLES = st.builds(TemplateRoles, st.booleans(), st.booleans())


@given(CONVERSATIONS, ROLES)
def test_messages_have_the_roles_that_the_template_knows_and_lose_no_content(
    messages: list[Message], roles: TemplateRoles
) -> None:
    adapted = adapt_messages(messages, roles)
    said = [message["role"] for message in adapted]
    assert roles.system or "system" not in said
    assert roles.tool or "tool" not in said
    if roles == TemplateRoles(system=True, tool=True):
        assert adapted == messages
    else:
        assert ("user", "user") not in pairwise(said)
    text = "\n\n".join(message["content"] for message in adapted)
    position = 0
    for message in messages:
        position = text.index(message["content"], position)


def test_a_whole_run_for_a_template_of_two_roles() -> None:
    messages: list[Message] = [
        {"role": "system", "content": "Tools: …"},
        {"role": "user", "content": "tidy up"},
        {"role": "assistant", "content": '{"name": "find_files"}'},
        {"role": "tool", "content": '{"step": 1, "result": {"entries": ["è.txt"]}}'},
        {"role": "assistant", "content": '{"name": "find_file"}'},
        {"role": "tool", "content": '{"step": 2, "error": "no such tool"}'},
        {"role": "tool", "content": "something else"},
    ]
    assert adapt_messages(messages, TemplateRoles(system=False, tool=False)) == [
        {"role": "user", "content": "Tools: …\n\ntidy up"},
        {"role": "assistant", "content": '{"name": "find_files"}'},
        {"role": "user", "content": 'Result of step 1: {"entries": ["è.txt"]}'},
        {"role": "assistant", "content": '{"name": "find_file"}'},
        {"role": "user", "content": "Error in step 2: no such tool\n\nResult: something else"},
    ]


@pytest.mark.parametrize("known", [{"system", "tool"}, {"system"}, {"tool"}, set()])
@pytest.mark.parametrize("refuses", [True, False], ids=["refuses", "drops"])
def test_roles_are_found_whether_the_template_refuses_or_drops_the_others(
    known: set[str], refuses: bool
) -> None:
    def render(messages: list[Message]) -> str:
        kept = [message for message in messages if message["role"] in known | {"user", "assistant"}]
        if refuses and len(kept) < len(messages):
            raise ChatTemplateError("what role is that?")
        return " ".join(message["content"] for message in kept)

    assert roles_of(render) == TemplateRoles("system" in known, "tool" in known)


def test_a_template_that_renders_nothing_is_found_out() -> None:
    with pytest.raises(ChatTemplateError, match="leaves out user"):
        roles_of(lambda _: "")


def test_a_template_that_always_fails_says_why() -> None:
    def render(_: list[Message]) -> str:
        raise ChatTemplateError("no filter named 'x'")

    with pytest.raises(ChatTemplateError, match="no filter"):
        roles_of(render)
