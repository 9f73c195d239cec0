"""Throughput and validity of many runs at a time: vLLM, llama-server and the model in this process.

    python bench/vllm_folder.py FOLDER                                              # once
    python bench/distributed.py --vllm VENV/bin/vllm --folder FOLDER --data bfcl_eval/data
    python bench/distributed.py                                                     # without vLLM
    python bench/distributed.py --smollm2 --levels 1 8 --runs 16                    # with a larger model

All have the same weights: the bundled model, in GGUF (quantized) and as a Hugging Face folder (float32);
`vllm_folder.py` documents how to install vLLM for a CPU. llama-server has as many slots, and the model in
process as many sequences, as there are runs at a time; vLLM batches up to the highest number.

Two tables. The planner's: runs of a bundled suite's requests over the bundled tools, whose calls are
validated, but not executed: each returns a constant, since executors would take most of the time. The
gateway's (with --data): `gbnf serve` in front of each, and vLLM's own `tools`, with and without `strict`, get
BFCL requests with `tool_choice: "required"` at temperature 1; jsonschema judges the calls.

Server, planner and this program share the machine's cores. `×` is the ratio to llama-server in the same run
with as many runs at a time.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from gateway import TIMEOUT, Contender, ask_all, body_of, requests_of, running
from gbnf import Tool, load_manifests
from gbnf_bench.suite_files import load_suite
from gbnf_server import Context, InProcess, OpenAICompatible, Planner, Run, manifests_path
from gbnf_server.backends.base import Backend
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.executors import Workspace
from gbnf_server.llama.demo_model import model_path
from gbnf_server.llama.server_build import start
from gbnf_server.system.model_files import SMOLLM2_ADAPTER, smollm2_path
from tables import KINDS, outcome_cells, parser_of, print_heads

OWN = "vLLM's own tools"
CONTEXT = 2048  # of SmolLM2, whose cells of 32 sequences take 1.5 GB
Opened = Callable[[int], AbstractContextManager[Backend]]


# vLLM


@contextmanager
def vllm_server(program: Path, folder: Path, *, sequences: int) -> Iterator[str]:
    """Run vLLM on the CPU with the model in the folder; yield its URL."""
    settings = {
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    url, length = "http://127.0.0.1:8123", "1024"
    command = [str(program), "serve", str(folder), "--dtype", "float32", "--enforce-eager"]
    command += ["--max-model-len", length, "--max-num-seqs", str(sequences), "--port", "8123"]
    command += ["--host", "127.0.0.1", "--structured-outputs-config", '{"backend": "xgrammar"}']
    command += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]  # for its own `tools`
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | settings
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment) as process,
    ):
        try:
            while not _is_healthy(url):
                if process.poll() is not None:
                    log.seek(0)
                    raise SystemExit(f"vLLM does not start:\n{log.read()[-3000:]}")
                time.sleep(1)
            yield url
        finally:
            process.terminate()


def _is_healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def vllm_backend(url: str) -> OpenAICompatible:
    """Return vLLM's backend, with the prompts that the bundled model is trained on."""
    return OpenAICompatible(url, "vllm", prompt_style="minimal", tool_role=True)


# the planner's batch


def bundled_tools() -> list[Tool]:
    """Return the bundled tools, each executed by a function that returns a constant."""
    tools = load_manifests(manifests_path())
    return [replace(tool, function=lambda _arguments, _context: {"done": True}) for tool in tools]


@contextmanager
def llama_server_with(slots: int, *, smollm2: bool) -> Iterator[Backend]:
    path, extra = (smollm2_path(), ("--lora", str(SMOLLM2_ADAPTER))) if smollm2 else (model_path(), ())
    context = CONTEXT if smollm2 else None
    server = start(path, slots=slots, context_length=context, timeout=TIMEOUT, extra=extra)
    with server, LlamaServer(server.url) as backend:
        yield backend


def in_process(parallel: int, *, smollm2: bool) -> InProcess:
    if smollm2:
        return InProcess(
            smollm2_path(), lora=SMOLLM2_ADAPTER, name="smollm2", context_length=CONTEXT, parallel=parallel
        )
    return InProcess(model_path(), parallel=parallel)


def planner_table(opened: Mapping[str, Opened], levels: Sequence[int], queries: Sequence[str]) -> None:
    """Print the planner's table."""
    print_heads(
        "planner on | runs at a time | runs/s | output tokens/s | × llama-server | calls | refused | outcomes"
    )
    for level in levels:
        reference = 0.0
        for name, backend_for in opened.items():
            with tempfile.TemporaryDirectory() as folder, backend_for(level) as backend:
                context = Context(Workspace(Path(folder)))
                planner = Planner(bundled_tools(), backend, context=context)
                planner.run(queries[0])  # warm
                started = time.perf_counter()
                with ThreadPoolExecutor(level) as threads:
                    runs = list(threads.map(planner.run, queries))
                seconds = time.perf_counter() - started
            rate = len(runs) / seconds
            reference = reference or rate
            tokens = sum(run.completion_tokens for run in runs)
            print(
                f"| {name} | {level} | {rate:.2f} | {tokens / seconds:.0f} | {rate / reference:.2f} "
                f"| {calls_of(runs)} | {_counts(run.outcome for run in runs)} |",
                flush=True,
            )


