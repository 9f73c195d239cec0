"""Messages contain no control tokens but the template's own, by real vocabularies."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf import Grammar
from gbnf.prompts.messages import Image, Message, call_text, error_text, result_text
from gbnf_server.backends.answer import Asked, collect_answer
from gbnf_server.backends.base import Backend, Request
from gbnf_server.backends.in_process import ChatTemplate, InProcess
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.backends.ollama import Ollama
from gbnf_server.backends.openai_compatible import OpenAICompatible
from gbnf_server.backends.prompts import TemplateRoles, adapt_messages
from gbnf_server.backends.reasoning import reasoning_message
from gbnf_server.llama.bindings import llama_cpp
from gbnf_server.llama.native import NativeModel
from gbnf_server.system.errors import BackendError
from support.backends import ANY
from support.effort import one_in, scaled
from support.oracle import vocabulary_path
from support.server import PROPS, Reply, completion, scripted

VOCABULARIES = ("embedded", "gemma-4", "llama-bpe", "qwen2")
WORDS = (
    "say ",
    "<",
    "|",
    ">",
    "</",
    "[",
    "\\",
    '"',
    "<div>",
    "a < b",
    "è",
    "\n",
    "</think>",
    "\\u003c",
    "/no_think",
)
CONTENTS = (
    "m.content",
    "m.content | trim",
    "m.content | tojson",
    "m.content.split('</think>')[-1]",
    "m.content.replace('/no_think', '').strip()",
)
"""What templates do to a message's content."""
UNKNOWN = ("", "{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}")
"""What templates do with roles that they lack: nothing, or refuse."""


@cache
def _model(vocabulary: str) -> NativeModel:
    return NativeModel(vocabulary_path(vocabulary), vocab_only=True)


@cache
def _control_tokens(vocabulary: str) -> dict[int, str]:
    """Those that stand for themselves only where a prompt is read with its special tokens."""
    model = _model(vocabulary)
    handle = model.vocabulary
    return {
        token: llama_cpp.llama_vocab_get_text(handle, token).decode()
        for token in range(model.size)
        if llama_cpp.llama_vocab_get_attr(handle, token) & llama_cpp.LLAMA_TOKEN_ATTR_CONTROL
    }


def _read(vocabulary: str, text: str) -> list[int]:
    """The control tokens in a text that is sent."""
    known = _control_tokens(vocabulary)
    return [token for token in _model(vocabulary).tokenize(text, special=True) if token in known]


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_each_control_token_is_text(vocabulary: str) -> None:
    names = _control_tokens(vocabulary)
    assert names
    for token, name in names.items():
        assert token in _read(vocabulary, name), "no longer read: no judge"
        for said in _said(f"the file says {name} and more"):
            assert not _read(vocabulary, said), said


def _texts(vocabulary: str) -> st.SearchStrategy[str]:
    """Names of control tokens, complete or truncated, amid text that may complete them."""
    names = st.sampled_from(sorted(_control_tokens(vocabulary).values()))
    cut = st.builds(
        lambda name, start, end: name[start : max(start, len(name) - end)],
        names,
        st.integers(0, 3),
        st.integers(0, 3),
    )
    return st.lists(st.sampled_from(WORDS) | names | cut, max_size=8).map("".join)


def _said(text: str) -> list[str]:
    """The messages that hold the text; it is read back from each as it was."""
    result = {"entries": [text], text: 1}
    call = {"name": "write_files", "arguments": {"files": [{"path": "a", "content": text}]}}
    said = [result_text(1, result), error_text(2, text), call_text(call)]
    assert [json.loads(each) for each in said] == [
        {"step": 1, "result": result},
        {"step": 2, "error": text},
        call,
    ]
    return said


