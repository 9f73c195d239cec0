"""Does what one client of a gateway does harm the others? Three API keys, of which one attacks.

    python bench/neighbours.py [--requests 1000] [--model smollm2]

The two other keys send small requests, each with a schema of its own, two at a time: first alone, and then
beside each attack: a schema whose grammar has many stacks in llama.cpp's engine, two requests of 2,000 tools,
questions about another key's cached prompt, a grammar without bound, and stored responses of others. The
table has their times, the errors among them, the longest pause of `/health`, and what became of the attacks.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from statistics import quantiles
from typing import Any

import httpx

from gateway import running
from tables import parser_of, print_heads

_ATTACKER, _OTHERS = "a", ("b", "c")
_HEALTH_S = 0.02
_TOOLS = 2000


def ambiguous_schema(depth: int = 24) -> dict[str, Any]:
    """Return a schema of tuples whose meaning shows only at their end."""

    def either(*pairs: tuple[str, int]) -> dict[str, Any]:
        tuples = [{"prefixItems": [{"$ref": f"#/$defs/{name}"}, {"const": value}]} for name, value in pairs]
        return {"anyOf": [{**each, "type": "array", "minItems": 2, "items": False} for each in tuples]}

    definitions: dict[str, Any] = {f"a{depth}": {"const": 0}, f"b{depth}": {"const": 5}}
    for at in range(depth):
        definitions[f"a{at}"] = either((f"a{at + 1}", 1), (f"b{at + 1}", 2))
        definitions[f"b{at}"] = either((f"a{at + 1}", 3), (f"b{at + 1}", 4))
    return {"$ref": "#/$defs/a0", "$defs": definitions}


def many_tools(name: str) -> list[dict[str, Any]]:
    """Return tools with different patterns."""
    tools = []
    for number in range(_TOOLS):
        patterns = {
            f"q{at}": {"type": "string", "pattern": f"^[a-z]{{{at + 1},9}}{name}{number}$"} for at in range(4)
        }
        parameters = {
            "type": "object",
            "properties": {f"p{at}": {"type": "object", "properties": patterns} for at in range(4)},
        }
        tools.append({"type": "function", "function": {"name": f"t{name}{number}", "parameters": parameters}})
    return tools


@dataclass
class Client:
    """The requests to one gateway. `outcomes`: of an attack."""

    http: httpx.AsyncClient
    sent: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)

    async def small(self, key: str) -> tuple[int, float]:
        """Send a small request; return its status and seconds."""
        self.sent += 1
        schema = {
            "type": "object",
            "properties": {f"n{self.sent}": {"enum": [self.sent, self.sent + 1]}},
            "required": [f"n{self.sent}"],
            "additionalProperties": False,
        }
        begun = time.perf_counter()
        answer = await self.chat(key, f"Say {self.sent}.", schema)
        return answer.status_code, time.perf_counter() - begun

    async def chat(self, key: str, text: str, schema: Any = None, **more: Any) -> httpx.Response:
        """Ask the chat API."""
        body = {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 24, **more}
        if schema is not None:
            named = {"name": "x", "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        return await self.post("/v1/chat/completions", key, body)

    async def post(self, path: str, key: str, body: Any) -> httpx.Response:
        """Send a body."""
        return await self.http.post(path, headers={"authorization": f"Bearer {key}"}, json=body)


async def stacks(client: Client) -> None:
    """Send the ambiguous schema again and again."""
    while True:
        answer = await client.chat(_ATTACKER, "Write it.", ambiguous_schema())
        client.outcomes[str(answer.status_code)] += 1


async def tools(client: Client) -> None:
    """Send two requests of many tools, and leave."""
    bodies = [client.chat(_ATTACKER, "hi", tools=many_tools(name)) for name in "xy"]
    for found in await asyncio.gather(
        *(asyncio.wait_for(each, 8) for each in bodies), return_exceptions=True
    ):
        client.outcomes[str(getattr(found, "status_code", "left"))] += 1
    await asyncio.Event().wait()


async def prompts(client: Client) -> None:
    """Ask another key's prompt, and one that nobody has sent: `cached_tokens` would tell them apart."""

    async def cached(key: str, text: str) -> int:
        usage = (await client.chat(key, text)).json()["usage"]
        return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0))

    own = 0  # what prompts of its own have in common; less is cached where others took its sequence
    for number in count():
        secret = "the secret number of the house on the hill is 7391."
        await cached(_OTHERS[0], f"{number} {secret}")
        own = max(own, await cached(_ATTACKER, f"{number}x {secret}"))
        known = await cached(_ATTACKER, f"{number} {secret}")
        client.outcomes["prompt shown" if known > own + len(f"{number}") else "prompt hidden"] += 1


