"""Train the demonstration model from scratch: `python -m gbnf_server.embedded.train --minutes 45`.

Traces are generated on the fly, so nothing is seen twice. Stages: pure copying (without it nothing is
learnt), single wishes with few tools, then whole plans. Two one-thread processes share each step's rows and
average their gradients: faster on small CPUs than one process with two threads. Muon moves the matrices,
AdamW the embedding and the norms; rates fall linearly, since a constant high rate diverges. Checkpoints let
`--resume` go on.

The data are a function of the seed and of the step; with `--steps` the whole run is, where with `--minutes`
the machine's speed decides how many steps fit.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.multiprocessing as processes
from tokenizers import Tokenizer
from torch import distributed
from torch.nn import functional

from gbnf_server.embedded import tokenizer as tokens
from gbnf_server.embedded.batches import Rows, Stage, rows
from gbnf_server.embedded.copying import write_induction
from gbnf_server.embedded.model import Model, Shape
from gbnf_server.embedded.traces import trace

if TYPE_CHECKING:
    from torch import Tensor

COPIES_BELOW, COPY_MOST = 0.5, 0.05
"""Copying is learnt when its loss is below the first, and given up at this share of the training."""
SHORT_SHARE = 0.1
"""Share of the training that single wishes last, after copying."""
MATRIX_RATE, VECTOR_RATE, LAST_RATE = 0.02, 3e-3, 0.04  # the last as a share of the first
WARM_UP = 60  # steps
SAVE_EVERY = 90.0  # seconds


@dataclass(frozen=True, slots=True)
class Plan:
    """What to train, for how long, where to keep it."""

    out: Path
    seed: int
    minutes: float
    steps: int | None
    resume: bool
    workers: int
    rows_each: int


class Muon(torch.optim.Optimizer):  # type: ignore[misc]  # torch's types are not read
    """Momentum whose update is made orthogonal by Newton-Schulz steps (Jordan et al., 2024)."""

    def __init__(self, parameters: list[torch.nn.Parameter], rate: float, momentum: float = 0.95) -> None:
        super().__init__(parameters, {"lr": rate, "momentum": momentum})

    def step(self, closure: Any = None) -> None:
        """One update of every matrix; there is no closure."""
        del closure
        with torch.no_grad():
            self._steps()

    def _steps(self) -> None:
        for group in self.param_groups:
            shapes: dict[torch.Size, list[torch.nn.Parameter]] = {}
            for parameter in group["params"]:
                wide = parameter.shape if parameter.shape[0] <= parameter.shape[1] else parameter.shape[::-1]
                shapes.setdefault(torch.Size(wide), []).append(parameter)
            for parameters in shapes.values():
                self._step(parameters, group["lr"], group["momentum"])

    def _step(self, parameters: list[torch.nn.Parameter], rate: float, momentum: float) -> None:
        updates = []
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["momentum"] = torch.zeros_like(parameter)
            state["momentum"].lerp_(parameter.grad, 1 - momentum)
            update = parameter.grad.lerp(state["momentum"], momentum)
            updates.append(update.T if update.shape[0] > update.shape[1] else update)
        made = _orthogonal(torch.stack(updates))
        for parameter, update in zip(parameters, made, strict=True):
            tall = parameter.shape[0] > parameter.shape[1]
            scale = max(1.0, parameter.shape[0] / parameter.shape[1]) ** 0.5
            parameter.add_(update.T if tall else update, alpha=-rate * scale)


def _orthogonal(matrices: Tensor) -> Tensor:
    x = matrices.bfloat16()
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * (square @ square)) @ x
    return x.float()


def learn_tokenizer(seed: int) -> Tokenizer:
    """The tokenizer of the training traces."""
    source = random.Random(seed)
    traces = [trace(source) for _ in range(12_000)]
    systems = [one.system() for one in traces[:300]]
    return tokens.learn(systems + [content for one in traces for _, content in one.turns()])


def loss_of(model: Model, batch: Rows) -> Tensor:
    """The weighted mean of the next token's cross-entropy."""
    ids, weights = torch.from_numpy(batch.tokens), torch.from_numpy(batch.weights)
    with torch.autocast("cpu", torch.bfloat16):
        vectors = model(ids)
        counted = weights > 0
        logits = model.logits(vectors[counted])
    following = torch.roll(ids, -1, 1)[counted]
    each = functional.cross_entropy(logits.float(), following, reduction="none")
    return (each * weights[counted]).sum() / weights.sum()


