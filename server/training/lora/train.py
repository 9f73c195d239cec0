"""Train the adapter of the small real model: `python -m training.lora.train --out FOLDER`.

The conversations are generated during training, so none is seen twice. Each process computes its groups on
one thread, and the gradients are averaged: faster on small CPUs than one process with several threads. The
checkpoint in the output folder is continued; `adapter.gguf` beside it is what llama.cpp loads. Needs the
extra `train`.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.multiprocessing as processes
from torch import Tensor, distributed
from torch.nn import functional

from gbnf_server.llama.native import NativeModel
from gbnf_server.system.model_files import smollm2_path
from training.lora.model import Adapted, read_adapter, read_base, write_adapter
from training.lora.samples import Rows, group
from training.source import Source

RANK, ALPHA, FIRST = 16, 32.0, 10
RATE, WARM_UP, LAST_RATE = 1e-3, 20, 0.05  # of AdamW; steps; the last as a share of the first
SAVE_EVERY = 120.0  # seconds
ABOUT = {
    "name": "gbnf-toolkit tool calls",
    "description": "Teaches SmolLM2-135M-Instruct to call tools that it has never seen.",
    "license": "mit",
    "base_model.0.name": "SmolLM2-135M-Instruct",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to train, and how long: `until` so many steps, the schedule's end.

    `start`: the adapter to begin with, None for a new one. `groups`: of each process and step.
    """

    out: Path
    start: Path | None
    until: int
    seed: int
    workers: int
    groups: int
    device: str
    dtype: torch.dtype


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("adapter-training"), help="output folder")
    parser.add_argument("--from", dest="start", type=Path, metavar="GGUF", help="begin with this adapter")
    parser.add_argument("--steps", type=int, default=600, help="steps in all (default 600)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the data and the weights (default 0)")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--groups", type=int, default=4, help="groups of a step, over all processes")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument("--float32", action="store_true", help="for a CPU without bfloat16")
    options = parser.parse_args()
    workers = options.workers if options.device == "cpu" else 1
    plan = Plan(
        options.out.resolve(),
        options.start,
        options.steps,
        options.seed,
        workers,
        max(1, options.groups // workers),
        options.device,
        torch.float32 if options.float32 else torch.bfloat16,
    )
    plan.out.mkdir(parents=True, exist_ok=True)
    (plan.out / ".meet").unlink(missing_ok=True)
    processes.spawn(_worker, (plan,), plan.workers)


def loss_of(model: Adapted, rows: Rows) -> Tensor:
    """Return the mean cross-entropy of what the assistant says in a group."""
    device = model.base.tensors["token_embd"].device
    tokens, places, trained = (
        torch.from_numpy(each).to(device) for each in (rows.tokens, rows.places, rows.trained)
    )
    vectors = model(tokens, places, np.bincount(rows.parts).tolist())
    saying = torch.nonzero(trained).flatten()  # none begins a group, and what is before one is of its part
    return functional.cross_entropy(model.logits(vectors[saying - 1]), tokens[saying])


def _worker(rank: int, plan: Plan) -> None:
    torch.set_num_threads(1)
    if plan.workers > 1:
        distributed.init_process_group(
            "gloo", init_method=f"file://{plan.out}/.meet", rank=rank, world_size=plan.workers
        )
    torch.manual_seed(plan.seed)
    base_path = smollm2_path()
    vocabulary = NativeModel(base_path, vocab_only=True)
    model = Adapted(read_base(base_path, plan.dtype), rank=RANK, alpha=ALPHA, first=FIRST)
    model.base.tensors.update({name: each.to(plan.device) for name, each in model.base.tensors.items()})
    model.to(plan.device)
    adam = torch.optim.AdamW(model.parameters(), RATE, betas=(0.9, 0.98), weight_decay=0.0)
    saved, step = plan.out / "checkpoint.pt", 0
    if plan.start is not None:
        read_adapter(model, plan.start)
    if saved.exists():
        state = torch.load(saved, weights_only=True)
        model.factors.load_state_dict(state["factors"])
        adam.load_state_dict(state["adam"])
        step = state["step"]
    last = last_save = time.monotonic()
    mean = math.nan
    while step < plan.until:
        rate = min(1.0, (step + 1) / WARM_UP) * (LAST_RATE + (1 - LAST_RATE) * (1 - step / plan.until))
        for parameters in adam.param_groups:
            parameters["lr"] = RATE * rate
        model.zero_grad()
        total = 0.0
        for number in range(plan.groups):
            random = Source(f"{plan.seed} {step} {rank} {number}")  # the same data after an interruption
            loss = loss_of(model, group(random, lambda text: vocabulary.tokenize(text, special=True)))
            (loss / (plan.groups * plan.workers)).backward()
            total += loss.item() / plan.groups
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        if plan.workers > 1:
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            distributed.all_reduce(flat)
            for gradient, part in zip(
                gradients, flat.split([each.numel() for each in gradients]), strict=True
            ):
                gradient.copy_(part.view_as(gradient))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        step += 1
        mean = total if math.isnan(mean) else 0.95 * mean + 0.05 * total
        if rank == 0 and step % 5 == 0:
            now = time.monotonic()
            print(f"step {step:5}  loss {mean:.4f}  {(now - last) / 5:5.1f} s a step", flush=True)
            last = now
        if rank == 0 and (step == plan.until or time.monotonic() - last_save > SAVE_EVERY):
            state = {"factors": model.factors.state_dict(), "adam": adam.state_dict(), "step": step}
            torch.save(state, plan.out / "checkpoint.tmp")
            (plan.out / "checkpoint.tmp").replace(saved)
            write_adapter(model, plan.out / "adapter.gguf", ABOUT)
            last_save = time.monotonic()
    if plan.workers > 1:
        distributed.barrier()
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
