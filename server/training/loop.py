"""The training loop: worker processes, learning rates, checkpoints.

Each process computes its part of a step on one thread, and the gradients are averaged: faster on small CPUs
than one process with several threads. The checkpoint in the output folder is continued. Data are generated
during training, from the seed and the step, so none is seen twice, and an interruption changes nothing.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
import torch.multiprocessing as processes
from torch import Tensor, distributed, nn
from torch.nn.utils import clip_grad_norm_, parameters_to_vector, vector_to_parameters

from training.source import Source

SAVE_EVERY = 120.0  # seconds


@dataclass(frozen=True, slots=True)
class Plan:
    """What to train, and how long: `until` so many steps, the schedule's end.

    `start`: the file to begin with, None for new weights. `groups`: of data, of each process and step.
    """

    out: Path
    start: Path | None
    until: int
    seed: int
    workers: int
    groups: int
    device: str


@dataclass(frozen=True, slots=True)
class Learner:
    """What the loop needs of a model.

    `optimizers`: each with its highest rate. `losses`: of one process in one step, for a random source.
    `export`: writes the file that llama.cpp loads. Rates rise for `warm_up` steps and fall linearly to the
    share `last_rate`.
    """

    module: nn.Module
    optimizers: tuple[tuple[torch.optim.Optimizer, float], ...]
    losses: Callable[[Source], Iterator[Tensor]]
    export: Callable[[Path], None]
    warm_up: int
    last_rate: float


MakeLearner: TypeAlias = Callable[[Plan], Learner]


def parse_plan(description: str | None, *, out: str, steps: int, groups: int) -> Plan:
    """Return the plan of a command line. `groups`: by default, over all processes."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path(out), help=f"output folder (default {out})")
    parser.add_argument("--from", dest="start", type=Path, metavar="GGUF", help="begin with this file")
    parser.add_argument("--steps", type=int, default=steps, help=f"steps in all (default {steps})")
    parser.add_argument("--seed", type=int, default=0, help="seed of the data and the weights (default 0)")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument(
        "--groups", type=int, default=groups, help=f"groups of data in a step (default {groups})"
    )
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    given = parser.parse_args()
    workers = given.workers if given.device == "cpu" else 1
    each = max(1, given.groups // workers)
    return Plan(given.out.resolve(), given.start, given.steps, given.seed, workers, each, given.device)


def train(make: MakeLearner, plan: Plan) -> None:
    """Train until the plan's end. `make`: makes the model, in each process."""
    plan.out.mkdir(parents=True, exist_ok=True)
    (plan.out / ".meet").unlink(missing_ok=True)
    processes.spawn(_work, (plan, make), plan.workers)


def _work(rank: int, plan: Plan, make: MakeLearner) -> None:
    torch.set_num_threads(1)
    meeting = f"file://{plan.out}/.meet"
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=plan.workers)
    torch.manual_seed(plan.seed)
    learner = make(plan)
    saved, step, last, shown = plan.out / "checkpoint.pt", 0, time.monotonic(), 0.0
    if saved.exists():
        state = torch.load(saved, weights_only=True)
        step = state["step"]
        learner.module.load_state_dict(state["module"])
        for (optimizer, _), each in zip(learner.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(each)
    parameters = [each for each in learner.module.parameters() if each.requires_grad]
    begun = time.monotonic()
    while step < plan.until:
        fallen = (1 - learner.last_rate) * step / plan.until
        rate = min(1.0, (step + 1) / learner.warm_up) * (1 - fallen)
        for optimizer, highest in learner.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = highest * rate
        learner.module.zero_grad()
        total = 0.0
        for loss in learner.losses(Source(f"{plan.seed} {step} {rank}")):
            (loss / (plan.groups * plan.workers)).backward()
            total += loss.item() / plan.groups
        gradients = [each.grad for each in parameters if each.grad is not None]
        shared = parameters_to_vector(gradients)
        distributed.all_reduce(shared)
        vector_to_parameters(shared, gradients)
        for optimizer, _ in learner.optimizers:
            clip_grad_norm_([each for group in optimizer.param_groups for each in group["params"]], 1.0)
            optimizer.step()
        step += 1
        shown = total if not shown else 0.95 * shown + 0.05 * total
        if rank == 0 and step % 5 == 0:
            now = time.monotonic()
            print(f"step {step:5}  loss {shown:.4f}  {(now - begun) / 5:5.1f} s a step", flush=True)
            begun = now
        if rank == 0 and (step == plan.until or time.monotonic() - last > SAVE_EVERY):
            optimizers = [optimizer.state_dict() for optimizer, _ in learner.optimizers]
            state = {"module": learner.module.state_dict(), "optimizers": optimizers, "step": step}
            torch.save(state, plan.out / "checkpoint.tmp")
            (plan.out / "checkpoint.tmp").replace(saved)
            learner.export(plan.out / "trained.gguf")
            last = time.monotonic()
    distributed.barrier()
    distributed.destroy_process_group()
