"""A LoRA adapter of a model in torch, and its GGUF file."""

from __future__ import annotations

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

    `fixed`: the blocks without an adapter. `alpha`: the product of the factors counts `alpha / rank`.
    """

    def __init__(self, base: Base, *, rank: int, alpha: float, fixed: int) -> None:
        super().__init__(base)
        self.rank, self.alpha, self.fixed = rank, alpha, fixed
        self.is_adapted = True
        self.factors = nn.ParameterDict()
        for block in range(fixed, base.shape.layers):
            for matrix in MATRICES:
                rows, columns = base.tensors[f"blk.{block}.{matrix}"].shape
                name = f"blk_{block}_{matrix}"
                self.factors[f"{name}_a"] = nn.Parameter(torch.randn(rank, columns) / columns**0.5)
                self.factors[f"{name}_b"] = nn.Parameter(torch.zeros(rows, rank))

    def times(self, block: int, matrix: str, x: Tensor) -> Tensor:
        """Return the product of an adapted matrix with vectors."""
        full = super().times(block, matrix, x)
        if block < self.fixed or not self.is_adapted:
            return full
        first, second = (self.factors[f"blk_{block}_{matrix}_{which}"].to(x.dtype) for which in "ab")
        low = functional.linear(functional.linear(x, first), second)
        return full + low * (self.alpha / self.rank)


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
