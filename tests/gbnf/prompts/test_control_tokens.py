"""Escaping: what is a name of a control token, what is not, and what escaping leaves of a text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gbnf.prompts.control_tokens import (
    control_tokens_in,
    escape_control_tokens,
    make_escaper,
    strings_removed_by,
)

NAMES = (
    "<|im_start|>", "<|endoftext|>", "<|a b|>", "<|turn>", "<turn|>", '<|"|>', "<｜User｜>", "<|reserved_1|>",
    "<｜begin▁of▁sentence｜>", "<begin▁of▁sentence>", "<s>", "</s>", "<S>", "<bos>", "<unk>", "<EOS_TOKEN>",
    "<start_of_turn>", "<end_of_turn>", "<image_soft_token>", "<tool_call>", "</tool_call>", "<TOOLCALL>",
    "<think>", "</think>", "<fim-prefix>", "<fim_suffix>", "<PRE>", "<gh_stars>", "<unused7>",
    "<SPECIAL_12>", "<extra_id_0>", "<reserved_106>", "<seed:bos>", "<minimax:tool_call>", "<arg_key>",
    "<function=find>", "<<SYS>>", "<</SYS>>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[/AVAILABLE_TOOLS]",
    "[gMASK]", "[PAD151646]", "[control_8]", "[|assistant|]", "[UNUSED_TOKEN_145]", "]~b]", "]~!b[", "[e~[",
    "]<]minimax[>[", "<[PLHD20_never_used]>", "<__media__>", "<im_patch>", "<|im_", "<|",
)  # fmt: skip
ORDINARY = (
    "a < b and c > d", "1<2", "x <- y", "<div class='a'>b</div>", "<p>", "<br/>", "<pre>", "<a href='x'>",
    "<!-- no -->", "</body>", "<input_ disabled>", "List<String>", "vector<int>", "std::vector<a_b>",
    "[link](http://a.b/c)", "- [ ] do", "- [x] done", "a[0]", "[1, 2]", "[true, null]", '["a"]', "[args]",
    "a | b", "|-|-|", "<name: string>", "<base_path: string>", "<<EOF", "<=>", "if (a <b) {", "<3", "`<`",
    "[TODO]", "[A]", "C:\\s", "\\u003c", "#include <stdio.h>", "mail <me@a.b>", "<http://a.b>", "[^1]",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from([*NAMES, *ORDINARY, "<", "|", ">", "[", "]", "\\", "è", "\n"]), max_size=6)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_escaped_and_read_back(name: str) -> None:
    said = escape_control_tokens(f"a {name} b")
    assert name not in said
    assert json.loads(f'"{said.replace(chr(34), "")}"') == f"a {name} b".replace('"', "")


@pytest.mark.slow
@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays(text: str) -> None:
    assert escape_control_tokens(text) == text


@given(TEXTS)
@example(["<3", "<turn|>"])
def test_escaping_twice_changes_nothing(pieces: list[str]) -> None:
    once = escape_control_tokens("".join(pieces))
    assert escape_control_tokens(once) == once
    assert not [name for name in NAMES if name in once]


@given(TEXTS, st.booleans())
def test_json_keeps_its_value(pieces: list[str], ascii_only: bool) -> None:
    value: Any = {"".join(pieces): ["".join(pieces), pieces, [True, None, [[], [0]]]]}
    said = json.dumps(value, ensure_ascii=ascii_only)
    assert json.loads(escape_control_tokens(said)) == value


def test_names_of_any_form_can_be_given() -> None:
    names = ["<|end|>", "¤end¤", "¤e", "role@", "𝄞"]
    escape = make_escaper(names)
    assert escape("a ¤end¤ 𝄞 ¤ <|end|> <b> role") == ("a \\u00a4end¤ \\ud834\\udd1e ¤ \\u003c|end|> <b> role")
    assert json.loads(escape('"¤end¤ role@ 𝄞"')) == "¤end¤ role@ 𝄞"
    assert make_escaper(["<|end|>"]) is escape_control_tokens


def test_a_template_names_its_tokens() -> None:
    source = (
        "{% for m in messages %}<turn:{{ m.role }}><x:y>{{ m.content if a<b and c>d }}</x:y>{% endfor %}"
        "Write <arguments> or <arg_one>. <role>{{ '<|end|>' + \"<b_c>\" }}"
    )
    assert control_tokens_in(source) == {"<x:y>", "</x:y>", "<arg_one>", "<|end|>", "<b_c>"}


def test_what_a_template_strips_is_escaped_too() -> None:
    source = (
        """{{ a.replace('/think', '').replace("x", 'y') | replace( "/no" , "" ) | replace('\\n', '') }}"""
    )
    assert strings_removed_by(source) == {"/think", "/no"}
    assert make_escaper(strings_removed_by(source))("<s/think> /n") == "<s\\u002fthink> /n"
