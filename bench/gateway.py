"""What a gateway in front of a local server guarantees, and what it costs.

    python bench/gateway.py                                              # what the gateway adds to a call
    python bench/gateway.py --data bfcl_eval/data                        # and a comparison with llama-server
    python bench/gateway.py --data bfcl_eval/data --forge /path/python   # and the proxy of forge-guardrails

One real llama-server runs the model: by default the bundled one, which knows none of these tools, so that
what surrounds it decides whether its calls are valid. These are no figures about good models. Every contender
gets the same requests through OpenAI's chat API, with the functions of BFCL's live_multiple set (an installed
`bfcl-eval`, or its folder), `tool_choice: "required"`, temperatures 1 and 2, and seeds:

    llama-server   its own `tools`
    forge          the proxy of forge-guardrails in front of it (Python 3.12; see --forge)
    gbnf serve     this project's gateway in front of it

jsonschema judges every call. Then: the time to the first delta and for a whole call; what the gateway adds to
a call of our own backend, the same call alternately with and without it; and 1, 16 and 64 clients at once.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import psutil

from gbnf_bench.bfcl.files import read_folder
from gbnf_bench.bfcl.functions import tools_of
from gbnf_server.backends.answer import AnswerPiece, Asked, answer
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.gateway.compiler import Compiler
from gbnf_server.gateway.compiling import Target
from gbnf_server.gateway.engine import backend_request
from gbnf_server.gateway.openai_chat import ChatCompletions
from gbnf_server.llama.demo_model import model_path
from gbnf_server.llama.server_build import start
from tables import KINDS, outcome_cells, parser_of, print_heads

MAX_TOKENS, SLOTS, TIMEOUT = 300, 4, 600.0
LISTENING = re.compile(r"http://127\.0\.0\.1:\d+")


@dataclass(frozen=True)
class Contender:
    """A server that speaks OpenAI's chat API."""

    name: str
    url: str
    headers: Mapping[str, str]


@dataclass
class Answer:
    """One answer; times in seconds.

    `outcome`: valid, invalid, no call, truncated, or an error.
    """

    outcome: str
    seconds: float
    first_delta: float | None = None
    tokens: int = 0


def requests_of(folder: Path, count: int) -> list[dict[str, Any]]:
    """Return the bodies of requests: a question and the functions that it may need."""
    entries = read_folder(folder, categories=["live_multiple"]).entries["live_multiple"]
    bodies = []
    for entry in entries[:: max(len(entries) // count, 1)][:count]:
        described = {function["name"]: str(function.get("description", "")) for function in entry.functions}
        tools = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": described[name],
                    "parameters": dict(tool.args),
                },
            }
            for name, tool in tools_of(entry.functions).items()
        ]
        question = [dict(message) for message in entry.messages if message["role"] == "user"][-1:]
        bodies.append(
            {
                "messages": question,
                "tools": tools,
                "tool_choice": "required",
                "parallel_tool_calls": False,
            }
        )
    return bodies


def outcome_of(body: Mapping[str, Any], reply: Mapping[str, Any]) -> str:
    """Judge the calls of a reply."""
    [choice] = reply["choices"]
    if choice["finish_reason"] == "length":
        return "truncated"
    calls = choice["message"].get("tool_calls") or []
    if not calls:
        return "no call"
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in body["tools"]}
    for call in calls:
        try:
            arguments = json.loads(call["function"]["arguments"])
            jsonschema.validate(arguments, schemas[call["function"]["name"]])
        except (ValueError, KeyError, jsonschema.ValidationError):
            return "invalid"
    return "valid"


async def ask(client: httpx.AsyncClient, contender: Contender, body: Mapping[str, Any]) -> Answer:
    """Send one request and judge the answer."""
    started = time.perf_counter()
    try:
        response = await client.post(
            f"{contender.url}/v1/chat/completions", json=body, headers=contender.headers
        )
    except httpx.TransportError as error:
        return Answer(type(error).__name__, time.perf_counter() - started)
    seconds = time.perf_counter() - started
    if response.status_code != 200:
        return Answer(f"HTTP {response.status_code}", seconds)
    reply = response.json()
    tokens = (reply.get("usage") or {}).get("completion_tokens", 0)
    return Answer(outcome_of(body, reply), seconds, tokens=tokens)


