"""Train the demonstration model: `python -m training.train`.

Checkpoints let `--resume` continue; `--from` starts from an exported model. At the end the model is exported
to `model.gguf` in the output folder and evaluated. Needs the extra `train`.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from training.batches import ROW
from training.evaluate import report

STEPS = 4000


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=STEPS, help=f"number of steps (default {STEPS})")
    parser.add_argument("--minutes", type=float, help="train for this long instead, whatever the steps")
    parser.add_argument("--out", type=Path, default=Path("embedded-training"), help="output folder")
    parser.add_argument("--seed", type=int, default=0, help="seed of the data and the weights (default 0)")
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint in --out")
    parser.add_argument(
        "--workers", type=int, default=min(2, os.cpu_count() or 1), help="one-thread processes"
    )
    parser.add_argument("--rows", type=int, default=12, help=f"rows of {ROW} tokens per process and step")
    parser.add_argument("--from", dest="start", type=Path, metavar="GGUF", help="start from this model")
    parser.add_argument("--rate", type=float, help="factor of the learning rates (1, or 0.4 with --from)")
    parser.add_argument("--eager", action="store_true", help="do not compile the model: starts sooner")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument("--no-evaluation", action="store_true", help="stop after the export")
    options = parser.parse_args()
    from training.trainer import Plan, train  # noqa: PLC0415  # --help needs no torch

    plan = Plan(
        out=options.out.resolve(),
        seed=options.seed,
        minutes=options.minutes or 0.0,
        steps=None if options.minutes else options.steps,
        resume=options.resume,
        workers=options.workers if options.device == "cpu" else 1,
        rows_each=options.rows,
        start=options.start,
        rate=options.rate or (0.4 if options.start else 1.0),
        compiled=not options.eager,
        device=options.device,
    )
    train(plan)
    if not options.no_evaluation:
        report(plan.out / "model.gguf", 200)


if __name__ == "__main__":
    main()
