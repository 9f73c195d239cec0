"""Train the adapter of the small real model: `python -m training.lora.train --out FOLDER`.

`trained.gguf` in the output folder is what llama.cpp loads. Needs the extra `train`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path

import torch
from llama_cpp import Llama
from torch import Tensor
from torch.nn import functional

from gbnf_server.llama.native import NativeModel
from gbnf_server.llama.process_globals import patch_default_model_params
from gbnf_server.system.model_files import smollm2_path
from training.llama import loss_of, read_base
from training.loop import Learner, Plan, parse_plan, train
from training.lora.model import Adapted, read_adapter, write_adapter
from training.lora.samples import group
from training.source import Source
from training.vocabulary import WORDS

RANK, ALPHA, FIXED = 16, 32.0, 10
RATE, WARM_UP, LAST_RATE = 1e-3, 20, 0.05  # of AdamW; steps; the last as a share of the first
TEXTS, LENGTH, WEIGHT = 20, 300, 0.15  # texts of the base model, their tokens, and what their change counts
ABOUT = {
    "name": "gbnf-toolkit tool calls",
    "description": "Teaches SmolLM2-135M-Instruct to call tools that it has never seen.",
    "license": "mit",
    "base_model.0.name": "SmolLM2-135M-Instruct",
}


def change_of(model: Adapted, tokens: Tensor) -> Tensor:
    """Return the mean Kullback-Leibler divergence of the next token from the base model's, in nats."""

    def likely() -> Tensor:
        places = torch.arange(len(tokens), device=tokens.device)
        return model.logits(model(tokens, places, (len(tokens),))).log_softmax(-1)

    model.is_adapted = False
    with torch.no_grad():
        base = likely()
    model.is_adapted = True
    return functional.kl_div(likely(), base, reduction="batchmean", log_target=True)


def make(plan: Plan) -> Learner:
    """Return the adapted model with what it learns."""
    base_path = smollm2_path()
    vocabulary = NativeModel(base_path, vocab_only=True)
    model = Adapted(read_base(base_path, torch.bfloat16), rank=RANK, alpha=ALPHA, fixed=FIXED)
    model.base.tensors.update({name: each.to(plan.device) for name, each in model.base.tensors.items()})
    model.to(plan.device)
    if plan.start is not None:
        read_adapter(model, plan.start)
    adam = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.0)

    patch_default_model_params()
    writer = Llama(str(base_path), n_ctx=LENGTH + 64, n_threads=1, verbose=False)

    @cache
    def plain_text(number: int) -> Tensor:
        """Return a text of the base model, which the adapted model is to write with the same likelihood."""
        begin = writer.tokenize(f"The {Source(number).choice(WORDS['en'])}".encode(), add_bos=False)
        writer.set_seed(number)
        text = islice(writer.generate(begin, top_k=0, top_p=0.98, temp=1.0), LENGTH)
        return torch.tensor([*begin, *text], device=plan.device)

    def losses(source: Source) -> Iterator[Tensor]:
        yield WEIGHT * change_of(model, plain_text(source.randrange(TEXTS)))
        for _ in range(plan.groups):
            yield loss_of(model, group(source, lambda text: vocabulary.tokenize(text, special=True)))

    def export(path: Path) -> None:
        write_adapter(model, path, ABOUT)

    return Learner(model, ((adam, RATE),), losses, export, WARM_UP, LAST_RATE)


if __name__ == "__main__":
    train(make, parse_plan(__doc__, out="adapter-training", steps=600, groups=4))