def _conversation(*texts: str) -> list[Message]:
    """A run whose every text is somebody else's: manifest, person, model, results, errors, in any order."""
    said = iter(texts * 12)
    call = {"name": "write_files", "arguments": {"files": [{"content": next(said)}]}}
    return [
        {"role": "system", "content": f"Tools:\nfind_files(base_path)\n  {next(said)}"},
        {"role": "user", "content": next(said)},
        {"role": "assistant", "content": call_text(call)},
        {"role": "tool", "content": result_text(1, {"entries": [next(said), next(said)]})},
        {"role": "tool", "content": error_text(2, next(said))},
        {"role": "assistant", "content": next(said)},
        {"role": "tool", "content": json.dumps({"step": 3, "error": next(said)})},
        {"role": "tool", "content": json.dumps({"step": 4, "result": next(said)}, ensure_ascii=False)},
        {"role": "tool", "content": next(said)},
        {"role": "user", "content": next(said)},
    ]


def _template(vocabulary: str, content: str, unknown: str) -> ChatTemplate:
    """A chat template that parts the messages by tokens of the vocabulary, as templates do."""
    names = sorted(_control_tokens(vocabulary).values(), key=lambda name: ("end" not in name, name))
    opening, closing = names[-1], names[0]
    source = (
        f"{{% for m in messages %}}{unknown}{opening}{{{{ m.role }}}}\n{{{{ {content} }}}}{closing}"
        f"{{% endfor %}}{opening}assistant\n{{% if enable_thinking %}}<think>{{% endif %}}"
    )
    model = copy.copy(_model(vocabulary))
    model.__dict__["metadata"] = {"tokenizer.chat_template": source}
    return ChatTemplate(model)


@pytest.mark.parametrize("unknown", UNKNOWN, ids=["all roles", "no tool role"])
@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("vocabulary", one_in(5, VOCABULARIES))
def test_only_the_templates_own_control_tokens_are_in_a_prompt(
    vocabulary: str, content: str, unknown: str
) -> None:
    template = _template(vocabulary, content, unknown)
    harmless = _read(vocabulary, template.prompt(Request(_conversation("x"), ANY)))
    assert harmless
    names = [
        name[:cut] + word + name[cut:]
        for name in _control_tokens(vocabulary).values()
        for cut, word in ((0, ""), (1, "/no_think"), (2, "/no_think"))
    ]
    for some in (names[at : at + 11] for at in range(0, len(names), 11)):
        prompt = template.prompt(Request(_conversation(*some), ANY))
        assert _read(vocabulary, prompt) == harmless, some


@pytest.mark.slow
@settings(max_examples=scaled(50))
@given(st.data(), st.sampled_from(VOCABULARIES), st.sampled_from(CONTENTS), st.sampled_from(UNKNOWN))
def test_no_message_adds_a_control_token(
    data: st.DataObject, vocabulary: str, content: str, unknown: str
) -> None:
    """Texts that complete each other too, across messages and across what the template puts between them."""
    texts = data.draw(st.lists(_texts(vocabulary), min_size=1, max_size=4))
    template = _template(vocabulary, content, unknown)
    reasoning = reasoning_message(texts[-1], closed=data.draw(st.booleans()))
    said = template.prompt(Request([*_conversation(*texts), reasoning], ANY))
    assert _read(vocabulary, said) == _read(
        vocabulary, template.prompt(Request([*_conversation("x"), reasoning_message("x")], ANY))
    )


@pytest.mark.slow
@given(st.data(), st.sampled_from(VOCABULARIES), st.builds(TemplateRoles, st.booleans(), st.booleans()))
def test_without_the_vocabulary_the_forms_of_names_are_enough(
    data: st.DataObject, vocabulary: str, roles: TemplateRoles
) -> None:
    texts = data.draw(st.lists(_texts(vocabulary), min_size=1))
    for said in map(_said, texts):
        assert not any(_read(vocabulary, each) for each in said), said
    for message in adapt_messages(_conversation(*texts), roles):
        assert not _read(vocabulary, message["content"])


CHAT = {
    "v1/chat/completions": [
        Reply(200, {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]})
    ]
}
OLLAMA = {"api/chat": [Reply(200, {"message": {"content": "hi"}, "done": True, "done_reason": "stop"})]}
SERVED: dict[str, tuple[dict[str, list[Reply]], Callable[[str], Backend]]] = {
    "llama-server": ({"completion": [completion("hi")]}, LlamaServer),
    "openai": (CHAT, lambda url: OpenAICompatible(url, "plain", model="m")),
    "openai, tool role": (CHAT, lambda url: OpenAICompatible(url, "plain", model="m", tool_role=True)),
    "ollama": (OLLAMA, lambda url: Ollama("m", url)),
    "ollama, tool role": (OLLAMA, lambda url: Ollama("m", url, tool_role=True)),
}


