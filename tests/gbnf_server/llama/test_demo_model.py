"""The bundled model file: small, self-describing, and read by llama.cpp as it was trained."""

import re
import subprocess
import sys
from random import Random

import pytest
from llama_cpp import Llama

from demo_model_tokens import pieces
from gbnf_server.llama.demo_model import model_path
from gbnf_server.llama.process_globals import patch_default_model_params
from training import vocabulary
from training.source import Source
from training.traces import trace

ROLES = ("system", "user", "assistant", "tool")
MEGABYTES_8 = 8_000_000


@pytest.fixture(scope="module")
def llama() -> Llama:
    patch_default_model_params()
    return Llama(str(model_path()), n_ctx=1024, n_threads=1, n_threads_batch=1, verbose=False)


def test_the_model_is_small() -> None:
    assert model_path().stat().st_size <= MEGABYTES_8


def test_marks_are_single_tokens_and_the_end_ends(llama: Llama) -> None:
    for mark in ("<|end|>", *(f"<|{role}|>" for role in ROLES)):
        assert len(llama.tokenize(mark.encode(), add_bos=False, special=True)) == 1
    assert llama.tokenize(b"<|end|>", add_bos=False, special=True) == [llama.token_eos()]


def test_the_fixed_pieces_of_a_conversation_are_single_tokens(llama: Llama) -> None:
    for piece in pieces():
        assert len(llama.tokenize(piece.encode(), add_bos=False, special=True)) == 1, piece


def test_every_letter_token_is_a_piece_that_training_glues_values_of(llama: Llama) -> None:
    texts = {
        llama.detokenize([token], special=True).decode("utf-8", "replace") for token in range(llama.n_vocab())
    }
    letters = {text for text in texts if re.fullmatch("[a-zA-Zàèéìòù]+", text)} - set(pieces())
    glued = set(vocabulary.PIECES)
    assert len(glued) > 2000
    assert glued <= letters
    assert not [text for text in letters - glued if not vocabulary.RESERVED.search(text)]


def test_a_call_forced_up_to_a_choice_is_made_of_the_tokens_of_the_whole_call(llama: Llama) -> None:
    call = '{"name": "send_messages", "arguments": {"to": ["a@b.c"], "subject": "x y", "body": "z"}}'
    whole = llama.tokenize(call.encode(), add_bos=False, special=True)
    for forced in ('{"name": "', '{"name": "send_messages", "arguments": {"', f"{call[:-3]}"):
        tokens = llama.tokenize(forced.encode(), add_bos=False, special=True)
        assert whole[: len(tokens)] == tokens, forced


def test_a_value_splits_alike_in_a_request_and_in_a_call(llama: Llama) -> None:
    def pieces(text: str) -> list[int]:
        return list(llama.tokenize(text.encode(), add_bos=False, special=True))

    for value in ("trips/rome/packing.txt", "anna.kestrel@example.com", "zorbaflux-2031", "caffè"):
        inside = pieces(value)
        for around in ("create {}", "create {} and", "write '{}'", '{{"paths": ["{}"]}}'):
            whole = pieces(around.format(value))
            found = any(whole[start : start + len(inside)] == inside for start in range(len(whole)))
            assert found, (value, around)


@pytest.mark.slow
def test_llama_cpp_splits_texts_as_the_training_tokenizer_does(llama: Llama) -> None:
    """Conversations, and unusual characters of every kind."""
    pytest.importorskip("tokenizers")
    import gguf

    from vllm_folder import encoder

    vocabulary = [llama._model.token_get_text(token) for token in range(llama.n_vocab())]
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
            assert llama.tokenize(text.encode(), add_bos=False, special=True) == ours, text


def test_bare_answers_are_mostly_the_right_calls(llama: Llama) -> None:
    source = Source(2024, held_out=True)
    right = 0
    for _ in range(20):
        one = trace(source, parts=1)
        prompt = f"<|system|>{one.system()}<|end|><|user|>{one.request}<|end|><|assistant|>"
        said = llama.create_completion(prompt, max_tokens=200, temperature=0.0)["choices"][0]["text"]
        right += said == one.turns()[1][1]
    assert right >= 18


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, gbnf_server.llama.demo_model; "
        "sys.exit('torch' in sys.modules or 'llama_cpp' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_chat_template_writes_what_training_wrote(llama: Llama) -> None:
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter

    formatter = Jinja2ChatFormatter(
        llama.metadata["tokenizer.chat_template"], eos_token="<|end|>", bos_token=""
    )
    messages = [{"role": role, "content": f"{role}: x"} for role in ROLES[:2]]
    assert (
        formatter(messages=messages).prompt == "<|system|>system: x<|end|><|user|>user: x<|end|><|assistant|>"
    )
