"""The bundled model file: small, self-describing, and read by llama.cpp as it was trained."""

import re
import subprocess
import sys
from random import Random

import pytest

from demo_model_tokens import pieces
from gbnf.prompts.messages import Message
from gbnf_server.backends.base import Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.llama.bindings import llama_cpp
from gbnf_server.llama.demo_model import model_path
from gbnf_server.llama.native import NativeModel
from training import vocabulary
from training.source import Source
from training.traces import trace

ROLES = ("system", "user", "assistant", "tool")
MEGABYTES_8 = 8_000_000


@pytest.fixture(scope="module")
def llama() -> NativeModel:
    return NativeModel(model_path(), vocab_only=True)


def test_the_model_is_small() -> None:
    assert model_path().stat().st_size <= MEGABYTES_8


def test_marks_are_single_tokens_and_the_end_ends(llama: NativeModel) -> None:
    for mark in ("<|end|>", *(f"<|{role}|>" for role in ROLES)):
        assert len(llama.tokenize(mark, special=True)) == 1
    assert llama.end_tokens == {*llama.tokenize("<|end|>", special=True)}


def test_the_fixed_pieces_of_a_conversation_are_single_tokens(llama: NativeModel) -> None:
    for piece in pieces():
        assert len(llama.tokenize(piece, special=True)) == 1, piece


def test_every_letter_token_is_a_piece_that_training_glues_values_of(llama: NativeModel) -> None:
    texts = {llama.token_text(token) for token in range(llama.size)}
    letters = {text for text in texts if re.fullmatch("[a-zA-Zàèéìòù]+", text)} - set(pieces())
    glued = set(vocabulary.PIECES)
    assert len(glued) > 2000
    assert glued <= letters
    assert not [text for text in letters - glued if not vocabulary.RESERVED.search(text)]


def test_a_call_forced_up_to_a_choice_is_made_of_the_tokens_of_the_whole_call(llama: NativeModel) -> None:
    call = '{"name": "send_messages", "arguments": {"to": ["a@b.c"], "subject": "x y", "body": "z"}}'
    whole = llama.tokenize(call, special=True)
    for forced in ('{"name": "', '{"name": "send_messages", "arguments": {"', f"{call[:-3]}"):
        tokens = llama.tokenize(forced, special=True)
        assert whole[: len(tokens)] == tokens, forced


def test_a_value_splits_alike_in_a_request_and_in_a_call(llama: NativeModel) -> None:
    def pieces(text: str) -> list[int]:
        return list(llama.tokenize(text, special=True))

    for value in ("trips/rome/packing.txt", "anna.kestrel@example.com", "zorbaflux-2031", "caffè"):
        inside = pieces(value)
        for around in ("create {}", "create {} and", "write '{}'", '{{"paths": ["{}"]}}'):
            whole = pieces(around.format(value))
            found = any(whole[start : start + len(inside)] == inside for start in range(len(whole)))
            assert found, (value, around)


@pytest.mark.slow
def test_llama_cpp_splits_texts_as_the_training_tokenizer_does(llama: NativeModel) -> None:
    """Conversations, and unusual characters of every kind."""
    pytest.importorskip("tokenizers")
    import gguf

    from vllm_folder import encoder

    vocabulary = [
        llama_cpp.llama_vocab_get_text(llama.vocabulary, token).decode() for token in range(llama.size)
    ]
    field = gguf.GGUFReader(model_path()).fields["tokenizer.ggml.merges"]
    pairs = (bytes(field.parts[part]).decode().split(" ") for part in field.data)
    tokenizer = encoder(vocabulary, [(left, right) for left, right in pairs])
    source = Random(7)
    alphabet = "abc XYZ 019 .,:;!?'\"{}[]()<>|/\\-_+*=%$#@~^`\n\t èéàçñüß €…—“” 日本語 한글 مرحبا Привет 😀"
    for _ in range(75):
        one = trace(source)
        turns = [("system", one.system()), *one.turns()]
        said = "".join(f"<|{role}|>{content}<|end|>" for role, content in turns)
        for text in (said, "".join(source.choice(alphabet) for _ in range(source.randint(1, 60)))):
            ours = tokenizer.encode(text, add_special_tokens=False).ids
            assert llama.tokenize(text, special=True) == ours, text


def test_bare_answers_are_mostly_the_right_calls() -> None:
    source = Source(2024, held_out=True)
    right = 0
    with InProcess(model_path(), threads=1) as model:
        for _ in range(20):
            one = trace(source, parts=1)
            messages: list[Message] = [
                {"role": "system", "content": one.system()},
                {"role": "user", "content": one.request},
            ]
            answer = model.complete(Request(messages, grammar=None, max_tokens=200))
            right += answer.text == one.turns()[1][1]
    assert right >= 18


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, gbnf_server.llama.demo_model; "
        "sys.exit('torch' in sys.modules or 'llama_cpp' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow  # it imports transformers
def test_the_chat_template_writes_what_training_wrote(llama: NativeModel) -> None:
    from transformers.utils import chat_template_utils

    template = llama.metadata["tokenizer.chat_template"]
    messages = [{"role": role, "content": f"{role}: x"} for role in ROLES[:2]]
    rendered = chat_template_utils.render_jinja_template(
        [messages], chat_template=template, add_generation_prompt=True, eos_token="<|end|>", bos_token=""
    )
    assert rendered[0] == ["<|system|>system: x<|end|><|user|>user: x<|end|><|assistant|>"]