def calls_of(runs: Sequence[Run]) -> str:
    """Return two cells: the number of calls, and how many were refused, by reason."""
    steps = [step for run in runs for step in run.steps]
    refused = [step.refusal for step in steps if step.refusal is not None]
    ignored = sum("ignored" in warning for run in runs for warning in run.warnings)
    faults = _counts(refused) + (f", grammar ignored in {ignored}" if ignored else "")
    return f"{sum(step.call is not None for step in steps)} | {faults}"


def _counts(values: Iterator[str] | Sequence[str]) -> str:
    return ", ".join(f"{count} {value}" for value, count in Counter(values).most_common()) or "0"


# the gateway


def own_body(body: Mapping[str, Any], model: str, *, strict: bool) -> dict[str, Any]:
    """Return the body for vLLM itself. `strict` makes it enforce the schemas of the arguments."""
    tools = [{**tool, "function": {**tool["function"], "strict": strict}} for tool in body["tools"]]
    return {**body, "model": model, "tools": tools}


@contextmanager
def gateway_to(name: str, vllm_url: str | None, level: int) -> Iterator[Contender]:
    """Run what the name says; yield its address."""
    with ExitStack() as stack:
        if name.startswith(OWN):
            assert vllm_url is not None
            yield Contender(name, vllm_url, {})
            return
        command = [sys.executable, "-m", "gbnf_server", "serve", "--port", "0", "--parallel", str(level)]
        if name.endswith("vLLM"):
            assert vllm_url is not None
            command += ["--backend", "vllm", "--server", vllm_url]
        elif name.endswith("llama-server"):
            server = stack.enter_context(start(model_path(), slots=level, timeout=TIMEOUT))
            command += ["--server", server.url]
        else:
            command += ["--model", str(model_path())]
        url, _ = stack.enter_context(running(command))
        yield Contender(name, url, {})


def gateway_table(vllm_url: str | None, levels: Sequence[int], requests: Sequence[dict[str, Any]]) -> None:
    """Print the gateway's table."""
    names = ["gbnf serve, llama-server", "gbnf serve, in process"]
    if vllm_url is not None:
        names += ["gbnf serve, vLLM", OWN, f"{OWN}, strict"]
    print_heads(
        "contender | clients | answers/s | output tokens/s | × tokens/s of llama-server | "
        f"{' | '.join(KINDS)} | errors"
    )
    model = ""
    if vllm_url is not None:
        with closing(vllm_backend(vllm_url)) as backend:
            model = backend.model_name()
    bodies = [body_of(request, 1, seed) for seed, request in enumerate(requests)]
    for level in levels:
        reference = 0.0
        for name in names:
            sent = bodies
            if name.startswith(OWN):
                sent = [own_body(body, model, strict=name.endswith("strict")) for body in bodies]
            with gateway_to(name, vllm_url, level) as contender:
                asyncio.run(ask_all(contender, sent[:1], 1))  # warm
                answers, seconds = asyncio.run(ask_all(contender, sent, level))
            rate = sum(answer.tokens for answer in answers) / seconds
            reference = reference or rate
            cells = outcome_cells(Counter(answer.outcome for answer in answers))
            print(
                f"| {name} | {level} | {len(sent) / seconds:.2f} | {rate:.0f} | {rate / reference:.2f} "
                f"| {cells} |",
                flush=True,
            )


def main() -> None:
    """Start the servers, and print the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--vllm", type=Path, help="the program `vllm` of an environment that has it")
    parser.add_argument("--folder", type=Path, help="the model for vLLM, written by vllm_folder.py")
    parser.add_argument("--data", type=Path, help="the folder bfcl_eval/data, for the gateway")
    parser.add_argument("--smollm2", action="store_true", help="the planner's table with SmolLM2")
    parser.add_argument("--suite", default="unseen-wording")
    parser.add_argument("--levels", type=int, nargs="+", default=[1, 8, 32], help="runs at a time")
    parser.add_argument(
        "--runs", type=int, default=32, help="runs, and requests to the gateway, at each level"
    )
    options = parser.parse_args()
    if (options.vllm is None) != (options.folder is None):
        parser.error("--vllm and --folder need each other")
    queries = [case.query for case in load_suite(options.suite).cases]
    queries = (queries * (options.runs // len(queries) + 1))[: options.runs]
    opened: dict[str, Opened] = {
        "llama-server": partial(llama_server_with, smollm2=options.smollm2),
        "this process": partial(in_process, smollm2=options.smollm2),
    }
    with ExitStack() as stack:
        url = None
        if options.vllm is not None:
            url = stack.enter_context(
                vllm_server(options.vllm, options.folder, sequences=max(options.levels))
            )
            address = url
            opened["vLLM"] = lambda _level: vllm_backend(address)
        planner_table(opened, options.levels, queries)
        if options.data is not None:
            print()
            # their tools fit the model's context in the full style, which vLLM's backend uses
            short = [body for body in requests_of(options.data, 1000) if len(json.dumps(body)) < 2200]
            gateway_table(url, options.levels, short[: options.runs])


if __name__ == "__main__":
    main()
