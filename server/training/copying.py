"""Initial weights that can already copy: an induction circuit.

The values of a request have to be copied into calls, and learning that from random weights takes most of a
short training. So the attention of two layers is set by hand (Olsson et al., 2022, *In-context Learning and
Induction Heads*): heads of the first write each token's *previous* token into the free half of the stream;
heads of the second attend to positions whose previous token is the current one, and write the token there.
Training may change all of it.

The stream: dimension 0 is constant, so that heads can attend by position alone; 1 to 127 hold the token; 128
to 255 are free, and get the previous token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from training.model import Model

SPREAD = 0.07
"""Standard deviation of the embedding's entries."""
CONSTANT = 4.0
"""The constant dimension, in units of SPREAD."""
POSITION_SHARPNESS, MATCH_SHARPNESS, COPY_GAIN = 12.0, 3.0, 4.0


@torch.no_grad()  # type: ignore[untyped-decorator]  # torch's types are not read
def write_induction(model: Model) -> None:
    """Set the embedding and the first two layers' attention of a fresh model."""
    shape = model.shape
    size, half = shape.width // shape.heads, shape.width // 2
    model.token_embd.normal_(0, SPREAD)
    model.token_embd[:, half:] = 0
    # of equal norm, otherwise attention by position would favour tokens of a small norm
    model.token_embd *= SPREAD * half**0.5 / model.token_embd.norm(dim=1, keepdim=True)
    model.token_embd[:, 0] = CONSTANT * SPREAD
    frequencies = shape.rope_base ** (-torch.arange(size // 2, dtype=torch.float32) / (size // 2))
    previous, induction = model.blocks[0], model.blocks[1]
    for head in range(half // size):
        rows = slice(head * size, (head + 1) * size)
        for weight in (previous.attn_q, previous.attn_k, previous.attn_v):
            weight[rows] = 0
        for pair in range(size // 4):  # fast rotations distinguish neighbours
            start = head * size + pair
            strength = POSITION_SHARPNESS / CONSTANT * 0.75
            previous.attn_k[start, 0] = strength
            previous.attn_q[start, 0] = strength * frequencies[pair].cos()
            previous.attn_q[start + size // 2, 0] = -strength * frequencies[pair].sin()
        previous.attn_v[rows, rows] = torch.eye(size)
        previous.attn_output[half + head * size : half + (head + 1) * size, rows] = torch.eye(size) * SPREAD
    induction.attn_q.zero_()
    induction.attn_k.zero_()
    induction.attn_v.zero_()
    quiet = max(7, size * 5 // 32)
    slow = [pair + side for pair in range(size // 2 - quiet, size // 2) for side in (0, size // 2)]
    for head in range(shape.heads):
        start = head * size
        compared = torch.randperm(half - 1)[: len(slow)] + 1
        for row, dimension in zip(
            slow, compared.tolist(), strict=True
        ):  # slow rotations: almost independent of the distance
            induction.attn_q[start + row, dimension] = MATCH_SHARPNESS
            induction.attn_k[start + row, half + dimension] = MATCH_SHARPNESS
        width = half // shape.heads
        carried = slice(head * width, (head + 1) * width)
        induction.attn_v[start : start + width, carried] = torch.eye(width)
        induction.attn_output[carried, start : start + width] = torch.eye(width) * SPREAD * COPY_GAIN
    induction.attn_output[0] = 0
