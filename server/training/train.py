"""Train the demonstration model further: `python -m training.train`.

For tools that have changed: the vocabulary and the size of the model stay. Muon updates the matrices, AdamW
the embedding and the norms. `trained.gguf` in the output folder is what llama.cpp loads, and
`gbnf bench --model FILE --suite held-out` evaluates it. Needs the extra `train`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import torch
from torch import Tensor, nn

from gbnf_server.llama.demo_model import model_path
from gbnf_server.llama.native import NativeModel
from training.llama import Base, Llama, loss_of, read_base, write_weights
from training.loop import Learner, Plan, parse_plan, train
from training.rows import Conversation, rows_of
from training.source import Source
from training.traces import Trace, trace

MATRIX_RATE, VECTOR_RATE, LAST_RATE = 0.008, 1.2e-3, 0.04  # the last as a share of the first
WARM_UP = 60  # steps


ANSWER_WEIGHT = 0.4
"""Loss weight of the last turn: an answer is long, and a clumsy one does less harm than a wrong call."""
LONGEST = 640
"""Tokens of a conversation; longer ones are skipped. A group has as many."""


def conversation(made: Trace, encode: Callable[[str], list[int]]) -> Conversation:
    """Return the tokens of a trace."""
    turns = [("system", made.system()), *made.turns()]
    found: Conversation = []
    for place, (role, content) in enumerate(turns):
        says = role == "assistant" and place // 2 > made.given
        weight = ANSWER_WEIGHT if place == len(turns) - 1 and made.steps else 1.0
        head, *said = encode(f"<|{role}|>{content}<|end|>")  # the mark of the role is part of the prompt
        found += [(head, 0.0), *((token, weight if says else 0.0) for token in said)]
    return found


class Model(Llama):
    """A model all of whose weights are trained."""

    def __init__(self, base: Base) -> None:
        super().__init__(Base(base.shape, {name: nn.Parameter(each) for name, each in base.tensors.items()}))
        self.weights = nn.ParameterList(self.base.tensors.values())


def make(plan: Plan) -> Learner:
    """Return the model with what it learns."""
    start = plan.start or model_path()
    vocabulary = NativeModel(start, vocab_only=True)
    model = Model(read_base(start, torch.float32)).to(plan.device)
    weights = model.base.tensors
    is_matrix = {name: each.ndim == 2 and name != "token_embd" for name, each in weights.items()}
    matrices = [each for name, each in weights.items() if is_matrix[name]]
    vectors = [each for name, each in weights.items() if not is_matrix[name]]
    muon = torch.optim.Muon(matrices, weight_decay=0.0)
    adam = torch.optim.AdamW(vectors, betas=(0.9, 0.98), weight_decay=0.0)

    def encode(text: str) -> list[int]:
        return vocabulary.tokenize(text, special=True)

    def losses(source: Source) -> Iterator[Tensor]:
        drawn = (conversation(trace(source), encode) for _ in count())
        rows = rows_of((each for each in drawn if len(each) <= LONGEST), LONGEST * plan.groups)
        with torch.autocast(plan.device, torch.bfloat16):
            yield loss_of(model, rows) * plan.groups

    def export(path: Path) -> None:
        write_weights(weights, start, path)

    return Learner(model, ((muon, MATRIX_RATE), (adam, VECTOR_RATE)), losses, export, WARM_UP, LAST_RATE)


if __name__ == "__main__":
    train(make, parse_plan(__doc__, out="embedded-training", steps=4000, groups=24))
