"""Time from the command line to the first output: three commands beside an empty Python and typer alone.

    python bench/startup.py [--runs N]

CPU and wall time of a whole process, minimum of N runs, in turn. `gbnf run` loads the bundled model, answers
one request with a tool in a process of its own, and ends.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time

from tables import print_heads

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import typer": ["-c", "import typer"],
    "gbnf --help": ["-m", "gbnf_server", "--help"],
    "gbnf compile": ["-m", "gbnf_server", "compile"],
    "gbnf run": ["-m", "gbnf_server", "run", "what time is it?"],
}


def measure(arguments: list[str], folder: str) -> tuple[float, float]:
    """Return the wall time and the CPU time of a process, in seconds."""
    before, started = os.times(), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, cwd=folder)
    wall, after = time.perf_counter() - started, os.times()
    return wall, sum(after[2:4]) - sum(before[2:4])


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(runs + 1):  # the first fills the caches of the file system
            for name, arguments in COMMANDS.items():
                times[name].append(measure(arguments, folder))
    print_heads("command | wall time, s | CPU time, s")
    for name, each in times.items():
        wall, cpu = (min(values) for values in zip(*each[1:], strict=True))
        print(f"| `{name}` | {wall:.2f} | {cpu:.2f} |")


if __name__ == "__main__":
    main()
