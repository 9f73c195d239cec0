"""Tools that were sent before are not read again, and every body is read as if nothing was known."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.backends.upstreams import Upstream, Upstreams
from gbnf_server.gateway import gateway as module
from gbnf_server.gateway.gateway import Gateway
from gbnf_server.web.errors import HttpError
from gbnf_server.web.limits import Limits, read_object
from support.backends import FakeBackend
from support.gateways import ScriptedEngine, in_event_loop, make_gateway

TOOLS: tuple[list[Any], ...] = (
    [{"name": "a"}],
    [{"name": "è", "n": 1.5}],
    [{"name": "a"}, {"name": "b"}],
    [],
)
STYLES: tuple[dict[str, Any], ...] = ({}, {"separators": (",", ":"), "ensure_ascii": False}, {"indent": 1})

members = st.sampled_from(
    [
        *({"tools": tools} for tools in TOOLS),
        *({"input": [{"tools": tools}]} for tools in TOOLS),
        {"tools": None},
        {"tools": "[]"},
        {"messages": [{"content": '"tools": [{"name": "a"}]'}]},
        {"messages": ["}{][", "\\"]},
    ]
)
bodies = st.tuples(
    st.lists(members, max_size=3), st.sampled_from(STYLES), st.sampled_from(["", "", "}", ","])
)


def text_of(parts: list[Mapping[str, Any]], style: Mapping[str, Any], spoiled: str) -> bytes:
    value: dict[str, Any] = {}
    for part in parts:
        value |= part
    return f"{json.dumps(value, **style)}{spoiled}".encode()


def reading(gateway: Gateway, body: bytes) -> Any:
    async def read() -> Any:
        with gateway.budget.share() as share:
            return await gateway.read(dict, body, share)

    try:
        return asyncio.run(read())
    except HttpError as error:
        return str(error.status)


def gateway_of(limits: Limits | None = None) -> Gateway:
    upstreams = Upstreams([Upstream(FakeBackend())])
    return Gateway(ScriptedEngine(), upstreams, model="m", limits=limits)


@given(st.lists(bodies, min_size=1, max_size=6))
def test_a_body_is_read_as_if_no_tools_were_known(sent: list[Any]) -> None:
    gateway = gateway_of()
    for parts, style, spoiled in sent:
        body = text_of(parts, style, spoiled)
        try:
            expected: Any = dict(read_object(body))
        except HttpError:
            expected = "400"
        assert reading(gateway, body) == expected
    assert gateway.budget.reserved == 0


@pytest.mark.parametrize(
    "body",
    [
        rb'{"x\"tools":[{"name":"a"}]}',
        rb'{"x,\"tools":[{"name":"a"}]}',
        b'{"input":{"tools":[{"name":"a"}]}}',
        b'{"input":[{"tools":[{"name":"a"}]}],"tools":[{"name":"a"}]}',
        b'{"input":"}","tools":[{"name":"a"}],"n":1}',
        b'{"input":"{","x":{"tools":[{"name":"a"}]}}',
    ],
)
def test_tools_in_another_place_are_no_tools(body: bytes) -> None:
    gateway = gateway_of()
    assert "tools" in reading(gateway, b'{"tools":[{"name":"a"}]}')
    assert reading(gateway, body) == json.loads(body)


@pytest.mark.parametrize("style", STYLES[:2])
def test_known_tools_are_not_read_again(style: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counted(body: bytes) -> Mapping[str, Any]:
        read.append(len(body))
        return read_object(body)

    monkeypatch.setattr(module, "read_object", counted)
    gateway = gateway_of()
    tools = [{"name": f"tool{number}", "description": "it does this and that"} for number in range(100)]
    values = [{"model": "m", "tools": tools, "messages": ["x" * count]} for count in range(4)]
    read_values = [reading(gateway, json.dumps(value, **style).encode()) for value in values]
    assert read_values == values
    assert read_values[1]["tools"] is read_values[2]["tools"]
    assert read[0] > 5000
    assert max(read[1:]) < 200


@pytest.mark.parametrize("blocks", [False, True])
@in_event_loop
async def test_no_large_body_is_scanned_in_the_event_loop(
    blocks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set[threading.Thread]()

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any, **options: Any) -> Any:
            threads.add(threading.current_thread())
            return function(*given, **options)

        return noted

    for name in ("count_values", "read_object", "check_sizes", "memory_of"):
        monkeypatch.setattr(module, name, noting(getattr(module, name)))
    for name in ("shorten", "add"):
        monkeypatch.setattr(module.ToolTexts, name, noting(getattr(module.ToolTexts, name)))
    gateway = make_gateway(ScriptedEngine())
    large = b'{"a": "' + b"x" * 1_000_000 + b'"}'
    with gateway.budget.share() as share:
        assert await gateway.read(noting(dict), large, share, blocks=blocks) == json.loads(large)
        assert threading.current_thread() not in threads
        assert await gateway.read(noting(dict), b"{}", share, blocks=blocks) == {}
    assert (threading.current_thread() in threads) is True


def test_what_comes_with_known_tools_is_bounded() -> None:
    gateway = gateway_of(Limits(messages=2, schema_bytes=100))
    body = b'{"tools":[{"name":"a"}],"messages":[%b],"response_format":"%b"}'
    assert reading(gateway, body % (b"1", b""))["tools"] == [{"name": "a"}]
    assert reading(gateway, body % (b"1,2,3", b"")) == "400"
    assert reading(gateway, body % (b"1", b"x" * 200)) == "400"


def test_few_texts_are_kept() -> None:
    gateway = gateway_of()
    for number in range(100):
        reading(gateway, json.dumps({"tools": [{"name": f"tool{number}"}]}).encode())
    reading(gateway, json.dumps({"tools": [{"name": "x" * 300_000}]}).encode())
    assert len(gateway._tool_texts._known) == 16
