"""A LoRA adapter of a model in torch, and its GGUF file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import gguf
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from training.llama import Base, Llama

MATRICES: Final = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


class Adapted(Llama):
    """The base model, frozen, and the two factors of a low rank that are added to each matrix of a block.

    `first`: the first block with an adapter; those before it need no gradient. `alpha`: the product of the
    factors counts `alpha / rank`.
    """

    def __init__(self, base: Base, *, rank: int, alpha: float, first: int) -> None:
        super().__init__(base)
        self.rank, self.alpha, self.first = rank, alpha, first
        self.is_adapted = True
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

        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return _attention(query, key, value, sizes)

        return self.vectors(tokens, places, attend, fixed=self.first)

    def times(self, block: int, matrix: str, x: Tensor) -> Tensor:
        """Return the product of an adapted matrix with vectors."""
        full = super().times(block, matrix, x)
        if block < self.first or not self.is_adapted:
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