@pytest.mark.slow
@pytest.mark.parametrize("images", [(), (Image(b"GIF89a", "image/gif"),)], ids=["words", "images"])
@pytest.mark.parametrize("server", SERVED)
def test_no_server_is_sent_a_control_token(server: str, images: Sequence[Image]) -> None:
    names = [name for vocabulary in VOCABULARIES for name in _control_tokens(vocabulary).values()]
    messages = _conversation(*(" ".join(names[at::7]) for at in range(7)))
    messages[1] = {**messages[1], "images": images, "content": messages[1]["content"] + "<__media__>"}
    answers, open_ = SERVED[server]
    props = {**PROPS, "modalities": {"vision": True}, "bos_token": "<s>", "eos_token": "</s>"}
    served = scripted(**{"props": [Reply(200, props)], **answers})  # type: ignore[arg-type]  # paths as names
    with served as script, open_(script.url) as backend, suppress(BackendError):  # no answer is a stream
        backend.complete(Request(messages, grammar=None))
    sent = [text for path, body in script.asked for text in _texts_of(body) if path != "/props"]
    assert sum(map(len, sent)) > sum(map(len, names))
    for text in sent:
        for vocabulary in VOCABULARIES:
            assert not _read(vocabulary, text)


def _texts_of(value: object) -> list[str]:
    """The texts in what was sent."""
    match value:
        case dict():
            return [text for member in value.values() for text in _texts_of(member)]
        case list():
            return [text for member in value for text in _texts_of(member)]
        case str():
            return [value]
        case _:
            return []


def test_a_model_in_process_supplies_its_control_tokens() -> None:
    """Whatever their form: here the vocabulary is known."""
    model = copy.copy(_model("qwen2"))
    model.__dict__["control_tokens"] = {"¤end¤": -1, "<|im_end|>": -2}
    prompt = ChatTemplate(model).prompt(Request([{"role": "user", "content": "a ¤end¤ <|im_end|>"}], ANY))
    assert "a \\u00a4end¤ \\u003c|im_end|>" in prompt


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_a_vocabulary_lists_the_texts_of_its_control_tokens(vocabulary: str) -> None:
    assert _model(vocabulary).control_tokens.keys() >= set(_control_tokens(vocabulary).values())


@pytest.mark.parametrize(
    "facts",
    [
        {"chat_template": "{{ m }}<odd:end>"},
        {"bos_token": "<odd:end>"},
        {"eos_token": "<odd:end>"},
        {"chat_template": "{{ m.content.replace('<odd:end>', '') }}"},
    ],
)
def test_a_llama_server_reveals_control_tokens_by_its_template(facts: dict[str, str]) -> None:
    messages: list[Message] = [{"role": "user", "content": "a <odd:end> b"}]
    with (
        scripted(props=[Reply(200, {**PROPS, **facts})], completion=[completion("hi")]) as script,
        LlamaServer(script.url) as backend,
    ):
        backend.complete(Request(messages, grammar=None))
    assert "a \\u003codd:end> b" in json.loads(script.asked[-1][1]["prompt"])[0]["content"]


@pytest.mark.parametrize("named", [(), ("<|tool|>",)])
def test_a_grammar_samples_no_control_token_that_it_does_not_name(
    tiny_model: Path, named: tuple[str, ...]
) -> None:
    rules = "".join(f' | "{text}"' for text in named)
    grammar = Grammar.parse(f"root ::= (any{rules}){{60}}\nany ::= [^\\x00]")
    written = set[str]()
    with InProcess(tiny_model, threads=1) as backend:
        for seed in range(40):
            request = Request(
                [{"role": "user", "content": "x"}], grammar, max_tokens=60, temperature=3.0, seed=seed
            )
            text = asyncio.run(collect_answer(backend, Asked(request))).completion.text
            written.update(name for name in CONTROL if name in text)
    assert written == set(named)


CONTROL = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
