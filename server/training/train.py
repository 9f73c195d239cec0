"""Train the demonstration model: `python -m training.train`.

Stages: pure copying (without it nothing is learnt), requests with one part, then whole plans. Muon updates
the matrices, AdamW the embedding and the norms; a constant high rate diverges, and accuracy rises most in the
last part of its fall. `trained.gguf` in the output folder is what llama.cpp loads; the tokenizer is beside.
Needs the extra `train`. `gbnf bench --model FILE --suite held-out` evaluates the file.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer
from torch.nn import functional

from training import tokenizer as tokens
from training.batches import Rows, Stage, rows
from training.copying import write_induction
from training.gguf_file import read, write
from training.loop import Learner, Plan, parse_plan, train
from training.model import Model, Shape
from training.traces import trace

if TYPE_CHECKING:
    from torch import Tensor

    from training.source import Source

COPY_SHARE, SHORT_SHARE = 0.05, 0.06
"""Shares of the training that copying and then single wishes last; none if it begins with a trained model."""
MATRIX_RATE, VECTOR_RATE, LAST_RATE = 0.02, 3e-3, 0.04  # the last as a share of the first
CONTINUED = 0.4
"""Factor of the rates if the training begins with a trained model."""
WARM_UP = 60  # steps


def learn_tokenizer(seed: int) -> Tokenizer:
    """Return the tokenizer of the training traces."""
    source = random.Random(seed)
    return tokens.learn([content for _ in range(12_000) for _, content in trace(source).turns()])


def loss_of(model: Model, forward: Any, batch: Rows, device: str = "cpu") -> Tensor:
    """Return the weighted mean of the next token's cross-entropy; `forward` is the model, compiled or not."""
    ids, weights = torch.from_numpy(batch.tokens).to(device), torch.from_numpy(batch.weights).to(device)
    with torch.autocast(device, torch.bfloat16):
        vectors = forward(ids, torch.from_numpy(batch.members).to(device))
        counted = weights > 0
        logits = model.logits(vectors[counted])
    following = torch.roll(ids, -1, 1)[counted]
    each = functional.cross_entropy(logits.float(), following, reduction="none")
    return (each * weights[counted]).sum() / weights.sum()


def make(plan: Plan) -> Learner:
    """Return the model with what it learns."""
    tokenizer = Tokenizer.from_file(str(plan.out / "tokenizer.json"))
    model = Model(Shape(vocabulary=tokenizer.get_vocab_size()))
    write_induction(model)
    if plan.start is not None:
        model.load_state_dict(read(plan.start)[0])
    model.to(plan.device)
    forward = torch.compile(model, dynamic=False)
    matrices = [each for block in model.blocks for each in block.parameters() if each.ndim == 2]
    vectors = [each for each in model.parameters() if all(each is not matrix for matrix in matrices)]
    muon = torch.optim.Muon(matrices, weight_decay=0.0)
    adam = torch.optim.AdamW(vectors, betas=(0.9, 0.98), weight_decay=0.0)
    factor = 1.0 if plan.start is None else CONTINUED

    def losses(source: Source, done: float) -> Iterator[Tensor]:
        short_until = COPY_SHARE + SHORT_SHARE
        stage: Stage = "copy" if done < COPY_SHARE else "short" if done < short_until else "plans"
        batch = rows(source, tokenizer, stage if plan.start is None else "plans", plan.groups)
        yield loss_of(model, forward, batch, plan.device) * plan.groups

    def export(path: Path) -> None:
        write(model, tokenizer, path)

    optimizers = (muon, MATRIX_RATE * factor), (adam, VECTOR_RATE * factor)
    return Learner(model, optimizers, losses, export, WARM_UP, LAST_RATE)


def main() -> None:
    """Run the command line."""
    plan = parse_plan(__doc__, out="embedded-training", steps=4000, groups=24)
    tokenizer = plan.out / "tokenizer.json"
    if not tokenizer.exists():
        plan.out.mkdir(parents=True, exist_ok=True)
        made = read(plan.start)[1] if plan.start else learn_tokenizer(plan.seed)
        made.save(str(tokenizer))
    train(plan, make)


if __name__ == "__main__":
    main()
