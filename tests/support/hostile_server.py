"""A hostile HTTP server on loopback, over raw sockets, and runs against it.

    with hostile(MODES["drip_body"], WIRES["ollama"]) as server:
        ...  # `server.url`; `server.sent` bytes have gone out, `server.gave_up` says that nobody stopped it

A mode is what it does to an answer (`hostile_modes.MODES`), `WIRES` are the formats that it speaks. On every
path of a wire but the attacked one it answers well. `attack` plans against it in one of the four ways to run.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from gbnf.tools import Tool
from gbnf_server.backends.base import Backend
from gbnf_server.backends.http_client import RetryPolicy
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.backends.ollama import Ollama
from gbnf_server.backends.openai_compatible import OpenAICompatible
from gbnf_server.executors import Context
from gbnf_server.planner import Event, Planner, PlannerOptions, Run
from gbnf_server.planner.events import RunFinished, ToolCalled
from gbnf_server.system.errors import AnswerTimeoutError

MARK = "@@"
"""Where in the answer a mode puts what is no text."""
CALL = json.dumps({"name": "final_answer", "arguments": {"message": f"hi{MARK}"}})
"""What a good answer says, without the mark."""
TOOL = Tool("look", args={"type": "object", "properties": {"at": {"type": "string"}}})

_PAUSE_S = 0.01
_DRIPS_FOR_S = 60.0
"""How long it drips before it gives up; no client may be patient for so long."""
FLOOD = 256 * 1024 * 1024
"""How many bytes it sends before it gives up; no client may take so many."""


# What a good server says.


@dataclass(frozen=True)
class Wire:
    """A wire format: `path` is the one of the answers, `others` are asked beside it."""

    name: str
    path: str
    others: tuple[str, ...]
    whole: Callable[[str], Any]
    events: Callable[[list[str]], list[Any]]
    frame: str
    tail: str
    client: Callable[[str, RetryPolicy], Backend]

    def body(self, text: str, *, streamed: bool) -> str:
        """The body of a good answer; a lone surrogate in `text` is escaped in it."""
        if not streamed:
            return json.dumps(self.whole(text))
        pieces = [text[at : at + 20] for at in range(0, len(text), 20)]
        return "".join(self.framed(event) for event in self.events(pieces)) + self.tail

    def framed(self, event: Any) -> str:
        return self.frame.format(json.dumps(event))


def _completion(text: str) -> Any:
    timings = {"cache_n": 2, "prompt_ms": 5.0, "predicted_ms": 7.0}
    counts = {"tokens_evaluated": 9, "tokens_predicted": 3, "truncated": False, "timings": timings}
    return {"content": text, "stop": True, "stop_type": "eos", **counts}


def _completion_events(pieces: list[str]) -> list[Any]:
    return [*({"content": piece, "stop": False} for piece in pieces), _completion("")]


def _chat(text: str) -> Any:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"id": "1", "choices": [choice], "usage": {"prompt_tokens": 26, "completion_tokens": 12}}


def _chat_events(pieces: list[str]) -> list[Any]:
    deltas: list[tuple[dict[str, str], str | None]] = [({"content": piece}, None) for piece in pieces]
    deltas.append(({}, "stop"))
    return [{"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]} for delta, finish in deltas]


def _ollama(text: str, *, done: bool = True) -> Any:
    last = {"done_reason": "stop", "prompt_eval_count": 26, "eval_count": 12} if done else {}
    return {"model": "m", "message": {"role": "assistant", "content": text}, "done": done, **last}


def _ollama_events(pieces: list[str]) -> list[Any]:
    return [*(_ollama(piece, done=False) for piece in pieces), _ollama("")]


def _llama_client(url: str, retry_policy: RetryPolicy) -> Backend:
    return LlamaServer(url, prompt_style="full", retry_policy=retry_policy)


WIRES: dict[str, Wire] = {
    wire.name: wire
    for wire in (
        Wire(
            "llama-server", "/completion", ("/props", "/apply-template"), _completion, _completion_events,
            "data: {}\n\n", "", _llama_client,
        ),
        Wire(
            "chat", "/v1/chat/completions", ("/v1/models",), _chat, _chat_events,
            "data: {}\n\n", "data: [DONE]\n\n",
            lambda url, retry_policy: OpenAICompatible(url, "vllm", retry_policy=retry_policy),
        ),
        Wire(
            "ollama", "/api/chat", (), _ollama, _ollama_events,
            "{}\n", "", lambda url, retry_policy: Ollama("m", url, retry_policy=retry_policy),
        ),
    )
}  # fmt: skip


# The server.


@dataclass
class Peer:
    """One request, and what a mode does about it. Whatever it sends is lost once the client is gone."""

    server: Server
    connection: socket.socket
    path: str
    asked: Any

    @property
    def streamed(self) -> bool:
        return isinstance(self.asked, dict) and self.asked.get("stream") is True

    def good(self, mark: str = "", text: str = CALL) -> bytes:
        """The body of a good answer, with `mark` at its mark."""
        match self.path:
            case "/props":
                value: Any = {"default_generation_settings": {"n_ctx": 4096}, "model_path": f"m{mark}.gguf"}
            case "/apply-template":
                value = {"prompt": json.dumps(self.asked["messages"]) + mark}
            case "/v1/models":
                value = {"data": [{"id": f"m{mark}", "max_model_len": 4096}]}
            case _:
                return self.server.wire.body(text.replace(MARK, mark), streamed=self.streamed).encode()
        return json.dumps(value).encode()

    def event(self, text: str) -> bytes:
        """One piece of an answer: an event, or spaces before the answer where nothing is streamed."""
        wire = self.server.wire
        return wire.framed(wire.events([text])[0]).encode() if self.streamed else b" " * len(text)

    def send(self, data: bytes) -> None:
        self.server.sent += len(data)
        self.connection.sendall(data)

    def head(self, *headers: str, status: str = "200 OK", length: int | str | None = None) -> None:
        lines = [f"HTTP/1.1 {status}", *headers]
        if length is not None:
            lines.append(f"Content-Length: {length}")
        self.send("\r\n".join([*lines, "", ""]).encode("latin-1"))

    def answer(self, body: bytes, *headers: str, status: str = "200 OK") -> None:
        self.head(*headers, status=status, length=len(body))
        self.send(body)

    def drip(self, pieces: Iterable[bytes]) -> None:
        """Send a piece now and then, until the client goes or patience ends."""
        until = time.monotonic() + _DRIPS_FOR_S
        for piece in pieces:
            self.send(piece)
            if self.server.closed.wait(_PAUSE_S):
                return
            if time.monotonic() > until:
                self.server.gave_up = True
                return

    def flood(self, piece: bytes) -> None:
        """Send a piece again and again, as fast as it is taken."""
        many = piece * max(1, 65536 // len(piece))
        for _ in range(FLOOD // len(many)):
            self.send(many)
        self.server.gave_up = True

    def silence(self) -> None:
        self.drip(itertools.repeat(b""))

    def reset(self) -> None:
        """Close the connection by a TCP reset."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@dataclass(frozen=True)