def _worker(rank: int, plan: Plan) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{plan.out}/.meet", rank=rank, world_size=plan.workers
    )
    torch.manual_seed(plan.seed)
    tokenizer = Tokenizer.from_file(str(plan.out / "tokenizer.json"))
    model = Model(Shape())
    write_induction(model)
    matrices = [
        parameter for block in model.blocks for parameter in block.parameters() if parameter.ndim == 2
    ]
    vectors = [p for p in model.parameters() if all(p is not matrix for matrix in matrices)]
    muon = Muon(matrices, MATRIX_RATE)
    adam = torch.optim.AdamW(vectors, VECTOR_RATE, betas=(0.9, 0.98), weight_decay=0.0)
    step, spent, mean, copied = 0, 0.0, 0.0, 2.0  # copied: when copying was learnt, as a share; 2.0: not yet
    saved = plan.out / "checkpoint.pt"
    if plan.resume and saved.exists():
        state = torch.load(saved, weights_only=True)
        model.load_state_dict(state["model"])
        muon.load_state_dict(state["muon"])
        adam.load_state_dict(state["adam"])
        step, spent, mean, copied = state["step"], state["spent"], state["mean"], state["copied"]
    parameters = list(model.parameters())
    last, last_save = time.monotonic(), time.monotonic()
    seen = 0
    while True:
        progress = step / plan.steps if plan.steps else spent / (plan.minutes * 60)
        if progress >= 1:
            break
        if copied > 1 and step > WARM_UP and (mean < COPIES_BELOW or progress > COPY_MOST):
            copied = progress
        stage: Stage = "copy" if copied > 1 else "short" if progress < copied + SHORT_SHARE else "plans"
        rate = min(1.0, (step + 1) / WARM_UP) * (LAST_RATE + (1 - LAST_RATE) * (1 - progress))
        for optimizer, first in ((muon, MATRIX_RATE), (adam, VECTOR_RATE)):
            for group in optimizer.param_groups:
                group["lr"] = first * rate
        source = random.Random(f"{plan.seed} {step} {rank}")
        batch = rows(source, tokenizer, stage, plan.rows_each)
        loss = loss_of(model, batch)
        model.zero_grad()
        loss.backward()
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        now = time.monotonic()
        shared = torch.cat(
            [*(gradient.flatten() for gradient in gradients), torch.tensor([loss.item(), now - last])]
        )
        distributed.all_reduce(shared)
        shared /= plan.workers
        last = now
        place = 0
        for gradient in gradients:
            gradient.copy_(shared[place : place + gradient.numel()].view_as(gradient))
            place += gradient.numel()
        torch.nn.utils.clip_grad_norm_(vectors, 1.0)
        muon.step()
        adam.step()
        step += 1
        spent += float(shared[-1])
        seen += batch.used * plan.workers
        mean = float(shared[-2]) if step == 1 else 0.97 * mean + 0.03 * float(shared[-2])
        if rank == 0 and step % 20 == 0:
            speed = seen / max(now - last_save, 1e-9) if seen else 0
            print(
                f"{spent / 60:6.2f} min  step {step:5}  {stage:6} loss {mean:.4f}  {speed:6.0f} tokens/s",
                flush=True,
            )
        if rank == 0 and now - last_save > SAVE_EVERY:
            _save(plan, model, muon, adam, {"step": step, "spent": spent, "mean": mean, "copied": copied})
            last_save, seen = now, 0
    if rank == 0:
        _save(plan, model, muon, adam, {"step": step, "spent": spent, "mean": mean, "copied": copied})
    distributed.barrier()
    distributed.destroy_process_group()


def _save(plan: Plan, model: Model, muon: Muon, adam: torch.optim.Optimizer, place: dict[str, float]) -> None:
    state = {"model": model.state_dict(), "muon": muon.state_dict(), "adam": adam.state_dict(), **place}
    torch.save(state, plan.out / "checkpoint.tmp")
    (plan.out / "checkpoint.tmp").replace(plan.out / "checkpoint.pt")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=45, help="how long to train (default 45)")
    parser.add_argument(
        "--steps", type=int, help="train so many steps instead: the same model on every machine"
    )
    parser.add_argument("--out", type=Path, default=Path("embedded-training"), help="where checkpoints go")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    parser.add_argument(
        "--workers", type=int, default=min(2, os.cpu_count() or 1), help="one-thread processes"
    )
    parser.add_argument("--rows", type=int, default=3, help="rows of 640 tokens per process and step")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    plan = Plan(
        asked.out.resolve(), asked.seed, asked.minutes, asked.steps, asked.resume, asked.workers, asked.rows
    )
    if not (plan.resume and (plan.out / "tokenizer.json").exists()):
        learn_tokenizer(plan.seed).save(str(plan.out / "tokenizer.json"))
    (plan.out / ".meet").unlink(missing_ok=True)
    processes.spawn(_worker, (plan,), plan.workers)


if __name__ == "__main__":
    main()
