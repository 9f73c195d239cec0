"""The training loop of the demonstration model: stages, optimizers, worker processes, checkpoints.

Traces are generated during training, so no trace is seen twice. Stages: pure copying (without it nothing is
learnt), requests with one part, then whole plans. Two one-thread processes share each step's rows and average
their gradients: faster on small CPUs than one process with two threads. Muon updates the matrices, AdamW the
embedding and the norms; rates fall linearly to almost nothing, since a constant high rate diverges and
accuracy rises most in the last part of the fall.

The data are a function of the seed and of the step, and so is the model, where the machine adds up alike;
with `minutes` the machine's speed decides how many steps there are.
"""

from __future__ import annotations

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

from training import tokenizer as tokens
from training.batches import Rows, Stage, rows
from training.copying import write_induction
from training.gguf_file import load, read, write
from training.model import Model, Shape
from training.traces import trace

if TYPE_CHECKING:
    from torch import Tensor

COPIES_BELOW, COPY_MOST = 0.5, 0.05
"""Copying is learnt when its loss is below the first, and given up at this share of the training."""
SHORT_SHARE = 0.06
"""Share of the training that single wishes last, after copying."""
MATRIX_RATE, VECTOR_RATE, LAST_RATE = 0.02, 3e-3, 0.04  # the last as a share of the first
WARM_UP = 60  # steps
SAVE_EVERY = 90.0  # seconds


@dataclass(frozen=True, slots=True)
class Plan:
    """What to train, how long (`minutes`, or `steps`), and the folder to write to."""

    out: Path
    seed: int
    minutes: float
    steps: int | None
    resume: bool
    workers: int
    rows_each: int
    start: Path | None = None
    rate: float = 1.0
    compiled: bool = True
    device: str = "cpu"


class Muon(torch.optim.Optimizer):  # type: ignore[misc]  # torch's types are not read
    """Momentum whose update is made orthogonal by Newton-Schulz steps (Jordan et al., 2024)."""

    def __init__(self, parameters: list[torch.nn.Parameter], rate: float, momentum: float = 0.95) -> None:
        super().__init__(parameters, {"lr": rate, "momentum": momentum})

    @torch.no_grad()  # type: ignore[untyped-decorator]  # as above
    def step(self, closure: Any = None) -> None:
        """One update of every matrix; there is no closure."""
        del closure
        for group in self.param_groups:
            shapes: dict[torch.Size, list[torch.nn.Parameter]] = {}
            for parameter in group["params"]:
                wide = parameter.shape if parameter.shape[0] <= parameter.shape[1] else parameter.shape[::-1]
                shapes.setdefault(torch.Size(wide), []).append(parameter)
            made = [self._orthogonal_share(parameters, group["momentum"]) for parameters in shapes.values()]
            flat = torch.cat([each.flatten() for each in made])
            if distributed.is_initialized():
                distributed.all_reduce(flat)
            place = 0
            for parameters, each in zip(shapes.values(), made, strict=True):
                updates = flat[place : place + each.numel()].view_as(each)
                place += each.numel()
                for parameter, update in zip(parameters, updates, strict=True):
                    tall = parameter.shape[0] > parameter.shape[1]
                    scale = max(1.0, parameter.shape[0] / parameter.shape[1]) ** 0.5
                    parameter.add_(update.T if tall else update, alpha=-group["lr"] * scale)

    def _orthogonal_share(self, parameters: list[torch.nn.Parameter], momentum: float) -> Tensor:
        """Every worker makes its share of the updates orthogonal; zeros stand for the others' shares."""
        updates = []
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["momentum"] = torch.zeros_like(parameter)
            state["momentum"].lerp_(parameter.grad, 1 - momentum)
            update = parameter.grad.lerp(state["momentum"], momentum)
            updates.append(update.T if update.shape[0] > update.shape[1] else update)
        stacked = torch.stack(updates)
        rank, workers = (
            (distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else (0, 1)
        )
        made = torch.zeros_like(stacked)
        made[rank::workers] = _orthogonal(stacked[rank::workers])
        return made


def _orthogonal(matrices: Tensor) -> Tensor:
    x = matrices.bfloat16()
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * (square @ square)) @ x
    return x.float()


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