async def ask_all(
    contender: Contender, bodies: Sequence[Mapping[str, Any]], clients: int
) -> tuple[list[Answer], float]:
    """Send all bodies, as many at a time as there are clients; return the answers and the seconds."""
    waiting, answers = iter(bodies), list[Answer]()
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=TIMEOUT, trust_env=False, limits=limits) as client:

        async def work() -> None:
            for body in waiting:  # shared by all clients
                answers.append(await ask(client, contender, body))

        started = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(clients)))
        return answers, time.perf_counter() - started


async def first_delta(client: httpx.AsyncClient, contender: Contender, body: Mapping[str, Any]) -> Answer:
    """Send one streaming request; return when its first piece of a call or a text came."""
    started = time.perf_counter()
    first = None
    async with client.stream(
        "POST",
        f"{contender.url}/v1/chat/completions",
        json={**body, "stream": True},
        headers=contender.headers,
    ) as response:
        async for line in response.aiter_lines():
            if first is None and line.startswith("data: {"):
                delta = (json.loads(line[6:]).get("choices") or [{}])[0].get("delta") or {}
                if delta.get("tool_calls") or delta.get("content") or delta.get("reasoning_content"):
                    first = time.perf_counter() - started
    return Answer(f"HTTP {response.status_code}", time.perf_counter() - started, first)


def body_of(request: Mapping[str, Any], temperature: float, seed: int) -> dict[str, Any]:
    """Return a request with its sampling."""
    sampling = {"temperature": temperature, "seed": seed, "max_tokens": MAX_TOKENS, "top_p": 1}
    return {"model": "random", **request, **sampling}


async def validity(contenders: Sequence[Contender], requests: Sequence[dict[str, Any]]) -> None:
    """Print the table of outcomes."""
    print_heads(f"contender | temperature | {' | '.join(KINDS)} | errors")
    for contender in contenders:
        for temperature in (1, 2):
            bodies = [body_of(request, temperature, seed) for seed, request in enumerate(requests, 1)]
            answers, _ = await ask_all(contender, bodies, 1)
            outcomes = Counter(answer.outcome for answer in answers)
            print(f"| {contender.name} | {temperature} | {outcome_cells(outcomes)} |", flush=True)


async def latency(contenders: Sequence[Contender], request: dict[str, Any], rounds: int) -> None:
    """Print the table of times."""
    print_heads("contender | first delta, p50 | whole call, p50")
    async with httpx.AsyncClient(timeout=TIMEOUT, trust_env=False) as client:
        answers: dict[str, list[Answer]] = {contender.name: [] for contender in contenders}
        for seed in range(rounds + 1):
            for contender in contenders:
                answers[contender.name].append(
                    await first_delta(client, contender, body_of(request, 1, seed))
                )
    for name, measured in answers.items():
        firsts = [answer.first_delta for answer in measured[1:] if answer.first_delta is not None]
        first = f"{1000 * statistics.median(firsts):.0f} ms" if firsts else "none"
        whole = statistics.median(answer.seconds for answer in measured[1:])
        print(f"| {name} | {first} | {1000 * whole:.0f} ms |")


async def overhead(gateway: Contender, process: psutil.Process, server_url: str, rounds: int) -> str:
    """Return what the gateway adds to a call: its own request to the backend, sent directly, is compared.

    The client of the gateway is a bare connection: httpx alone takes a millisecond for a request.
    """
    tools = [
        {
            "type": "function",
            "function": {
                "name": f"tool_{number}",
                "description": f"Tool number {number} of sixteen.",
                "parameters": {
                    "type": "object",
                    "properties": {"unit": {"type": "string", "enum": ["m", "km", "mile"]}},
                    "required": ["unit"],
                    "additionalProperties": False,
                },
            },
        }
        for number in range(16)
    ]
    messages = [{"role": "user", "content": "How far is it?"}]
    named = {"type": "function", "function": {"name": "tool_7"}}
    body = body_of({"messages": messages, "tools": tools, "tool_choice": named, "stream": True}, 0, 0)
    direct: list[tuple[float, float]] = []
    through: list[tuple[float, float]] = []
    with LlamaServer(server_url) as backend, closing(Compiler(timeout_s=TIMEOUT)) as compiler:
        asked = ChatCompletions().parse(body).request
        compiled = await compiler.compiled(asked, Target.of(backend.info(), backend.dialect))
        request = backend_request(asked, compiled, MAX_TOKENS, 0, ())
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(gateway.url).port)
        for number in range(rounds + 3):
            if number == 3:
                before = sum(process.cpu_times()[:2])
            first, started = 0.0, time.perf_counter()
            async with aclosing(answer(backend, Asked(request, compiled.reader))) as events:
                async for event in events:
                    if not first and isinstance(event, AnswerPiece) and event.deltas:
                        first = time.perf_counter() - started
            direct.append((first, time.perf_counter() - started))
            through.append(await bare_exchange(reader, writer, body))
        cpu = (sum(process.cpu_times()[:2]) - before) / rounds
        writer.close()
    added = [
        [1000 * (proxied[index] - other[index]) for proxied, other in zip(through, direct, strict=True)]
        for index in (0, 1)
    ]
    first_delta, whole = (statistics.median(column[3:]) for column in added)
    return (
        f"overhead of the gateway at 16 tools: p50 {whole:.2f} ms, first delta {first_delta:.2f} ms, "
        f"CPU time of its process {1000 * cpu:.1f} ms "
        f"(a call of the backend: p50 {1000 * statistics.median(column for _, column in direct[3:]):.1f} ms)"
    )


