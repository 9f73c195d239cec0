"""The base model in torch, with a LoRA adapter: the weights that llama.cpp runs, read from its GGUF file.

Shapes: T tokens of one packed row, width 576, 9 heads of 64 and 3 of keys. The computation equals llama.cpp's
`llama` graph with the dequantised weights; llama.cpp also quantises the vectors that it multiplies with
quantised weights, so logits differ a little. Rotary pairs are neighbours, as in the file, so that neither
weights nor adapters are permuted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

MATRICES: Final = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


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


class Adapted(nn.Module):  # type: ignore[misc]  # torch's types are not read
    """The base model, frozen, and the two factors of a low rank that are added to each matrix of a block.

    `first`: the first block with an adapter; those before it need no gradient. `alpha`: the product of the
    factors counts `alpha / rank`.
    """

    def __init__(self, base: Base, *, rank: int, alpha: float, first: int) -> None:
        super().__init__()
        self.base, self.rank, self.alpha, self.first = base, rank, alpha, first
        self.factors = nn.ParameterDict()
        for block in range(first, base.shape.layers):
            for matrix in MATRICES:
                rows, columns = base.tensors[f"blk.{block}.{matrix}"].shape
                name = f"blk_{block}_{matrix}"
                self.factors[f"{name}_a"] = nn.Parameter(torch.randn(rank, columns) / columns**0.5)
                self.factors[f"{name}_b"] = nn.Parameter(torch.zeros(rows, rank))

    def forward(self, tokens: Tensor, places: Tensor, sizes: Sequence[int]) -> Tensor:
        """Return the last vectors, (T, width).

        `places`: of the tokens. `sizes`: tokens of the shared beginning, and of each part after it: a part
        reads the beginning and itself.
        """
        tensors, shape = self.base.tensors, self.base.shape
        vectors = tensors["token_embd"][tokens].float()
        half = tensors["blk.0.attn_q"].shape[0] // shape.heads // 2
        speeds = shape.rope_base ** (-torch.arange(half, device=places.device) / half)
        angles = places[:, None].float() * speeds
        turns = angles.cos(), angles.sin()
        with torch.no_grad():
            for block in range(self.first):
                vectors = self._block(block, vectors, turns, sizes)
        for block in range(self.first, shape.layers):
            vectors = self._block(block, vectors, turns, sizes)
        return functional.rms_norm(vectors, vectors.shape[-1:], tensors["output_norm"], shape.epsilon)

    def logits(self, vectors: Tensor) -> Tensor:
        """Return the logits, (T, vocabulary); the embedding is also the output matrix."""
        embedding = self.base.tensors["token_embd"]
        return functional.linear(vectors.to(embedding.dtype), embedding).float()

    def _block(
        self, block: int, vectors: Tensor, turns: tuple[Tensor, Tensor], sizes: Sequence[int]
    ) -> Tensor:
        tensors, shape, count = self.base.tensors, self.base.shape, len(vectors)

        def normal(name: str) -> Tensor:
            weight = tensors[f"blk.{block}.{name}"]
            return functional.rms_norm(vectors, weight.shape, weight, shape.epsilon)

        def heads(name: str, number: int) -> Tensor:
            return self._times(block, name, x).view(count, number, -1).transpose(0, 1)

        x = normal("attn_norm").to(tensors["token_embd"].dtype)
        query = _rotate(heads("attn_q", shape.heads), *turns)
        key = _rotate(heads("attn_k", shape.key_heads), *turns)
        value = heads("attn_v", shape.key_heads)
        mixed = _attention(query, key, value, sizes).transpose(0, 1).reshape(count, -1)
        vectors = vectors + self._times(block, "attn_output", mixed)
        x = normal("ffn_norm").to(x.dtype)
        gated = functional.silu(self._times(block, "ffn_gate", x)) * self._times(block, "ffn_up", x)
        return vectors + self._times(block, "ffn_down", gated)

    def _times(self, block: int, matrix: str, x: Tensor) -> Tensor:
        full = functional.linear(x, self.base.tensors[f"blk.{block}.{matrix}"])
        if block < self.first:
            return full
        first, second = (self.factors[f"blk_{block}_{matrix}_{which}"].to(x.dtype) for which in "ab")
        low = functional.linear(functional.linear(x, first), second)
        return full + low * (self.alpha / self.rank)


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
    scores = torch.bmm(query.reshape(keys, -1, width) * width**-0.5, key.transpose(1, 2))
    later = torch.ones(asking, read, dtype=torch.bool, device=query.device).triu(read - asking + 1)
    weights = scores.view(heads, asking, read).masked_fill(later, -torch.inf).softmax(-1, torch.float32)
    return torch.bmm(weights.to(query.dtype).view(keys, -1, read), value).view(heads, asking, width)


def _rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn neighbouring pairs of (heads, T, width) by their angles."""
    even, odd = x[..., 0::2].float(), x[..., 1::2].float()
    turned = torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1)
    return turned.flatten(-2).to(x.dtype)


def write_adapter(model: Adapted, path: Path, about: dict[str, str]) -> None:
    """Write the adapter as llama.cpp reads it. `about`: general metadata by name."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    for name, text in about.items():
        writer.add_string(f"general.{name}", text)
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", model.alpha)
    for name, factor in model.factors.items():
        _, block, matrix = name.rsplit("_", 1)[0].split("_", 2)
        tensor = f"blk.{block}.{matrix}.weight.lora_{name[-1]}"
        writer.add_tensor(tensor, factor.detach().cpu().numpy().astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_adapter(model: Adapted, path: Path) -> None:
    """Load the factors of an adapter that `write_adapter` has written."""
    for tensor in gguf.GGUFReader(path).tensors:
        _, block, matrix, _, which = tensor.name.split(".")
        name = f"blk_{block}_{matrix}_{which.removeprefix('lora_')}"
        model.factors[name].data.copy_(torch.from_numpy(np.array(tensor.data, np.float32)))
