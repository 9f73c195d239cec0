"""The Llama architecture in torch, with the weights that llama.cpp runs: read from a GGUF file, and written.

Shapes: x is (…, T, width) for T tokens; queries, keys and values are (…, heads, T, width of a head). The
computation equals llama.cpp's `llama` graph with the dequantised weights; llama.cpp also quantises the
vectors that it multiplies with quantised weights, so logits differ a little. Rotary pairs are neighbours, as
in the file, so that no weights are permuted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import gguf
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

Attend: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From queries, keys and values to what the queries read."""


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

    def field(name: str) -> Any:
        return reader.fields[f"llama.{name}"].contents()

    shape = Shape(
        int(field("block_count")),
        int(field("attention.head_count")),
        int(field("attention.head_count_kv")),
        float(field("rope.freq_base")),
        float(field("attention.layer_norm_rms_epsilon")),
    )
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
    """Tokens to the vectors before the output layer, which is tied to the embedding."""

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

    def vectors(self, tokens: Tensor, places: Tensor, attend: Attend, *, fixed: int = 0) -> Tensor:
        """Return the last vectors. `places`: of the tokens. The first blocks, `fixed`, get no gradient."""
        tensors, shape = self.base.tensors, self.base.shape
        x = functional.embedding(tokens, tensors["token_embd"]).float()
        half = tensors["blk.0.attn_q"].shape[0] // shape.heads // 2
        speeds = shape.rope_base ** (-torch.arange(half, device=places.device) / half)
        angles = places[:, None].float() * speeds
        turns = angles.cos(), angles.sin()
        with torch.no_grad():
            for block in range(fixed):
                x = self._block(block, x, turns, attend)
        for block in range(fixed, shape.layers):
            x = self._block(block, x, turns, attend)
        return functional.rms_norm(x, x.shape[-1:], tensors["output_norm"], shape.epsilon)

    def _block(self, block: int, x: Tensor, turns: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        tensors, shape = self.base.tensors, self.base.shape

        def normal(name: str) -> Tensor:
            weight = tensors[f"blk.{block}.{name}"]
            return functional.rms_norm(x, weight.shape, weight, shape.epsilon).to(tensors["token_embd"].dtype)

        def heads(name: str, number: int) -> Tensor:
            return self.times(block, name, seen).unflatten(-1, (number, -1)).transpose(-3, -2)

        seen = normal("attn_norm")
        query = _rotate(heads("attn_q", shape.heads), *turns)
        key = _rotate(heads("attn_k", shape.key_heads), *turns)
        mixed = attend(query, key, heads("attn_v", shape.key_heads))
        x = x + self.times(block, "attn_output", mixed.transpose(-3, -2).flatten(-2))
        seen = normal("ffn_norm")
        gated = functional.silu(self.times(block, "ffn_gate", seen)) * self.times(block, "ffn_up", seen)
        return x + self.times(block, "ffn_down", gated)


def _rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn neighbouring pairs of the last dimension by their angles."""
    even, odd = x[..., 0::2].float(), x[..., 1::2].float()
    turned = torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1)
    return turned.flatten(-2).to(x.dtype)