def _worker(rank: int, plan: Plan) -> None:
    torch.set_num_threads(1)
    if plan.workers > 1:
        distributed.init_process_group(
            "gloo", init_method=f"file://{plan.out}/.meet", rank=rank, world_size=plan.workers
        )
    torch.manual_seed(plan.seed)
    tokenizer = Tokenizer.from_file(str(plan.out / "tokenizer.json"))
    model = Model(Shape(vocabulary=tokenizer.get_vocab_size()))
    write_induction(model)
    if plan.start is not None:
        model.load_state_dict(read(plan.start)[0])
    model.to(plan.device)
    forward = torch.compile(model, dynamic=False) if plan.compiled else model
    matrices = [
        parameter for block in model.blocks for parameter in block.parameters() if parameter.ndim == 2
    ]
    vectors = [p for p in model.parameters() if all(p is not matrix for matrix in matrices)]
    muon = Muon(matrices, MATRIX_RATE)
    adam = torch.optim.AdamW(vectors, VECTOR_RATE, betas=(0.9, 0.98), weight_decay=0.0)
    # copied: when copying was learnt, as a share of the training; 2.0: not yet
    step, spent, mean, copied = 0, 0.0, 0.0, 2.0 if plan.start is None else -SHORT_SHARE
    saved = plan.out / "checkpoint.pt"
    if plan.resume and saved.exists():
        state = torch.load(saved, weights_only=True)
        model.load_state_dict(state["model"])
        muon.load_state_dict(state["muon"])
        adam.load_state_dict(state["adam"])
        step, spent, mean, copied = state["step"], state["spent"], state["mean"], state["copied"]
    parameters = list(model.parameters())
    last, last_save = time.monotonic(), time.monotonic()
    seen, shown = 0, time.monotonic()
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
                group["lr"] = first * rate * plan.rate
        source = random.Random(f"{plan.seed} {step} {rank}")
        batch = rows(source, tokenizer, stage, plan.rows_each)
        loss = loss_of(model, forward, batch, plan.device)
        model.zero_grad()
        loss.backward()
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        now = time.monotonic()
        shared = torch.cat(
            [
                *(gradient.flatten() for gradient in gradients),
                torch.tensor([loss.item(), now - last], device=plan.device),
            ]
        )
        if plan.workers > 1:
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
            speed = seen / (time.monotonic() - shown)
            seen, shown = 0, time.monotonic()
            print(
                f"{spent / 60:6.2f} min  step {step:5}  {stage:6} loss {mean:.4f}  {speed:6.0f} tokens/s",
                flush=True,
            )
        if rank == 0 and now - last_save > SAVE_EVERY:
            _save(plan, model, muon, adam, {"step": step, "spent": spent, "mean": mean, "copied": copied})
            last_save = now
    if rank == 0:
        _save(plan, model, muon, adam, {"step": step, "spent": spent, "mean": mean, "copied": copied})
    if plan.workers > 1:
        distributed.barrier()
        distributed.destroy_process_group()


def _save(plan: Plan, model: Model, muon: Muon, adam: torch.optim.Optimizer, place: dict[str, float]) -> None:
    state = {"model": model.state_dict(), "muon": muon.state_dict(), "adam": adam.state_dict(), **place}
    torch.save(state, plan.out / "checkpoint.tmp")
    (plan.out / "checkpoint.tmp").replace(plan.out / "checkpoint.pt")


def train(plan: Plan) -> None:
    """Train a model and write `model.gguf`, the checkpoint and the tokenizer to the folder `plan.out`."""
    tokenizer, saved = plan.out / "tokenizer.json", plan.out / "model.gguf"
    plan.out.mkdir(parents=True, exist_ok=True)
    if not (plan.resume and tokenizer.exists()):
        made = read(plan.start)[1] if plan.start else learn_tokenizer(plan.seed)
        made.save(str(tokenizer))
    (plan.out / ".meet").unlink(missing_ok=True)
    processes.spawn(_worker, (plan,), plan.workers)
    write(*load(plan.out), saved)
    print(f"{saved}: {saved.stat().st_size:,} bytes", flush=True)
