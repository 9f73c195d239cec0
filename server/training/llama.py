"""The Llama architecture in torch, with the weights that llama.cpp runs: read from a GGUF file, and written.

Shapes: x is (T, width) for T tokens; queries, keys and values are (heads, T, width of a head). The
computation equals llama.cpp's `llama` graph with the dequantised weights; llama.cpp also quantises the
vectors that it multiplies with quantised weights, so logits differ a little. Rotary pairs are neighbours, as
in the file, so that no weights are permuted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from training.rows import Rows


@dataclass(frozen=True, slots=True)
class Shape:
    """The model's dimensions, as its file has them."""

    layers: int
    heads: int
    key_heads: int
    rope_base: float
    epsilon: float


@dataclass(frozen=True, slots=True)
class Base:
    """A GGUF model of the architecture `llama`: its dimensions, and tensors by name."""

    shape: Shape
    tensors: dict[str, Tensor]


def read_base(path: Path, dtype: torch.dtype) -> Base:
    """Return a model with dequantised weights; norms stay 32 bits wide."""
    reader = gguf.GGUFReader(path)

    names = (
        "block_count", "attention.head_count", "attention.head_count_kv", "rope.freq_base",
        "attention.layer_norm_rms_epsilon",
    )  # fmt: skip
    shape = Shape(*(reader.fields[f"llama.{name}"].contents() for name in names))
    tensors = {}
    for tensor in reader.tensors:
        values = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
        tensors[tensor.name.removesuffix(".weight")] = values if values.ndim == 1 else values.to(dtype)
    return Base(shape, tensors)


def write_weights(tensors: dict[str, Tensor], like: Path, path: Path) -> None:
    """Write weights in their places of the file `like`, whose vocabulary and metadata stay."""
    content = bytearray(like.read_bytes())
    for tensor in gguf.GGUFReader(like).tensors:
        weight = tensors[tensor.name.removesuffix(".weight")].detach().float().cpu().numpy()
        kind, begin = tensor.tensor_type, tensor.data_offset
        data = weight if kind == gguf.GGMLQuantizationType.F32 else gguf.quants.quantize(weight, kind)
        content[begin : begin + tensor.n_bytes] = data.tobytes()
    path.write_bytes(content)


class Llama(nn.Module):  # type: ignore[misc]  # torch's types are not read
    """Tokens to the vectors before the output layer, which is tied to the embedding.

    The first blocks, `fixed`, get no gradient.
    """

    fixed = 0

    def __init__(self, base: Base) -> None:
        super().__init__()
        self.base = base

    def times(self, block: int, matrix: str, x: Tensor) -> Tensor:
        """Return the product of a block's matrix with vectors."""
        return functional.linear(x, self.base.tensors[f"blk.{block}.{matrix}"])

    def logits(self, vectors: Tensor) -> Tensor:
        """Return the logits of the vocabulary's tokens."""
        embedding = self.base.tensors["token_embd"]
        return functional.linear(vectors.to(embedding.dtype), embedding).float()

    def forward(self, tokens: Tensor, places: Tensor, sizes: Sequence[int]) -> Tensor:
        """Return the last vectors, (T, width).

        `places`: of the tokens. `sizes`: tokens of the shared beginning, and of each part after it: a part
        reads the beginning and itself.
        """
        tensors, shape = self.base.tensors, self.base.shape
        x = functional.embedding(tokens, tensors["token_embd"]).float()
        half = tensors["blk.0.attn_q"].shape[0] // shape.heads // 2
        speeds = shape.rope_base ** (-torch.arange(half, device=places.device) / half)
        angles = places[:, None].float() * speeds
        turns = angles.cos(), angles.sin()
        for block in range(shape.layers):
            with torch.set_grad_enabled(block >= self.fixed and torch.is_grad_enabled()):
                x = self._block(block, x, turns, sizes)
        return functional.rms_norm(x, x.shape[-1:], tensors["output_norm"], shape.epsilon)

    def _block(self, block: int, x: Tensor, turns: tuple[Tensor, Tensor], sizes: Sequence[int]) -> Tensor:
        tensors, shape = self.base.tensors, self.base.shape

        def normal(name: str) -> Tensor:
            weight = tensors[f"blk.{block}.{name}"]
            return functional.rms_norm(x, weight.shape, weight, shape.epsilon).to(tensors["token_embd"].dtype)

        def heads(name: str, number: int) -> Tensor:
            return self.times(block, name, seen).unflatten(-1, (number, -1)).transpose(-3, -2)

        seen = normal("attn_norm")
        query = _rotate(heads("attn_q", shape.heads), *turns)
        key = _rotate(heads("attn_k", shape.key_heads), *turns)
        mixed = _attention(query, key, heads("attn_v", shape.key_heads), sizes)
        x = x + self.times(block, "attn_output", mixed.transpose(-3, -2).flatten(-2))
        seen = normal("ffn_norm")
        gated = functional.silu(self.times(block, "ffn_gate", seen)) * self.times(block, "ffn_up", seen)
        return x + self.times(block, "ffn_down", gated)


def _rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn neighbouring pairs of the last dimension by their angles."""
    even, odd = x[..., 0::2].float(), x[..., 1::2].float()
    turned = torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1)
    return turned.flatten(-2).to(x.dtype)


def _attention(query: Tensor, key: Tensor, value: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the attention of (heads, T, width).

    Each part by itself, and by plain products: half the time of torch's kernel for CPUs with one mask.
    """
    shared, *parts = sizes
    found, begin = [_attended(query[:, :shared], key[:, :shared], value[:, :shared])], shared
    for size in parts:
        own = slice(begin, begin + size)
        keys, values = (torch.cat((each[:, :shared], each[:, own]), 1) for each in (key, value))
        found.append(_attended(query[:, own], keys, values))
        begin += size
    return torch.cat(found, 1)


def _attended(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return causal attention; the last query is the last key's. Heads of queries share those of keys."""
    heads, asking, width = query.shape
    keys, read = key.shape[:2]
    rows = heads // keys * asking
    scores = torch.bmm(query.reshape(keys, rows, width) * width**-0.5, key.transpose(1, 2))
    later = torch.ones(asking, read, dtype=torch.bool, device=query.device).triu(read - asking + 1)
    weights = scores.view(heads, asking, read).masked_fill(later, -torch.inf).softmax(-1, torch.float32)
    return torch.bmm(weights.to(query.dtype).view(keys, rows, read), value).view(heads, asking, width)


def loss_of(model: Llama, rows: Rows) -> Tensor:
    """Return the weighted mean cross-entropy of the tokens that the model learns."""
    device = model.base.tensors["token_embd"].device
    given = rows.tokens, rows.places, rows.weights.astype(np.float32)
    tokens, places, weights = (torch.from_numpy(each).to(device) for each in given)
    vectors = model(tokens, places, rows.sizes)
    learned = torch.nonzero(weights).flatten()  # none begins a part
    losses = functional.cross_entropy(model.logits(vectors[learned - 1]), tokens[learned], reduction="none")
    return (losses * weights[learned]).sum() / weights.sum()
