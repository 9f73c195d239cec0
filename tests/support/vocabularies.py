"""Models of random weights over a real vocabulary: they write nonsense of real tokens."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from support.models import TEMPLATE

_WIDTH, _FEED_FORWARD, _HEADS = 32, 64, 2


def make_model_over(vocabulary: Path, path: Path, *, context: int = 1024, seed: int = 3) -> Path:
    """Write a GGUF with the tokens of another one: one layer, whose logits are spread by some ten."""
    reader = gguf.GGUFReader(vocabulary)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(f"random {vocabulary.stem}")
    writer.add_context_length(context)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_FEED_FORWARD)
    writer.add_head_count(_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    for field in reader.fields.values():
        if field.name.startswith("tokenizer.") and field.name != "tokenizer.chat_template":
            kind = field.types[0]
            inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)
    writer.add_chat_template(TEMPLATE)
    random = np.random.default_rng(seed)
    tokens = len(reader.fields["tokenizer.ggml.tokens"].data)
    shapes = {"token_embd": (tokens, _WIDTH), "output": (tokens, _WIDTH)}
    shapes |= {f"blk.0.attn_{part}": (_WIDTH, _WIDTH) for part in ("q", "k", "v", "output")}
    shapes |= {f"blk.0.ffn_{part}": (_FEED_FORWARD, _WIDTH) for part in ("gate", "up")}
    shapes |= {"blk.0.ffn_down": (_WIDTH, _FEED_FORWARD)}
    for tensor, shape in shapes.items():
        weights = random.standard_normal(shape, dtype=np.float32) / 2
        writer.add_tensor(f"{tensor}.weight", weights.astype(np.float16 if tokens in shape else np.float32))
    for tensor in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{tensor}.weight", np.ones(_WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
