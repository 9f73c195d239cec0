"""The weights of the demonstration model, between its GGUF file and torch.

Invariant: the rows of the query and key matrices are permuted from rotary halves to the neighbouring pairs of
llama.cpp's `llama` graph (convert_hf_to_gguf.py, `LlamaModel.permute`).
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch

from training.model import Model


def read(path: Path) -> dict[str, torch.Tensor]:
    """Return the weights of a GGUF file, for `Model.load_state_dict`."""
    reader = gguf.GGUFReader(path)
    heads = int(reader.fields["llama.attention.head_count"].contents())
    weights: dict[str, torch.Tensor] = {}
    for tensor in reader.tensors:
        name = tensor.name.removesuffix(".weight").replace("blk.", "blocks.")
        weight = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if name.endswith(("attn_q", "attn_k")):
            rows, columns = weight.shape  # (head, pair, half) -> (head, half, pair)
            weight = weight.reshape(heads, -1, 2, columns).swapaxes(1, 2).reshape(rows, columns)
        weights[name] = torch.from_numpy(np.array(weight, dtype=np.float32))
    return weights


def write(model: Model, like: Path, path: Path) -> None:
    """Write the weights in their places of the file `like`, whose vocabulary and metadata stay."""
    content = bytearray(like.read_bytes())
    weights = model.state_dict()
    for tensor in gguf.GGUFReader(like).tensors:
        name = tensor.name.removesuffix(".weight").replace("blk.", "blocks.")
        weight = weights[name].float().cpu().numpy()
        if name.endswith(("attn_q", "attn_k")):
            rows, columns = weight.shape  # (head, half, pair) -> (head, pair, half)
            weight = weight.reshape(model.shape.heads, 2, -1, columns).swapaxes(1, 2).reshape(rows, columns)
        if weight.ndim == 2:
            weight = gguf.quants.quantize(np.ascontiguousarray(weight), tensor.tensor_type)
        begin = tensor.data_offset
        content[begin : begin + tensor.n_bytes] = np.ascontiguousarray(weight).tobytes()
    path.write_bytes(content)
