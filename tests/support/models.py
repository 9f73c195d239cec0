"""Generate a model: one layer of random weights over 256 bytes. Its text is random, and always the same.

What it is for: everything that a backend does around a model, with any chat template, in milliseconds and
without a file that somebody has to bring. Every weight comes from one fixed seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]

TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
ROLES = ("system", "user", "assistant", "tool")
SPECIAL = ("<|end|>", *(f"<|{role}|>" for role in ROLES))
MERGES = ("h e", "l l", "he ll", "Ġ h", '" :', "Ã ¨")  # hello, a space before h, the two bytes of è
END_TOKEN = 256 + len(MERGES)

_WIDTH, _FEED_FORWARD, _HEADS = 32, 64, 2
_CONSTANT, _CONSTANT_AFTER_NORM = 12.0, 5.0


def make_model(
    path: Path,
    *,
    template: str | None = TEMPLATE,
    context: int = 512,
    name: str = "tiny",
    adds_start: bool = False,
    control_texts: Sequence[str] = (),
    bias: Mapping[int, float] | None = None,
    added: Mapping[str, Matrix] | None = None,
) -> Path:
    """Write the GGUF. `template` None: it has no chat template. `adds_start`: prompts begin with a token.

    `control_texts`: the texts of further control tokens, which are the last of the vocabulary. `bias`: about
    how much to add to the logits of tokens, everywhere. `added`: to weight matrices, by tensor.
    """
    letters = _byte_letters()
    control = [*SPECIAL, "<|start|>"]
    bos_token = END_TOKEN + len(control) - 1
    control += [text for text in control_texts if text not in control]
    tokens = [*letters, *(merge.replace(" ", "") for merge in MERGES), *control]
    kinds = [gguf.TokenType.NORMAL] * END_TOKEN + [gguf.TokenType.CONTROL] * len(control)
    writer = begin_model(path, name, context)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(list(MERGES))
    writer.add_eos_token_id(END_TOKEN)
    writer.add_bos_token_id(bos_token)
    writer.add_add_bos_token(adds_start)
    if template is not None:
        writer.add_chat_template(template)
    random = np.random.default_rng(7)
    for tensor, shape in tensor_shapes(len(tokens)).items():
        weights = random.normal(0, 0.5, shape).astype(np.float32)
        if bias and tensor == "token_embd":
            weights[:, 0] = _CONSTANT  # which stays the greatest part of every hidden state
        elif bias and tensor == "output":
            weights[:, 0] = [bias.get(token, 0.0) / _CONSTANT_AFTER_NORM for token in range(len(tokens))]
        if added and tensor in added:
            weights += added[tensor]
        writer.add_tensor(f"{tensor}.weight", weights)
    finish_model(writer)
    return path


def make_adapter(path: Path, factors: Mapping[str, tuple[Matrix, Matrix]], *, alpha: float = 1.0) -> Path:
    """Write a LoRA adapter: by tensor, the factors of shapes (rank, columns) and (rows, rank)."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    for tensor, both in factors.items():
        for name, factor in zip("ab", both, strict=True):
            writer.add_tensor(f"{tensor}.weight.lora_{name}", factor)
    _write(writer)
    return path


def begin_model(path: Path, name: str, context: int) -> gguf.GGUFWriter:
    """Return a writer of a model with one layer; the caller adds the tokenizer and the tensors."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(name)
    writer.add_context_length(context)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_FEED_FORWARD)
    writer.add_head_count(_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    return writer


def tensor_shapes(tokens: int) -> dict[str, tuple[int, int]]:
    """Return the shapes of the weight matrices, in the order in which they are drawn."""
    shapes = {"token_embd": (tokens, _WIDTH), "output": (tokens, _WIDTH)}
    shapes |= {f"blk.0.attn_{part}": (_WIDTH, _WIDTH) for part in ("q", "k", "v", "output")}
    shapes |= {f"blk.0.ffn_{part}": (_FEED_FORWARD, _WIDTH) for part in ("gate", "up")}
    shapes |= {"blk.0.ffn_down": (_WIDTH, _FEED_FORWARD)}
    return shapes


def finish_model(writer: gguf.GGUFWriter) -> None:
    """Add the norms and write the file."""
    for tensor in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{tensor}.weight", np.ones(_WIDTH, np.float32))
    _write(writer)


def _write(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _byte_letters() -> list[str]:
    """GPT-2's printable letter for each byte, in byte order: `Ġ` for the space."""
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]
