"""What a client changes in each request leaves the prompt cache valid; the metrics tell what it saves."""

from __future__ import annotations

from typing import Any

import pytest

from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.upstreams import Upstream, Upstreams
from gbnf_server.gateway.anthropic_messages import Messages
from gbnf_server.gateway.engine import Engine
from gbnf_server.gateway.gateway import Gateway
from gbnf_server.llama.demo_model import model_path
from gbnf_server.web.access import Access
from support.gateways import client_of, in_event_loop

SYSTEM = (
    "You are Claude Code, Anthropic's official CLI for Claude. You help with files and folders, and answer."
)


def header(number: int) -> str:
    """What Claude Code 2.1 sends, with another hash in each request."""
    return f"x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch=fa{number:03};"


def blocks(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in texts]


def body(system: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "max_tokens": 1,
        "system": system,
        "messages": [{"role": "user", "content": "list the files here"}],
    }


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (blocks(header(1), SYSTEM), blocks(SYSTEM)),
        (blocks(f"{header(1)}\n{SYSTEM}"), blocks(SYSTEM)),
        (f"{header(1)}\n{SYSTEM}", SYSTEM),
        (header(1), ""),
        (blocks(header(1)), []),
        (blocks(SYSTEM, header(1)), blocks(SYSTEM, header(1))),
        (f"{SYSTEM}\n{header(1)}", f"{SYSTEM}\n{header(1)}"),
        (f" {header(1)}", f" {header(1)}"),
        (blocks("", SYSTEM), blocks("", SYSTEM)),
        (SYSTEM, SYSTEM),
        (None, None),
    ],
)
def test_a_billing_header_at_the_beginning_is_left_out(given: Any, left: Any) -> None:
    verbatim = Messages(verbatim=True)
    assert Messages().parse(body(given)).request == verbatim.parse(body(left)).request
    assert Messages().parse_count(body(given)) == verbatim.parse_count(body(left))
    kept = verbatim.parse(body(given)).request
    assert (kept == verbatim.parse(body(left)).request) == (given == left)


def test_other_messages_keep_it() -> None:
    messages = [{"role": "user", "content": header(1)}]
    request = Messages().parse({**body(header(2)), "messages": messages}).request
    assert [message["content"] for message in request.messages] == [header(1)]


@pytest.mark.parametrize("verbatim", [False, True])
@in_event_loop
async def test_requests_that_differ_in_it_share_the_cache(verbatim: bool) -> None:
    with InProcess(model_path(), context_length=1024) as model:
        upstreams = Upstreams([Upstream(model)])
        gateway = Gateway(Engine(), upstreams, model="m", verbatim=verbatim)
        async with client_of(gateway, Access()) as client:
            usages = []
            for number in range(3):
                asked = body(blocks(header(number), SYSTEM))
                response = await client.post("/v1/messages", json=asked, timeout=60)
                usages.append(response.json()["usage"])
            lines = (await client.get("/metrics")).text.splitlines()
    evaluated = [usage["input_tokens"] for usage in usages]
    cached = [usage["cache_read_input_tokens"] for usage in usages]
    if verbatim:
        assert min(evaluated) > max(cached[1:]) / 2
    else:
        assert evaluated[1:] == [1, 1]  # the last token is evaluated for its logits
    labels = f'{{model="m",upstream="{model.name}"}}'
    counted = dict(line.rsplit(" ", 1) for line in lines if "_prompt_tokens_total" in line)
    assert float(counted[f"gbnf_cached_prompt_tokens_total{labels}"]) == sum(cached)
    assert float(counted[f"gbnf_prompt_tokens_total{labels}"]) == sum(cached) + sum(evaluated)
