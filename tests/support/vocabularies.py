"""Models of random weights over a real vocabulary: they write nonsense of real tokens."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from support.models import TEMPLATE, begin_model, finish_model, tensor_shapes


def make_model_over(vocabulary: Path, path: Path, *, context: int = 1024, seed: int = 3) -> Path:
    """Write a GGUF with the tokens of another one: one layer, whose logits are spread by some ten."""
    reader = gguf.GGUFReader(vocabulary)
    writer = begin_model(path, f"random {vocabulary.stem}", context)
    for field in reader.fields.values():
        if field.name.startswith("tokenizer.") and field.name != "tokenizer.chat_template":
            kind = field.types[0]
            inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)
    writer.add_chat_template(TEMPLATE)
    random = np.random.default_rng(seed)
    tokens = len(reader.fields["tokenizer.ggml.tokens"].data)
    for tensor, shape in tensor_shapes(tokens).items():
        weights = random.standard_normal(shape, dtype=np.float32) / 2
        writer.add_tensor(f"{tensor}.weight", weights.astype(np.float16 if tokens in shape else np.float32))
    finish_model(writer)
    return path
