"""Train the demonstration model further: `python -m training.train`.

For tools that have changed: the vocabulary and the size of the model stay. Muon updates the matrices, AdamW
the embedding and the norms. `trained.gguf` in the output folder is what llama.cpp loads, and
`gbnf bench --model FILE --suite held-out` evaluates it. Needs the extra `train`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gbnf_server.llama.demo_model import model_path
from gbnf_server.llama.native import NativeModel
from training.batches import Rows, rows
from training.llama import Base, Llama, read_base, write_weights
from training.loop import Learner, Plan, parse_plan, train
from training.source import Source

MATRIX_RATE, VECTOR_RATE, LAST_RATE = 0.008, 1.2e-3, 0.04  # the last as a share of the first
WARM_UP = 60  # steps


class Model(Llama):
    """A model all of whose weights are trained."""

    def __init__(self, base: Base) -> None:
        weights = {name: nn.Parameter(each) for name, each in base.tensors.items()}
        super().__init__(Base(base.shape, dict(weights)))
        self.weights = nn.ParameterDict({name.replace(".", "_"): each for name, each in weights.items()})

    def forward(self, tokens: Tensor, members: Tensor) -> Tensor:
        """Return (B, T, width) for (B, T) tokens. A token reads the earlier ones of its `members`."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        seen = (places[:, None] >= places) & (members[:, None, :, None] == members[:, None, None, :])
        mask = torch.where(seen, 0.0, -1e9)

        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            # on CPUs, compiled, this is several times faster than scaled_dot_product_attention
            scores = torch.matmul(query, key.transpose(-1, -2)).float() * key.shape[-1] ** -0.5 + mask
            return torch.matmul(scores.softmax(-1).to(query.dtype), value)

        return self.vectors(tokens, places, attend)


def loss_of(model: Model, forward: Any, batch: Rows, device: str = "cpu") -> Tensor:
    """Return the weighted mean of the next token's cross-entropy; `forward` is the model, compiled or not."""
    ids, weights = torch.from_numpy(batch.tokens).to(device), torch.from_numpy(batch.weights).to(device)
    with torch.autocast(device, torch.bfloat16):
        vectors = forward(ids, torch.from_numpy(batch.members).to(device))
        counted = weights > 0
        logits = model.logits(vectors[counted])
    following = torch.roll(ids, -1, 1)[counted]
    each = functional.cross_entropy(logits, following, reduction="none")
    return (each * weights[counted]).sum() / weights.sum()


def make(plan: Plan) -> Learner:
    """Return the model with what it learns."""
    start = plan.start or model_path()
    vocabulary = NativeModel(start, vocab_only=True)
    model = Model(read_base(start, torch.float32)).to(plan.device)
    forward = torch.compile(model, dynamic=False)
    weights = model.base.tensors
    is_matrix = {name: each.ndim == 2 and name != "token_embd" for name, each in weights.items()}
    matrices = [each for name, each in weights.items() if is_matrix[name]]
    vectors = [each for name, each in weights.items() if not is_matrix[name]]
    muon = torch.optim.Muon(matrices, weight_decay=0.0)
    adam = torch.optim.AdamW(vectors, betas=(0.9, 0.98), weight_decay=0.0)

    def encode(text: str) -> list[int]:
        return vocabulary.tokenize(text, special=True)

    def losses(source: Source) -> Iterator[Tensor]:
        yield loss_of(model, forward, rows(source, encode, plan.groups), plan.device) * plan.groups

    def export(path: Path) -> None:
        write_weights(weights, start, path)

    return Learner(model, ((muon, MATRIX_RATE), (adam, VECTOR_RATE)), losses, export, WARM_UP, LAST_RATE)


def main() -> None:
    """Run the command line."""
    train(parse_plan(__doc__, out="embedded-training", steps=4000, groups=24), make)


if __name__ == "__main__":
    main()
