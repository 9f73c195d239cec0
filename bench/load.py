"""What is lost, doubled or leaked in a long run, while llama-server is killed again and again?

    python bench/load.py [--minutes 60] [--every 60]

One llama-server runs the bundled model. Every `--every` seconds it is killed, and started again at its
address. Meanwhile three clients, each with a key of its own, ask `gbnf serve` in front of it for calls;
`gbnf batch` makes a folder for each of its requests, and is started again when it stops; and three clients
call a tool of `gbnf mcp`, which appends a line to a file. An error is `of the kill` if the server was away
while it was asked, or within five seconds. `lost`: requests without an outcome, and folders and lines that
are missing though the call is done. `doubled`: calls that were executed twice. Memory in MiB and open files
of each process, the median of the first and of the last fifth of the run.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from gateway import running
from gbnf_server.executors import Context, Workspace, run_executor
from gbnf_server.llama.demo_model import model_path
from gbnf_server.llama.server_build import start
from gbnf_server.mcp.client import mcp_tools
from gbnf_server.system.errors import GbnfServerError
from tables import new_table, parser_of, show

KEYS = ("first", "second", "third")
GRACE_S, LIMIT_S, SAMPLE_S = 5.0, 120.0, 5.0
TOOLS = '''
"""A tool that leaves a trace."""

from gbnf_server.executors import Context


def note(number: int, context: Context) -> dict[str, object]:
    """Note a number."""
    with (context.workspace.root / "notes.txt").open("a") as notes:
        notes.write(f"{number}\\\\n")
    return {"entries": [str(number)]}
'''
CALL = {
    "type": "function",
    "function": {
        "name": "get_now",
        "description": "Tell the current date and time.",
        "parameters": {
            "type": "object",
            "properties": {"timezone": {"type": "string", "enum": ["UTC", "Europe/Rome", "Asia/Tokyo"]}},
            "required": ["timezone"],
        },
    },
}


@dataclass
class Server:
    """A llama-server that is killed. `away`: when it was, as seconds of the monotonic clock."""

    every: float
    away: list[tuple[float, float]] = field(default_factory=list)

    @contextmanager
    def at_one_address(self, stop: threading.Event) -> Iterator[str]:
        """Run it until `stop`, and yield its URL."""
        model, key = model_path(), "load"
        process = start(model, slots=4, api_key=key)
        port = int(process.url.rpartition(":")[2])

        def kill() -> None:
            nonlocal process
            while not stop.wait(self.every):
                begun = time.monotonic()
                for child in psutil.Process(process.process.pid).children(recursive=True):
                    child.kill()
                process.stop()
                process = start(model, slots=4, api_key=key, port=port)
                self.away.append((begun, time.monotonic()))

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            yield process.url
        finally:
            stop.set()
            killer.join()
            process.stop()

    def was_away(self, begun: float, ended: float) -> bool:
        """Whether the server was away in this time, or is about to be found to have been."""
        return any(begun <= last + GRACE_S and first <= ended for first, last in self.away)


@dataclass
class Clients:
    """What clients have asked, and what became of it."""

    server: Server
    asked: int = 0
    answered: int = 0
    errors: list[tuple[float, float, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, ask: Callable[[int], str], stop: threading.Event) -> None:
        """Ask until `stop`. `ask` takes a number, and returns what was wrong with the answer, or ""."""
        while not stop.is_set():
            with self.lock:
                self.asked += 1
                number = self.asked
            begun = time.monotonic()
            problem = ask(number)
            with self.lock:
                if problem:
                    self.errors.append((begun, time.monotonic(), problem))
                else:
                    self.answered += 1
            if problem:
                stop.wait(0.2)

    def unexplained(self) -> list[str]:
        """Return the errors that no kill explains."""
        return [text for begun, ended, text in self.errors if not self.server.was_away(begun, ended)]

    def cells(self, name: str, lost: int, doubled: int) -> tuple[str, ...]:
        """Return the cells of a row."""
        others = self.unexplained()
        for problem, count in Counter(others).most_common(5):
            print(f"{name}: {count} × {problem}", file=sys.stderr)
        lost += self.asked - self.answered - len(self.errors)
        kills = len(self.errors) - len(others)
        return (name, *map(str, (self.asked, self.answered, kills, len(others), lost, doubled)))


@contextmanager
def threads(clients: Clients, ask: Callable[[int], str], stop: threading.Event) -> Iterator[None]:
    """Run three clients until `stop`."""
    running_ = [threading.Thread(target=clients.run, args=(ask, stop)) for _ in KEYS]
    for thread in running_:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in running_:
            thread.join()


def gateway_client(url: str) -> Callable[[int], str]:
    """Return what asks the gateway for a call, streamed every other time."""

    def ask(number: int) -> str:
        body: dict[str, Any] = {
            "model": "demo",
            "messages": [{"role": "user", "content": f"What time is it? ({number})"}],
        }
        body |= {"tools": [CALL], "tool_choice": "required", "max_tokens": 60, "stream": number % 2 == 0}
        headers = {"Authorization": f"Bearer {KEYS[number % len(KEYS)]}"}
        try:
            reply = httpx.post(
                f"{url}/v1/chat/completions", json=body, headers=headers, timeout=LIMIT_S, trust_env=False
            )
        except httpx.HTTPError as error:
            return type(error).__name__
        if reply.status_code != 200:
            return f"HTTP {reply.status_code}"
        is_whole = "[DONE]" in reply.text if number % 2 == 0 else '"tool_calls"' in reply.text
        return "" if is_whole and '"error"' not in reply.text else "no call"

    return ask


@dataclass
class Batch:
    """`gbnf batch` on the llama-server, started again when it stops."""

    folder: Path
    url: str
    starts: int = 0

    def run(self, stop: threading.Event) -> None:
        """Run it until it is done, or until `stop`."""
        requests = self.folder / "requests.jsonl"
        requests.write_text("".join(f'"create the folder job{n}"\n' for n in range(100_000)))
        command = [sys.executable, "-m", "gbnf_server", "batch", str(requests), "--server", self.url]
        command += ["--api-key", "load", "--workspace", str(self.folder / "batch"), "--yes", "--quiet"]
        while not stop.is_set():
            self.starts += 1
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                while process.poll() is None and not stop.wait(0.5):
                    pass
                process.terminate()

    def row(self) -> tuple[str, ...]:
        """Return the cells of its row: what its log has, beside the folders."""
        outcomes, begun, folders = Counter[str](), Counter[str](), set[str]()
        called: dict[str, str] = {}
        others = Counter[str]()
        for line in (self.folder / "requests.results.jsonl.log").open():
            entry = json.loads(line)
            if entry.get("kind") == "run":
                run = entry["run"]
                outcomes[run["outcome"]] += 1
                if run["outcome"] != "answered":
                    others[f"{entry['id']} {run['outcome']}: {run['error']}"] += 1
            elif entry.get("kind") == "begun":
                begun[f"{entry['id']} {json.dumps(entry['call'], sort_keys=True)}"] += 1
                called[entry["id"]] = entry["call"]["name"]
            elif entry.get("result") and called.pop(entry["id"], "") == "create_dirs":
                folders |= set(entry["result"]["entries"])
        missing = sorted(folder for folder in folders if not (self.folder / "batch" / folder).is_dir())
        for problem, count in others.most_common(5):
            print(f"gbnf batch: {count} × {problem}", file=sys.stderr)
        if missing:
            print(f"gbnf batch: folders that are missing: {missing[:5]}", file=sys.stderr)
        doubled = sum(count > 1 for count in begun.values())
        good, asked = outcomes["answered"], outcomes.total()
        return (
            f"gbnf batch, {self.starts} starts",
            *map(str, (asked, good, 0, asked - good, len(missing), doubled)),
        )


def sample(processes: dict[str, psutil.Process], stop: threading.Event) -> dict[str, list[tuple[float, int]]]:
    """Return the memory in MiB and the open files of processes, until `stop`."""
    samples: dict[str, list[tuple[float, int]]] = {name: [] for name in processes}
    while not stop.wait(SAMPLE_S):
        for name, process in processes.items():
            family = [process, *process.children(recursive=True)]
            memory = sum(member.memory_info().rss for member in family if member.is_running()) / 2**20
            samples[name].append((memory, process.num_fds()))
    return samples


def main() -> None:
    """Run it, and print the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--every", type=float, default=60, help="seconds between kills")
    options = parser.parse_args()
    stop, server = threading.Event(), Server(options.every)
    timer = threading.Timer(60 * options.minutes, stop.set)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "tools.py").write_text(TOOLS.replace("\\\\", "\\"))
        url = stack.enter_context(server.at_one_address(stop))
        command = [sys.executable, "-m", "gbnf_server"]
        keys = [part for key in KEYS for part in ("--api-key", key)]
        serve = [*command, "serve", "--server", url, "--server-api-key", "load", "--port", "0", *keys]
        gateway_url, gateway_process = stack.enter_context(running(serve))
        offer = [*command, "mcp", "--tools", str(folder / "tools.py"), "--http", "0"]
        offer += ["--workspace", str(folder / "mcp"), "--yes"]
        mcp_url, mcp_process = stack.enter_context(running(offer))
        [note] = stack.enter_context(mcp_tools(f"{mcp_url}/mcp")).tools
        context = Context(Workspace(folder / "client"))

        def call(number: int) -> str:
            try:
                run_executor(note, {"number": number}, context)
            except GbnfServerError as error:
                return str(error)[:80]
            return ""

        asking, calling, batch = Clients(server), Clients(server), Batch(folder, url)
        batching = threading.Thread(target=batch.run, args=(stop,))
        timer.start()
        batching.start()
        with threads(asking, gateway_client(gateway_url), stop), threads(calling, call, stop):
            samples_by_process = sample({"gbnf serve": gateway_process, "gbnf mcp": mcp_process}, stop)
        batching.join()
        notes = Counter((folder / "mcp" / "notes.txt").read_text().split())
        failed = len(calling.errors)
        table = new_table(
            "part|asked|answered|errors of the kill|other errors|lost|doubled",
            f"{options.minutes:g} minutes, llama-server killed {len(server.away)} times",
        )
        table.add_row(*asking.cells("gbnf serve", 0, 0))
        missing = max(calling.answered - len(notes), 0)
        doubled = sum(count > 1 for count in notes.values())
        table.add_row(*calling.cells(f"gbnf mcp, {failed} failed", missing, doubled))
        table.add_row(*batch.row())
        show(table)
    table = new_table("process|MiB, first fifth|MiB, last fifth|open files, first|open files, last")
    for name, measured in samples_by_process.items():
        fifth = max(len(measured) // 5, 1)
        parts: Any = [zip(*samples, strict=True) for samples in (measured[:fifth], measured[-fifth:])]
        (memory, files), (last_memory, last_files) = (
            [statistics.median(column) for column in part] for part in parts
        )
        table.add_row(name, f"{memory:.0f}", f"{last_memory:.0f}", f"{files:.0f}", f"{last_files:.0f}")
    show(table)


if __name__ == "__main__":
    main()