class Mode:
    """A way to attack. `slow`: it ends by the client's deadline alone; all others have to end without it.

    `answered`: odd, but the answer stands there and has to be taken (True), or there is none (False).
    `everywhere`: on every path of the wire.
    """

    name: str
    act: Callable[[Peer], None]
    slow: bool = False
    answered: bool | None = None
    everywhere: bool = False


@dataclass
class Server:
    """`sent`: bytes that went out, in all. `gave_up`: the client took all that a mode is ready to send.

    `attacks`: if not, all answers are good.
    """

    wire: Wire
    mode: Mode
    path: str
    listener: socket.socket
    sent: int = 0
    gave_up: bool = False
    attacks: bool = True
    requests: int = 0
    attacked: int = 0
    closed: threading.Event = field(default_factory=threading.Event)
    _open: list[socket.socket] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def serve(self) -> None:
        while not self.closed.is_set():
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as in `support.server`
            self._open.append(connection)
            thread = threading.Thread(target=self._talk, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self, accepting: threading.Thread) -> None:
        """End the thread that runs `serve` first, since it starts others."""
        self.closed.set()
        _shut(self.listener)
        accepting.join()
        self.hang_up()

    def hang_up(self) -> None:
        """Close all connections."""
        for connection in self._open:
            _shut(connection)
        for thread in self._threads:
            thread.join()

    def _talk(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError), connection.makefile("rb") as reader:
            while (asked := _request(reader)) is not None:
                self.requests += 1
                peer = Peer(self, connection, *asked)
                if self.attacks and (self.mode.everywhere or peer.path == self.path):
                    self.attacked += 1
                    self.mode.act(peer)
                    if not self.mode.everywhere:
                        return
                else:
                    peer.answer(peer.good())


