"""A small Llama architecture in torch, with the weights that llama.cpp runs.

Shapes: B rows of T tokens, width 256, 4 heads of 64. Invariants: the computation equals llama.cpp's `llama`
graph (RMSNorm, rotary halves before export permutes them, SwiGLU, tied embeddings).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Shape:
    """The model's dimensions. Rows are multiples of 32, which Q8_0 blocks need."""

    vocabulary: int = 3072
    width: int = 256
    layers: int = 4
    heads: int = 4
    hidden: int = 704
    context: int = 1024
    rope_base: float = 10_000.0
    epsilon: float = 1e-5


class Block(nn.Module):  # type: ignore[misc]  # torch's types are not read
    """Attention and feed-forward, each on a normalised copy added back."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, hidden = shape.width, shape.hidden
        self.heads, self.epsilon = shape.heads, shape.epsilon
        self.attn_norm = nn.Parameter(torch.ones(width))
        self.ffn_norm = nn.Parameter(torch.ones(width))
        self.attn_q, self.attn_k, self.attn_v, self.attn_output = (_matrix(width, width) for _ in range(4))
        self.ffn_gate, self.ffn_up, self.ffn_down = (
            _matrix(hidden, width),
            _matrix(hidden, width),
            _matrix(width, hidden),
        )

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor) -> Tensor:
        """Return the vectors after this block. `x`: (rows, length, width)."""
        rows, length, width = x.shape
        normal = functional.rms_norm(x, (width,), self.attn_norm, self.epsilon)

        def heads(weight: Tensor) -> Tensor:
            return functional.linear(normal, weight).view(rows, length, self.heads, -1).transpose(1, 2)

        query, key = _rotate(heads(self.attn_q), cosine, sine), _rotate(heads(self.attn_k), cosine, sine)
        # on CPUs, compiled, this is several times faster than scaled_dot_product_attention
        scores = torch.matmul(query, key.transpose(-1, -2)).float() * key.shape[-1] ** -0.5 + mask
        mixed = torch.matmul(scores.softmax(-1).to(query.dtype), heads(self.attn_v))
        x = x + functional.linear(mixed.transpose(1, 2).reshape(rows, length, width), self.attn_output)
        normal = functional.rms_norm(x, (width,), self.ffn_norm, self.epsilon)
        gated = functional.silu(functional.linear(normal, self.ffn_gate)) * functional.linear(
            normal, self.ffn_up
        )
        return x + functional.linear(gated, self.ffn_down)


class Model(nn.Module):  # type: ignore[misc]  # torch's types are not read
    """Tokens to the vectors before the output layer; `logits` is the output layer, tied to the embedding."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.token_embd = _matrix(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.output_norm = nn.Parameter(torch.ones(shape.width))

    def forward(self, tokens: Tensor, members: Tensor | None = None) -> Tensor:
        """Return (B, T, width) for (B, T) tokens. A token attends to earlier ones of its `members`, by
        default to all."""
        length = tokens.shape[1]
        size = self.shape.width // self.shape.heads // 2
        frequency = self.shape.rope_base ** (
            -torch.arange(size, dtype=torch.float32, device=tokens.device) / size
        )
        place = torch.arange(length, device=tokens.device)
        angle = place[:, None].float() * frequency
        seen = (place[:, None] >= place)[None, None]
        if members is not None:
            seen = seen & (members[:, None, :, None] == members[:, None, None, :])
        mask = torch.where(seen, 0.0, -1e9)
        x = functional.embedding(tokens, self.token_embd)
        cosine, sine = angle.cos(), angle.sin()
        if torch.is_autocast_enabled(tokens.device.type):
            cosine, sine = cosine.bfloat16(), sine.bfloat16()
        for block in self.blocks:
            x = block(x, cosine, sine, mask)
        return functional.rms_norm(x, (x.shape[-1],), self.output_norm, self.shape.epsilon)

    def logits(self, vectors: Tensor) -> Tensor:
        """Return the logits of each token of the vocabulary, from the vectors of `forward`."""
        return functional.linear(vectors, self.token_embd)


def _matrix(rows: int, columns: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(rows, columns))


def _rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)