async def bare_exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: Mapping[str, Any]
) -> tuple[float, float]:
    """Send a streaming request; return when its first delta of a call came, and its end."""
    content = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(content)}\r\n\r\n"
    first, started = 0.0, time.perf_counter()
    writer.write(head.encode() + content)
    received = b""
    while not received.endswith(b"0\r\n\r\n"):
        received += await reader.read(65536)
        if not first and b'"tool_calls":' in received:
            first = time.perf_counter() - started
    return first, time.perf_counter() - started


async def load(contenders: Sequence[Contender], requests: Sequence[dict[str, Any]], count: int) -> None:
    """Print the table of concurrent clients."""
    print_heads("contender | clients | answers a second | errors")
    bodies = [body_of(requests[seed % len(requests)], 1, seed) for seed in range(count)]
    for contender in contenders:
        for clients in (1, 16, 64):
            answers, seconds = await ask_all(contender, bodies, clients)
            rate = len(answers) / seconds
            errors = sum(answer.outcome.startswith(("HTTP", "Read", "Connect")) for answer in answers)
            print(f"| {contender.name} | {clients} | {rate:.1f} | {errors} |", flush=True)


@contextmanager
def running(command: Sequence[str], *, url: str | None = None) -> Iterator[tuple[str, psutil.Process]]:
    """Run a server, and yield its URL, `url` or the first that it prints, and its process."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            if url is None:
                url = next(match[0] for line in process.stdout if (match := LISTENING.search(line)))
            for _ in range(300):
                try:
                    if httpx.get(f"{url}/health", trust_env=False).status_code < 500:
                        break
                except httpx.TransportError:
                    time.sleep(0.1)
            yield url, psutil.Process(process.pid)
        finally:
            process.terminate()


def main() -> None:
    """Start the contenders, and print the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, help="the folder bfcl_eval/data")
    parser.add_argument("--forge", help="a Python that has forge-guardrails")
    parser.add_argument("--model", type=Path, default=model_path(), help="a GGUF file")
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=30, help="repetitions of the timed calls")
    options = parser.parse_args()
    requests = requests_of(options.data, options.requests) if options.data else []
    with ExitStack() as stack:
        extra = ["--jinja", "--no-warmup", "--cache-ram", "0"]
        server = stack.enter_context(start(options.model, slots=SLOTS, extra=extra))
        key = {"Authorization": f"Bearer {server.api_key}"}
        contenders = [Contender("llama-server", server.url, key)]
        if options.forge:
            forge = [
                options.forge,
                "-m",
                "forge.proxy",
                "--backend-url",
                server.url,
                "--backend",
                "llamaserver",
            ]
            forge += ["--port", "18081", "--backend-api-key", server.api_key]
            url, _ = stack.enter_context(running(forge, url="http://127.0.0.1:18081"))
            contenders.append(Contender("forge", url, {}))
        command = [sys.executable, "-m", "gbnf_server", "serve", "--server", server.url, "--port", "0"]
        url, process = stack.enter_context(running(command))
        gateway = Contender("gbnf serve", url, {})
        print(asyncio.run(overhead(gateway, process, server.url, options.rounds)), flush=True)
        if requests:
            contenders.append(gateway)
            print()
            asyncio.run(validity(contenders, requests))
            print()
            asyncio.run(latency(contenders, requests[0], options.rounds))
            print()
            asyncio.run(load(contenders, requests[:12], 48))


if __name__ == "__main__":
    main()
