"""Time from the command line to the first output: five commands beside an empty Python and typer alone.

    python bench/startup.py [--runs N]

CPU and wall time of a whole process, minimum of N runs, in turn; of "first token", the time until `gbnf run`
with the bundled model prints the first piece of its first call. The compiled bytecode of all modules is
cached, as pip does at installation, and so are the compiled tools. Then tool calls, in a process that has
loaded what it needs: wall time and CPU time of all processes of a call, median of N first ones and of 5 N
later ones. The CPU time is that of Linux's schedstat, without what the supervisor uses at the end.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tables import parser_of, print_heads

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 40},
        "mail": {"type": "string", "format": "email"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 5},
        "zip": {"type": "string", "pattern": "^[0-9]{5}$"},
    },
    "required": ["name"],
}
GBNF = ["-m", "gbnf_server"]
RUN = [*GBNF, "run", "what time is it?"]
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import typer": ["-c", "import typer"],
    "gbnf --help": [*GBNF, "--help"],
    "gbnf compile --schema": [*GBNF, "compile", "--schema", "schema.json"],
    "gbnf compile": [*GBNF, "compile"],
    "gbnf run, first token": [*RUN, "--stream", "--json"],
    "gbnf run": RUN,
}
EXECUTOR = """import os
def used(pid): return int(open(f"/proc/{pid}/schedstat").read().split()[0])
def run(arguments, context): return {"parent": os.getppid(), "used": used("self") + used(os.getppid())}
"""
CALLS = """import json, os, sys, time
from pathlib import Path
from gbnf.tools import Tool
from gbnf_server.executors import Context, Workspace, fork_server, run_executor
own = Tool.from_mapping({"name": "own", "description": "", "args": {}}, Path("own/manifest.toml").absolute())
context, times, servers = Context(Workspace("space")), [], 0
for _ in range(6):
    wall, used = time.perf_counter(), time.process_time()
    result = run_executor(own, {}, context)
    wall, used = time.perf_counter() - wall, time.process_time() - used
    [server] = fork_server._servers.values()
    before, servers = servers, int(Path(f"/proc/{server.process.pid}/schedstat").read_text().split()[0])
    times.append((wall, used + (result["used"] + servers - before) / 1e9))
    if len(times) == 1:
        time.sleep(1)  # until it has imported everything
        servers = int(Path(f"/proc/{server.process.pid}/schedstat").read_text().split()[0])
print(json.dumps(times))
"""


def calls(folder: str) -> list[tuple[float, float]]:
    """Return the wall time and the CPU time of the first calls of a new process."""
    done = subprocess.run([sys.executable, "-c", CALLS], check=True, capture_output=True, cwd=folder)
    times: list[tuple[float, float]] = json.loads(done.stdout)
    return times


def cpu_time(process: int) -> float:
    """Return the CPU time of the threads of a process that runs, in seconds (Linux)."""
    threads = Path(f"/proc/{process}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def measure(arguments: list[str], folder: str) -> tuple[float, float]:
    """Return the wall time and the CPU time of a process, in seconds; with `--stream` to the first token."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": f"{folder}/bytecode", "PYTHONDONTWRITEBYTECODE": ""}
    before, started, until_first = os.times(), time.perf_counter(), None
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        for line in process.stdout or ():
            if until_first is None and b'"text_written"' in line:
                until_first = time.perf_counter() - started, cpu_time(process.pid)
    wall, after = time.perf_counter() - started, os.times()
    assert process.returncode == 0
    return until_first or (wall, sum(after[2:4]) - sum(before[2:4]))


def main() -> None:
    """Measure, and print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "schema.json").write_text(json.dumps(SCHEMA))
        (own := Path(folder, "own")).mkdir()
        (own / "executor.py").write_text(EXECUTOR)
        called = []
        for _ in range(runs + 1):  # the first fills the caches
            for name, arguments in COMMANDS.items():
                times[name].append(measure(arguments, folder))
            called.append(calls(folder))
    print_heads("command | wall time, s | CPU time, s")
    for name, rounds in times.items():
        wall, cpu = (min(values) for values in zip(*rounds[1:], strict=True))
        print(f"| `{name}` | {wall:.2f} | {cpu:.2f} |")
    rows = {
        "python -c pass": times["python -c pass"][1:],
        "a tool call, the first": [rounds[0] for rounds in called[1:]],
        "a tool call, later": [time for rounds in called[1:] for time in rounds[1:]],
    }
    print()
    print_heads("process | wall time, ms | CPU time, ms")
    for name, rounds in rows.items():
        wall, cpu = (1000 * statistics.median(values) for values in zip(*rounds, strict=True))
        print(f"| {name} | {wall:.1f} | {cpu:.1f} |")


if __name__ == "__main__":
    main()