async def grammars(client: Client) -> None:
    """Send a grammar whose texts have twice as many derivations with each pair of letters."""
    text = 'root ::= s "c" s\ns ::= "a" s "a" s | "b" s "b" s | "a" | "b"\n'
    while True:
        answer = await client.chat(_ATTACKER, "Write it.", grammar=text)
        client.outcomes[str(answer.status_code)] += 1


async def responses(client: Client) -> None:
    """Read, continue and delete responses of another key."""
    made = await client.post(
        "/v1/responses", _OTHERS[0], {"model": "m", "input": "hi", "max_output_tokens": 16}
    )
    stored = made.json()["id"]
    headers = {"authorization": f"Bearer {_ATTACKER}"}
    while True:
        for send in (client.http.get, client.http.delete):
            client.outcomes[str((await send(f"/v1/responses/{stored}", headers=headers)).status_code)] += 1
        more = {"model": "m", "input": "go on", "previous_response_id": stored}
        client.outcomes[str((await client.post("/v1/responses", _ATTACKER, more)).status_code)] += 1


ATTACKS: dict[str, Callable[[Client], Awaitable[None]] | None] = {
    "none": None,
    "a schema with many stacks": stacks,
    f"two requests of {_TOOLS:,} tools": tools,
    "another key's prompt": prompts,
    "a grammar without bound": grammars,
    "another key's responses": responses,
}


async def measure(client: Client, name: str, requests: int) -> None:
    """Print a row of the table."""
    attack, done = ATTACKS[name], False
    longest, times, wrong = 0.0, list[float](), 0
    client.outcomes.clear()

    async def watch() -> None:
        nonlocal longest
        while not done:
            begun = time.perf_counter()
            await client.http.get("/health")
            longest = max(longest, time.perf_counter() - begun)
            await asyncio.sleep(_HEALTH_S)

    async def use(key: str) -> None:
        nonlocal wrong
        for _ in range(requests // len(_OTHERS)):
            status, seconds = await client.small(key)
            times.append(seconds)
            wrong += status != 200

    background = [asyncio.ensure_future(watch())]
    if attack is not None:
        background.append(asyncio.ensure_future(attack(client)))
        await asyncio.sleep(0.5)
    await asyncio.gather(*map(use, _OTHERS))
    done = True
    for task in background[1:]:
        task.cancel()
    failed = await asyncio.gather(*background, return_exceptions=True)
    for error in failed:
        if isinstance(error, Exception):
            raise error
    cuts = quantiles(times, n=100)
    became = ", ".join(f"{count} × {what}" for what, count in client.outcomes.most_common())
    seconds = " | ".join(f"{each:.2f}" for each in (cuts[49], cuts[98], longest))
    print(f"| {name} | {len(times)} | {wrong} | {seconds} | {became or 'none'} |", flush=True)


async def main(requests: int, model: str) -> None:
    """Serve the model with three keys, and print the table."""
    keys = [option for key in (_ATTACKER, *_OTHERS) for option in ("--api-key", key)]
    command = ["serve", "--port", "0", "--parallel", "2", "--model", model, "--ctx-size", "512", *keys]
    print_heads("beside | requests of others | errors | p50 (s) | p99 (s) | longest /health (s) | attack")
    with running([sys.executable, "-m", "gbnf_server", *command]) as (url, _):
        async with httpx.AsyncClient(base_url=url, timeout=600, trust_env=False) as http:
            for name in ATTACKS:
                await measure(Client(http), name, requests // len(ATTACKS))


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("--requests", type=int, default=1000, help="requests of the two other keys, in all")
    parser.add_argument("--model", default="smollm2", help="the model to serve")
    asyncio.run(main(**vars(parser.parse_args())))