def _request(reader: io.BufferedReader) -> tuple[str, Any] | None:
    """The path and the JSON of the next request, None if there is none."""
    head = reader.readline().split()
    if len(head) != 3:
        return None
    size = 0
    while line := reader.readline().strip():
        name, _, value = line.partition(b":")
        size = int(value) if name.lower() == b"content-length" else size
    return head[1].decode(), json.loads(reader.read(size) or b"null")


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@contextlib.contextmanager
def hostile(mode: Mode, wire: Wire, path: str = "") -> Iterator[Server]:
    """Serve on loopback; `path` is the attacked one, by default that of the answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        server = Server(wire, mode, path or wire.path, listener)
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.close(thread)


# Planning against it.

Way = Literal["run", "events", "arun", "stream"]
WAYS: tuple[Way, ...] = ("run", "events", "arun", "stream")
"""The ways to run a planner; `events` and `stream` let the server stream its text."""


@dataclass(frozen=True)
class Attacked:
    """What became of a run against a hostile server."""

    run: Run
    tools_called: int
    attacked: int
    sent: int
    gave_up: bool


def attack(mode: Mode, wire: Wire, way: Way, context: Context, *, path: str = "") -> Attacked:
    """Plan against a hostile server: with a short deadline if the mode is slow, else with a long one."""
    for seconds in (0.2, 1.0, 5.0) if mode.slow else ():
        with contextlib.suppress(AnswerTimeoutError):  # of what is not attacked
            ended = _attack(mode, wire, way, context, path, seconds)
            if ended.attacked:
                return ended  # else this machine took too long to come to the attacked path
    return _attack(mode, wire, way, context, path, 25.0 if mode.slow else 120.0)


def _attack(mode: Mode, wire: Wire, way: Way, context: Context, path: str, seconds: float) -> Attacked:
    retry_policy = RetryPolicy(
        timeout=seconds, connect_timeout=60.0, retries=1, backoff=0.001, loading_timeout=0.02
    )
    with hostile(mode, wire, path) as server, wire.client(server.url, retry_policy) as backend:
        seen: list[Event] = []
        server.attacks = False
        planner = Planner(
            [TOOL],
            backend,
            PlannerOptions(max_steps=3, max_tokens=64),
            context=context,
            hooks=(seen.append,),
        )
        server.attacks = True
        server.hang_up()  # so that the backend has to ask again what it knows
        run = planned(planner, "look", way)
        assert isinstance(seen[-1], RunFinished)
        called = sum(isinstance(event, ToolCalled) for event in seen)
        return Attacked(run, called, server.attacked, server.sent, server.gave_up)


def planned(planner: Planner, query: str, way: Way) -> Run:
    """Return the run of a query."""

    async def streamed() -> Run:
        events = [event async for event in planner.astream(query)]
        assert isinstance(events[-1], RunFinished)
        return events[-1].run

    match way:
        case "run":
            return planner.run(query)
        case "events":
            *_, last = planner.stream(query, text=True)
            assert isinstance(last, RunFinished)
            return last.run
        case "arun":
            return asyncio.run(planner.arun(query))
        case "stream":
            return asyncio.run(streamed())
