"""A hostile HTTP server on loopback, over raw sockets: it drips, floods, lies, resets, and sends no text.

    with hostile(MODES["drip_body"], WIRES["ollama"]) as server:
        ...  # `server.url`; `server.sent` bytes have gone out, `server.gave_up` says that nobody stopped it

`MODES` are what it does to an answer, `WIRES` the formats that it speaks. On every path of a wire but the
attacked one it answers well. `attack` plans against it in one of the four ways to run; `replied` makes a mode
of any bytes, for programs that make up their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import itertools
import json
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from gbnf.manifests import Executor
from gbnf_server.backends.base import Backend
from gbnf_server.backends.exchange import Patience
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.backends.ollama import Ollama
from gbnf_server.backends.openai_compatible import OpenAICompatible
from gbnf_server.executors import Context
from gbnf_server.planner import Event, Planner, Run
from gbnf_server.planner.events import RunFinished, ToolCalled

MARK = "@@"
"""Where in the answer a mode puts what is no text."""
CALL = json.dumps({"name": "final_answer", "arguments": {"message": f"hi{MARK}"}})
"""What a good answer says, without the mark."""
TOOL = Executor("look", args={"type": "object", "properties": {"at": {"type": "string"}}})

_PAUSE_S = 0.01
_DRIPS_FOR_S = 60.0
"""How long it drips before it gives up; no client may be patient for so long."""
_FLOOD = 256 * 1024 * 1024
"""How many bytes it sends before it gives up; no client may take so many."""
_MEBIBYTE = 1024 * 1024


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
    client: Callable[[str, Patience], Backend]

    def body(self, text: str, *, streamed: bool) -> str:
        """The body of a good answer; half a surrogate pair in `text` is escaped in it."""
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


def _llama_client(url: str, patience: Patience) -> Backend:
    return LlamaServer(
        url,
        timeout=patience.timeout,
        connect_timeout=patience.connect_timeout,
        retries=patience.retries,
        backoff=patience.backoff,
        patience=patience.loading,
        prompt_style="full",
    )


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
            lambda url, patience: OpenAICompatible(url, "vllm", patience=patience),
        ),
        Wire(
            "ollama", "/api/chat", (), _ollama, _ollama_events,
            "{}\n", "", lambda url, patience: Ollama("m", url, patience=patience),
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
        for _ in range(_FLOOD // len(many)):
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
    """`sent`: bytes that went out, in all. `gave_up`: the client took all that a mode is ready to send."""

    wire: Wire
    mode: Mode
    path: str
    listener: socket.socket
    sent: int = 0
    gave_up: bool = False
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
            self._open.append(connection)
            thread = threading.Thread(target=self._talk, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        self.closed.set()
        for each in [self.listener, *self._open]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join()

    def _talk(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError), connection.makefile("rb") as reader:
            while (asked := _request(reader)) is not None:
                self.requests += 1
                peer = Peer(self, connection, *asked)
                if self.mode.everywhere or peer.path == self.path:
                    self.attacked += 1
                    self.mode.act(peer)
                    if not self.mode.everywhere:
                        return
                else:
                    peer.answer(peer.good())


def _request(reader: io.BufferedReader) -> tuple[str, Any] | None:
    """The path and the JSON of the next request, None where there is none."""
    head = reader.readline().split()
    if len(head) != 3:
        return None
    size = 0
    while line := reader.readline().strip():
        name, _, value = line.partition(b":")
        size = int(value) if name.lower() == b"content-length" else size
    return head[1].decode(), json.loads(reader.read(size) or b"null")


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
            server.close()
            thread.join()


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
    for seconds in (0.2, 1.0, 5.0, 25.0) if mode.slow else (120.0,):
        ended = _attack(mode, wire, way, context, path, seconds)
        if ended.attacked:
            break  # else this machine took too long to come to the attacked path
    return ended


def _attack(mode: Mode, wire: Wire, way: Way, context: Context, path: str, seconds: float) -> Attacked:
    patience = Patience(timeout=seconds, connect_timeout=60.0, retries=1, backoff=0.001, loading=0.02)
    with hostile(mode, wire, path) as server, wire.client(server.url, patience) as backend:
        seen: list[Event] = []
        planner = Planner(
            [TOOL],
            backend,
            context=context,
            final_answer_from=1,
            max_steps=3,
            max_tokens=64,
            hooks=(seen.append,),
        )
        run = _planned(planner, way)
        assert isinstance(seen[-1], RunFinished)
        called = sum(isinstance(event, ToolCalled) for event in seen)
        return Attacked(run, called, server.attacked, server.sent, server.gave_up)


def _planned(planner: Planner, way: Way) -> Run:
    async def streamed() -> Run:
        events = [event async for event in planner.stream("look")]
        assert isinstance(events[-1], RunFinished)
        return events[-1].run

    match way:
        case "run":
            return planner.run("look")
        case "events":
            *_, last = planner.events("look", text=True)
            assert isinstance(last, RunFinished)
            return last.run
        case "arun":
            return asyncio.run(planner.arun("look"))
        case "stream":
            return asyncio.run(streamed())


# The modes.

MODES: dict[str, Mode] = {}
"""Every mode by its name."""


def _mode(
    *, slow: bool = False, answered: bool | None = None, everywhere: bool = False
) -> Callable[[Callable[[Peer], None]], Callable[[Peer], None]]:
    def add(act: Callable[[Peer], None]) -> Callable[[Peer], None]:
        _add(act.__name__, act, slow=slow, answered=answered, everywhere=everywhere)
        return act

    return add


def _add(name: str, act: Callable[[Peer], None], **flags: Any) -> None:
    assert name not in MODES
    MODES[name] = Mode(name, act, **flags)


def replied(data: bytes, name: str = "replied") -> Mode:
    """The mode that sends these bytes, and closes the connection."""
    return Mode(name, lambda peer: peer.send(data))


# It drips: something comes again and again, and the answer never does.


@_mode(slow=True, answered=False)
def drip_body(peer: Peer) -> None:
    peer.head(length=10**6)
    peer.drip(itertools.repeat(b" "))


@_mode(slow=True, answered=False)
def drip_status(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 ")
    peer.drip(itertools.repeat(b"O"))


@_mode(slow=True, answered=False)
def drip_headers(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\n")
    peer.drip(f"X-{number}: 1\r\n".encode() for number in itertools.count())


@_mode(slow=True, answered=False)
def drip_one_header(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nX: ")
    peer.drip(itertools.repeat(b"a"))


@_mode(slow=True, answered=False)
def drip_continue(peer: Peer) -> None:
    peer.drip(itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n"))


@_mode(slow=True, answered=False)
def drip_early_hints(peer: Peer) -> None:
    peer.drip(itertools.repeat(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"))


@_mode(slow=True, answered=False)
def drip_comments(peer: Peer) -> None:
    peer.head("Content-Type: text/event-stream")
    peer.drip(itertools.repeat(b": ping\n\n" if peer.streamed else b"\n"))


@_mode(slow=True, answered=False)
def drip_empty_events(peer: Peer) -> None:
    peer.head()
    peer.drip(itertools.repeat(peer.event("") or b" "))


@_mode(slow=True, answered=False)
def drip_tokens(peer: Peer) -> None:
    peer.head()
    peer.drip(itertools.repeat(peer.event("a")))


@_mode(slow=True, answered=False)
def drip_chunks(peer: Peer) -> None:
    peer.head("Transfer-Encoding: chunked")
    peer.drip(itertools.repeat(b"1\r\n \r\n"))


@_mode(slow=True, answered=False)
def drip_chunk_extension(peer: Peer) -> None:
    peer.head("Transfer-Encoding: chunked")
    peer.send(b"1;")
    peer.drip(itertools.repeat(b"a"))


@_mode(slow=True, answered=False)
def drip_trailers(peer: Peer) -> None:
    peer.head("Transfer-Encoding: chunked")
    peer.send(b"1\r\n{\r\n0\r\n")
    peer.drip(f"X-{number}: 1\r\n".encode() for number in itertools.count())


@_mode(slow=True, answered=False)
def drip_answer(peer: Peer) -> None:
    """The good answer, in bytes so seldom that it takes too long."""
    body = peer.good()
    peer.head(length=len(body) * 1000)
    peer.drip(body[at : at + 1] for at in itertools.count())


@_mode(slow=True)
def drip_error(peer: Peer) -> None:
    peer.head(status="500 Internal Server Error", length=10**6)
    peer.drip(itertools.repeat(b"e"))


@_mode(slow=True)
def drip_loading(peer: Peer) -> None:
    peer.head(status="503 Service Unavailable")
    peer.drip(itertools.repeat(b"l"))


@_mode(slow=True, answered=False)
def silent(peer: Peer) -> None:
    peer.silence()


@_mode(slow=True, answered=False)
def silent_after_headers(peer: Peer) -> None:
    peer.head(length=100)
    peer.silence()


@_mode(slow=True, answered=False)
def silent_in_the_answer(peer: Peer) -> None:
    body = peer.good()
    peer.head(length=len(body))
    peer.send(body[:-10])
    peer.silence()


# It floods: more comes than any answer has, as fast as it is taken.


@_mode(answered=False)
def flood_of_comments(peer: Peer) -> None:
    peer.head()
    peer.flood(b": ping\n\n" if peer.streamed else b"\n")


@_mode(answered=False)
def flood_of_line(peer: Peer) -> None:
    peer.head()
    peer.flood(b'data: {"content": "aaaaaaaaaaaaaaa' if peer.streamed else b'["a')


@_mode(answered=False)
def flood_of_lines(peer: Peer) -> None:
    peer.head()
    peer.flood(b" " * 31 + b"\n")


@_mode(answered=False)
def flood_of_tokens(peer: Peer) -> None:
    peer.head()
    peer.flood(peer.event("a word, and more "))


@_mode(answered=False)
def flood_of_empty_events(peer: Peer) -> None:
    peer.head()
    peer.flood(peer.event("") or b" ")


@_mode(answered=False)
def flood_of_continue(peer: Peer) -> None:
    peer.flood(b"HTTP/1.1 100 Continue\r\n\r\n")


@_mode(answered=False)
def flood_of_headers(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\n")
    peer.flood(b"X: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n")


@_mode(answered=False)
def flood_of_status(peer: Peer) -> None:
    peer.flood(b"HTTP/1.1 200 OK OK OK OK")


@_mode(answered=False)
def flood_of_chunks(peer: Peer) -> None:
    peer.head("Transfer-Encoding: chunked")
    peer.flood(b"40\r\n" + b" " * 64 + b"\r\n")


@_mode(answered=False)
def flood_of_trailers(peer: Peer) -> None:
    peer.head("Transfer-Encoding: chunked")
    peer.send(b"2\r\n{}\r\n0\r\n")
    peer.flood(b"X: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n")


@_mode()
def flood_of_error(peer: Peer) -> None:
    peer.head(status="500 Internal Server Error")
    peer.flood(b"error ")


@_mode(answered=False)
def long_answer(peer: Peer) -> None:
    """As long as it says."""
    peer.head(length=_FLOOD)
    peer.flood(b" ")


# It sends bombs: little that becomes much.


def _bomb(coding: str, pack: Callable[[bytes], bytes], status: str = "200 OK") -> None:
    packed = cache(lambda: pack(b"[" + b" " * (64 * _MEBIBYTE)))

    def act(peer: Peer) -> None:
        peer.answer(packed(), f"Content-Encoding: {coding}", status=status)

    name = f"bomb_{coding}" if status == "200 OK" else f"bomb_{coding}_{status[:3]}"
    _add(name.replace(", ", "_").replace("-", "_"), act, answered=False)


_bomb("gzip", gzip.compress)
_bomb("deflate", zlib.compress)
_bomb("x-gzip", gzip.compress)
_bomb("gzip, gzip", lambda data: gzip.compress(gzip.compress(data)))
_bomb("gzip", gzip.compress, "500 Internal Server Error")
_bomb("br", lambda _: b"\x0b\x02\x80" * 1000)
_bomb("zstd", lambda _: b"\x28\xb5\x2f\xfd" * 1000)


@_mode(answered=False)
def compressed_unasked(peer: Peer) -> None:
    peer.answer(gzip.compress(peer.good()), "Content-Encoding: gzip")


@_mode(answered=False)
def compressed_in_transfer(peer: Peer) -> None:
    peer.answer(gzip.compress(peer.good()), "Transfer-Encoding: gzip, chunked")


@_mode(answered=False)
def compressed_brokenly(peer: Peer) -> None:
    peer.answer(b"no gzip at all", "Content-Encoding: gzip")


@_mode(answered=True)
def coding_of_nothing(peer: Peer) -> None:
    peer.answer(peer.good(), "Content-Encoding: identity")


def _json(name: str, text: bytes, answered: bool | None = False) -> None:
    _add(name, lambda peer: peer.answer(b"data: " * peer.streamed + text), answered=answered)


_json("nested_lists", b"[" * 200_000)
_json("nested_objects", b'{"a":' * 100_000)
_json("nested_and_closed", b'{"content": ' + b"[" * 90_000 + b"]" * 90_000 + b"}")
_json("many_lists", b"[" + b"[]," * 300_000 + b"[]]")
_json("many_digits", b'{"content": ' + b"9" * 100_000 + b"}")
_json("many_digits_of_a_double", b'{"content": 1e' + b"9" * 100_000 + b"}")
_json("not_a_number", b'{"content": NaN, "done": Infinity}')
_json("one_key_many_times", b"{" + b'"error": null, ' * 10_000 + b'"error": 1}')
_json("null", b"null")
_json("a_list", b"[1]")
_json("a_number", b"5")
_json("an_object_without_anything", b"{}")
_json("a_page", b"<html><body>It works!</body></html>")
_json("nothing", b"")
_json("error_of_nothing", b'{"error": ""}')
_json("error_that_is_a_list", b'{"error": [[[1]]]}')
_json("error_in_success", b'{"error": {"code": "x", "type": 5, "message": {"a": 1}}}')


def _odd(name: str, value: Any) -> None:
    """Every value of the answer is replaced by this one."""

    def change(node: Any) -> Any:
        if isinstance(node, dict):
            return {
                key: change(each) if isinstance(each, dict | list) else value for key, each in node.items()
            }
        return [change(each) if isinstance(each, dict | list) else value for each in node]

    def act(peer: Peer) -> None:
        wire = peer.server.wire
        if peer.path != wire.path:
            peer.answer(json.dumps(change(json.loads(peer.good()))).encode())
        elif peer.streamed:
            events = "".join(wire.framed(change(event)) for event in wire.events([CALL]))
            peer.answer((events + wire.tail).encode())
        else:
            peer.answer(json.dumps(change(wire.whole(CALL))).encode())

    _add(name, act, answered=False)


_odd("all_null", None)
_odd("all_lists", [[]])
_odd("all_objects", {"text": {}})
_odd("all_true", True)
_odd("all_negative", -(10**30))
_odd("all_infinite", float("inf"))
_odd("all_empty", "")


# It lies about lengths, forms and protocols.


@_mode()
def length_too_short(peer: Peer) -> None:
    body = peer.good()
    peer.head(length=len(body) // 2)
    peer.send(body)


@_mode(answered=False)
def length_too_long(peer: Peer) -> None:
    body = peer.good()
    peer.head(length=len(body) + 10)
    peer.send(body)


def _head(name: str, *headers: str, status: str = "200 OK", answered: bool | None = None) -> None:
    def act(peer: Peer) -> None:
        body = peer.good()
        peer.head(
            *headers, status=status, length=None if any("Length" in each for each in headers) else len(body)
        )
        peer.send(body)

    _add(name, act, answered=answered)


_head("length_negative", "Content-Length: -5")
_head("length_of_many_digits", f"Content-Length: {'9' * 5000}")
_head("length_in_words", "Content-Length: many")
_head("two_lengths", "Content-Length: 5", "Content-Length: 7")
_head("length_and_chunks", "Content-Length: 5", "Transfer-Encoding: chunked")
_head("chunks_that_are_none", "Transfer-Encoding: chunked")
_head("another_transfer", "Transfer-Encoding: peculiar")
_head("type_of_an_image", "Content-Type: image/png", answered=True)
_head("two_types", "Content-Type: a", "Content-Type: b; charset=x", answered=True)
_head("many_headers", *(f"X-{number}: 1" for number in range(2000)), answered=True)
_head("a_long_header", f"X: {'a' * 60_000}", answered=True)
_head("headers_of_latin_1", "X-\xe8: \xe8")
_head("a_value_of_latin_1", "X: \xe8", answered=True)
_head("a_value_with_nul", "X: a\0b")
_head("folded_header", "X: a\r\n b", answered=True)
_head("header_without_a_colon", "no colon")
_head("reason_of_latin_1", status="200 \xe8\xe8", answered=True)
_head("status_without_a_reason", status="200", answered=True)
_head("status_of_words", status="yes OK")
_head("status_999", status="999 Beyond")
_head("status_000", status="000 Before")
_head("status_101", "Upgrade: x", "Connection: upgrade", status="101 Switching Protocols")
_head("status_204", status="204 No Content")
_head("status_206", status="206 Partial Content", answered=True)
_head("status_304", status="304 Not Modified")
_head("status_407", "Proxy-Authenticate: Basic", status="407 Proxy Authentication Required")
_head("status_401", 'WWW-Authenticate: Basic realm="\xe8"', status="401 Unauthorized")
_head("redirect_to_itself", "Location: /completion", status="302 Found")
_head("redirect_to_nowhere", "Location: http://[::", status="307 Temporary Redirect")
_head("closed_at_once", "Connection: close", answered=True)
_head("kept_forever", "Keep-Alive: timeout=99999999999999999999999", answered=True)


def _raw(name: str, data: bytes, answered: bool | None = False) -> None:
    _add(name, lambda peer: peer.send(data), answered=answered)


_raw("no_http", b"hello\r\n\r\n")
_raw("http_2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
_raw("http_9", b"HTTP/9.9 200 OK\r\nContent-Length: 2\r\n\r\n{}")
_raw("tls", b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00")
_raw("zeros", b"\0" * 1000)
_raw("line_feeds_alone", b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}")
_raw("another_request", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")


@_mode()
def two_answers(peer: Peer) -> None:
    peer.answer(peer.good())
    peer.answer(b'{"error": "smuggled"}')


@_mode(answered=True)
def body_until_the_end(peer: Peer) -> None:
    peer.head()
    peer.send(peer.good())


@_mode(answered=True)
def one_byte_chunks(peer: Peer) -> None:
    peer.head("Transfer-Encoding: chunked")
    peer.send(b"".join(b"1\r\n%c\r\n" % byte for byte in peer.good()) + b"0\r\n\r\n")


@_mode(answered=True)
def interim_responses(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 20)
    peer.answer(peer.good())


@_mode(answered=False)
def chunk_of_no_size(peer: Peer) -> None:
    peer.head("Transfer-Encoding: chunked")
    peer.send(b"xyz\r\n" + peer.good() + b"\r\n0\r\n\r\n")


@_mode(answered=False)
def chunk_of_any_size(peer: Peer) -> None:
    peer.head("Transfer-Encoding: chunked")
    peer.send(b"f" * 100 + b"\r\n" + peer.good() + b"\r\n0\r\n\r\n")


@_mode(answered=False)
def chunks_without_an_end(peer: Peer) -> None:
    body = peer.good()
    peer.head("Transfer-Encoding: chunked")
    peer.send(b"%x\r\n%b\r\n" % (len(body), body))


@_mode(answered=True)
def answer_of_many_spaces(peer: Peer) -> None:
    peer.answer((b"\n" if peer.streamed else b" ") * 100_000 + peer.good())


# It breaks off.


@_mode(answered=False)
def closes(_: Peer) -> None:
    """The connection is closed once a mode has done its work."""


@_mode(answered=False)
def resets(peer: Peer) -> None:
    peer.reset()


@_mode(answered=False)
def resets_in_headers(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Le")
    peer.reset()


@_mode(answered=False)
def resets_in_the_answer(peer: Peer) -> None:
    body = peer.good()
    peer.head(length=len(body))
    peer.send(body[: len(body) // 2])
    peer.reset()


@_mode(answered=False)
def closes_in_headers(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Le")


@_mode(answered=False)
def closes_in_the_answer(peer: Peer) -> None:
    body = peer.good()
    peer.head()
    peer.send(body[: len(body) // 3])


@_mode(answered=False)
def closes_after_an_event(peer: Peer) -> None:
    peer.head()
    peer.send(peer.event(CALL.replace(MARK, "")) if peer.streamed else b"")


# What it sends is no text.

_PLACE = "\x01"


def _text(name: str, mark: str, *, answered: bool = False) -> None:
    _add(name, lambda peer: peer.answer(peer.good(mark)), answered=answered)


def _bytes(name: str, data: bytes, *, answered: bool = False) -> None:
    place = json.dumps(_PLACE)[1:-1].encode()
    _add(name, lambda peer: peer.answer(peer.good(_PLACE).replace(place, data)), answered=answered)


_text("first_half_of_a_pair", "\ud83d")
_text("second_half_of_a_pair", "\ude00")
_text("pair_the_wrong_way_round", "\ude00\ud83d")
_text("half_of_a_pair_in_the_model_s_json", "\\ud83d")
_text("pair", "\U0001f600", answered=True)
_bytes("byte_that_is_none", b"\xff")
_bytes("overlong", b"\xc0\xaf")
_bytes("surrogate_in_utf_8", b"\xed\xa0\xbd")
_bytes("surrogates_in_utf_8", b"\xed\xa0\xbd\xed\xb8\x80")
_bytes("cut_character", b"\xf0\x9f\x98")
_bytes("latin_1", b"\xe8")
_bytes("half_of_a_pair_and_a_byte", b"\\ud83d\xb8\x80")
_bytes("character_beyond_unicode", b"\xf4\x90\x80\x80")
_bytes("utf_8", "\u00e8\u65e5\U0001f600".encode(), answered=True)
_bytes("separators", "\u2028\u2029\u0085".encode(), answered=True)


def _encoded(name: str, encoding: str, *, answered: bool | None = False) -> None:
    _add(
        name,
        lambda peer: peer.answer(
            peer.good("\u00e8").decode().encode(encoding), f"Content-Type: a; charset={encoding}"
        ),
        answered=answered,
    )


_encoded("utf_16", "utf-16")
_encoded("utf_32", "utf-32")
_encoded("ebcdic", "cp500")
_encoded("byte_order_mark", "utf-8-sig", answered=True)


@_mode(answered=False)
def ends_in_a_character(peer: Peer) -> None:
    peer.answer(peer.good() + b"\xf0\x9f")


# Its errors and headers are no better.


def _error(name: str, body: bytes, *headers: str, status: str = "500 Internal Server Error") -> None:
    _add(name, lambda peer: peer.answer(body, *headers, status=status), answered=False)


for _charset in (
    "undefined",
    "zlib_codec",
    "punycode",
    "idna",
    "unicode_escape",
    "rot13",
    "hex",
    "mbcs",
    "\xe8",
):
    _error(
        f"error_in_{_charset}", b"an error \xe8\xff\\ud83d", f"Content-Type: text/plain; charset={_charset}"
    )
    _head(f"answer_in_{_charset}", f"Content-Type: text/plain; charset={_charset}", answered=True)
_error("error_with_half_of_a_pair", b'{"error": {"message": "a\\ud83d", "type": "b\\ude00"}}')
_error("error_of_bytes", bytes(range(256)) * 10)
_error("error_of_nested_lists", b"[" * 200_000)
_error("error_without_a_body", b"")
_error(
    "error_of_the_grammar",
    b'{"error": {"message": "grammar \\ud83d", "n_ctx": []}}',
    status="400 Bad Request",
)
_error(
    "error_of_the_context",
    b'{"error": {"type": "exceed_context_size_error", "n_prompt_tokens": 1e999, "n_ctx": "x"}}',
    status="400 Bad Request",
)

for _name, _value in {
    "year_of_20_digits": "Wed, 21 Oct 20150000000000000000 07:28:00 GMT",
    "year_0": "Wed, 21 Oct 0000 07:28:00 GMT",
    "year_1_far_east": "Mon, 01 Jan 0001 00:00:00 +2359",
    "zone_of_many_digits": "Wed, 21 Oct 2015 07:28:00 +99999999999999",
    "many_digits": "9" * 5000,
    "no_number": "nan",
    "negative": "-5",
    "other_digits": "\xb2",
    "words": "soon",
    "nothing": "",
    "long_date": "Wed, " * 10_000,
    "colons": ":" * 50_000,
}.items():
    for _status in ("429 Too Many Requests", "503 Service Unavailable"):
        _error(f"retry_after_{_name}_{_status[:3]}", b"{}", f"Retry-After: {_value}", status=_status)


def _cookie(name: str, value: str) -> None:
    def act(peer: Peer) -> None:
        peer.answer(peer.good(), f"Set-Cookie: {value}")

    _add(name, act, answered=True, everywhere=True)


_cookie("cookie_of_latin_1", "a=\xe8; Path=/")
_cookie("cookie_of_utf_8", "\xc3\xa8=\xc3\xa8")
_cookie("cookie_with_a_line", "a=b\tc\x7f; expires=Wed, 21 Oct 99999999999999999999 07:28:00 GMT")
_cookie("cookie_that_is_long", "a=" + "b" * 50_000)
