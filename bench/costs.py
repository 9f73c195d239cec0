"""What do a million calls cost on 1, 10 and 1,000 GPUs, and what is the first bottleneck? On paper.

    python bench/costs.py [--decode N] [--prefill N] [--prompt N] [--answer N] [--gateway-ms N]

Measured here: the CPU time of a planner's call and of compiling 16 new tools (`scaling.py`). Measured by
`gateway.py`: the CPU time of a gateway's request. Assumed, and options: tokens per second of a GPU with a
batching server, new tokens of a prompt (the rest is in the cache), tokens of an answer, and prices per hour.
Nothing was run on a GPU.

    calls/s             of all GPUs, if nothing else limits them
    GPU, CPU            prices of a million calls; the CPU of a gateway in front
    batches, gateways   processes, each with one core, that keep the GPUs busy
    new tools           gateways, if each request has 16 tools that were never compiled
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from scaling import costs
from tables import new_table, show

GPUS = (1, 10, 1000)
_HOUR_S, _MILLION = 3600, 1_000_000


def main(
    decode: Annotated[float, typer.Option(min=1, help="Tokens a GPU decodes in a second, batched.")] = 3000,
    prefill: Annotated[float, typer.Option(min=1, help="Tokens of prompts it reads in a second.")] = 20_000,
    prompt: Annotated[float, typer.Option(min=0, help="New tokens of a call's prompt.")] = 300,
    answer: Annotated[float, typer.Option(min=1, help="Tokens of a call.")] = 40,
    gateway_ms: Annotated[float, typer.Option(min=0, help="CPU time of a gateway's request.")] = 12.7,
    gpu_price: Annotated[float, typer.Option(min=0, help="Price of a GPU's hour.")] = 2.50,
    core_price: Annotated[float, typer.Option(min=0, help="Price of a core's hour.")] = 0.04,
) -> None:
    """Measure, and print the table."""
    with tempfile.TemporaryDirectory() as folder:
        costs("pool", 8, Path(folder), 2)  # imports
        first, planner_ms = costs("pool", 16, Path(folder), 15)
    compile_ms = first - planner_ms
    gpu_s = prompt / prefill + answer / decode
    print(
        f"A call: {1000 * gpu_s:.0f} ms of a GPU ({1000 * answer / decode:.0f} ms of them decoding), "
        f"{planner_ms:.1f} ms of CPU in a batch, or {gateway_ms:.1f} ms in a gateway; {compile_ms:.0f} ms "
        f"once for 16 new tools. A batch keeps {1000 * gpu_s / planner_ms:.1f} GPUs busy, a gateway "
        f"{1000 * gpu_s / gateway_ms:.1f}.\n"
    )
    table = new_table("GPUs|calls/s|a million, hours|GPU, $|CPU, $|batches|gateways|new tools")
    for number in GPUS:
        rate = number / gpu_s

        def processes(each_ms: float, rate: float = rate) -> str:
            return f"{math.ceil(rate * each_ms / 1000):,}"

        table.add_row(
            f"{number:,}",
            f"{rate:,.0f}",
            f"{_MILLION / rate / _HOUR_S:.3g}",
            f"{_MILLION * gpu_s / _HOUR_S * gpu_price:.2f}",
            f"{_MILLION * gateway_ms / 1000 / _HOUR_S * core_price:.2f}",
            processes(planner_ms),
            processes(gateway_ms),
            processes(gateway_ms + compile_ms),
        )
    show(table)


if __name__ == "__main__":
    typer.run(main)
