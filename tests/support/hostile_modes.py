"""What a hostile server does to its answers: it drips, floods, lies, resets, and sends what is no text."""

from __future__ import annotations

import gzip
import itertools
import json
import socket
import zlib
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from support.hostile_server import CALL, FLOOD, MARK, Mode, Peer

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


# It drips: something comes again and again, and the answer never does.

_OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = _OK + b"Transfer-Encoding: chunked\r\n\r\n"
_EVENTS = _OK + b"Content-Type: text/event-stream\r\n\r\n"


def _piece(peer: Peer, piece: bytes | Callable[[Peer], bytes]) -> bytes:
    return piece if isinstance(piece, bytes) else piece(peer)


def _drip(
    name: str, before: bytes, piece: bytes | Callable[[Peer], bytes], *, answered: bool | None = False
) -> None:
    def act(peer: Peer) -> None:
        peer.send(before)
        peer.drip(itertools.repeat(_piece(peer, piece)))

    _add(name, act, slow=True, answered=answered)


_drip("drip_body", _OK + b"Content-Length: 1000000\r\n\r\n", b" ")
_drip("drip_status", b"HTTP/1.1 200 ", b"O")
_drip("drip_headers", _OK, b"X: 1\r\n")
_drip("drip_one_header", _OK + b"X: ", b"a")
_drip("drip_continue", b"", b"HTTP/1.1 100 Continue\r\n\r\n")
_drip("drip_early_hints", b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
_drip("drip_comments", _EVENTS, lambda peer: b": ping\n\n" if peer.streamed else b"\n")
_drip("drip_empty_events", _OK + b"\r\n", lambda peer: peer.event("") or b" ")
_drip("drip_tokens", _OK + b"\r\n", lambda peer: peer.event("a"))
_drip("drip_chunks", _CHUNKED, b"1\r\n \r\n")
_drip("drip_chunk_extension", _CHUNKED + b"1;", b"a")
_drip("drip_trailers", _CHUNKED + b"1\r\n{\r\n0\r\n", b"X: 1\r\n")
_drip("drip_error", b"HTTP/1.1 500 x\r\nContent-Length: 1000000\r\n\r\n", b"e", answered=None)
_drip("drip_loading", b"HTTP/1.1 503 x\r\n\r\n", b"l", answered=None)
_drip("silent", b"", b"")
_drip("silent_after_headers", _OK + b"Content-Length: 100\r\n\r\n", b"")


@_mode(slow=True, answered=False)
def drip_answer(peer: Peer) -> None:
    """The good answer, in bytes so seldom that it takes too long."""
    body = peer.good()
    peer.head(length=len(body) * 1000)
    peer.drip(body[at : at + 1] for at in itertools.count())


@_mode(slow=True, answered=False)
def silent_in_the_answer(peer: Peer) -> None:
    body = peer.good()
    peer.head(length=len(body))
    peer.send(body[:-10])
    peer.silence()


# It floods: more comes than any answer has, as fast as it is taken.


def _flood(
    name: str, before: bytes, piece: bytes | Callable[[Peer], bytes], *, answered: bool | None = False
) -> None:
    def act(peer: Peer) -> None:
        peer.send(before)
        peer.flood(_piece(peer, piece))

    _add(name, act, answered=answered)


_flood("flood_of_comments", _OK + b"\r\n", lambda peer: b": ping\n\n" if peer.streamed else b"\n")
_flood(
    "flood_of_line",
    _OK + b"\r\n",
    lambda peer: b'data: {"content": "aaaaaaaaaaaaaaa' if peer.streamed else b'["a',
)
_flood("flood_of_lines", _OK + b"\r\n", b" " * 31 + b"\n")
_flood("flood_of_tokens", _OK + b"\r\n", lambda peer: peer.event("a word, and more "))
_flood("flood_of_empty_events", _OK + b"\r\n", lambda peer: peer.event("") or b" ")
_flood("flood_of_continue", b"", b"HTTP/1.1 100 Continue\r\n\r\n")
_flood("flood_of_headers", _OK, b"X: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n")
_flood("flood_of_status", b"", b"HTTP/1.1 200 OK OK OK OK")
_flood("flood_of_chunks", _CHUNKED, b"40\r\n" + b" " * 64 + b"\r\n")
_flood("flood_of_trailers", _CHUNKED + b"2\r\n{}\r\n0\r\n", b"X: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n")
_flood("flood_of_error", b"HTTP/1.1 500 x\r\n\r\n", b"error ", answered=None)
_flood("long_answer", _OK + b"Content-Length: %d\r\n\r\n" % FLOOD, b" ")  # as long as it says


# It sends bombs: little that becomes much.


def _bomb(coding: str, pack: Callable[[bytes], bytes], status: str = "200 OK") -> None:
    packed = cache(lambda: pack(b"[" + b" " * (64 * 1024 * 1024)))

    def act(peer: Peer) -> None:
        peer.answer(packed(), f"Content-Encoding: {coding}", status=status)

    name = f"bomb_{coding}" if status == "200 OK" else f"bomb_{coding}_{status[:3]}"
    _add(name.replace(", ", "_").replace("-", "_"), act, answered=False)


_GZIP = partial(gzip.compress, compresslevel=1)
_bomb("gzip", _GZIP)
_bomb("deflate", partial(zlib.compress, level=1))
_bomb("x-gzip", _GZIP)
_bomb("gzip, gzip", lambda data: _GZIP(_GZIP(data)))
_bomb("gzip", _GZIP, "500 Internal Server Error")
_bomb("br", lambda _: b"\x0b\x02\x80" * 1000)
_bomb("zstd", lambda _: b"\x28\xb5\x2f\xfd" * 1000)


def _coded(name: str, header: str, body: Callable[[bytes], bytes], *, answered: bool = False) -> None:
    _add(name, lambda peer: peer.answer(body(peer.good()), header), answered=answered)


_coded("compressed_unasked", "Content-Encoding: gzip", gzip.compress)
_coded("compressed_in_transfer", "Transfer-Encoding: gzip, chunked", gzip.compress)
_coded("compressed_brokenly", "Content-Encoding: gzip", lambda _: b"no gzip at all")
_coded("coding_of_nothing", "Content-Encoding: identity", bytes, answered=True)


def _json(name: str, text: bytes, answered: bool | None = False) -> None:
    _add(name, lambda peer: peer.answer(b"data: " * peer.streamed + text), answered=answered)


_json("nested_lists", b"[" * 200_000)
_json("nested_objects", b'{"a":' * 100_000)
_json("nested_and_closed", b'{"content": ' + b"[" * 90_000 + b"]" * 90_000 + b"}")
_json("many_lists", b"[" + b"[]," * 100_000 + b"[]]")
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


def _sent(name: str, before: bytes, body: Callable[[bytes], bytes], *, answered: bool = False) -> None:
    """The good answer is changed, and sent after `before`, the status and the headers."""
    _add(name, lambda peer: peer.send(before + body(peer.good())), answered=answered)


_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 20
_sent("body_until_the_end", _OK + b"\r\n", bytes, answered=True)
_sent("interim_responses", _INTERIM + _OK + b"\r\n", bytes, answered=True)
_sent(
    "one_byte_chunks",
    _CHUNKED,
    lambda body: b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n",
    answered=True,
)
_sent("chunk_of_no_size", _CHUNKED + b"xyz\r\n", lambda body: body + b"\r\n0\r\n\r\n")
_sent("chunk_of_any_size", _CHUNKED + b"f" * 100 + b"\r\n", lambda body: body + b"\r\n0\r\n\r\n")
_sent("chunks_without_an_end", _CHUNKED, lambda body: b"%x\r\n%b\r\n" % (len(body), body))
_sent("closes_in_the_answer", _OK + b"\r\n", lambda body: body[: len(body) // 3])


@_mode()
def two_answers(peer: Peer) -> None:
    peer.answer(peer.good())
    peer.answer(b'{"error": "smuggled"}')


@_mode(answered=True)
def answer_of_many_spaces(peer: Peer) -> None:
    peer.answer((b"\n" if peer.streamed else b" ") * 100_000 + peer.good())


# It breaks off.

_raw("closes", b"")
_raw("closes_in_headers", b"HTTP/1.1 200 OK\r\nContent-Le")


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
def closes_after_an_event(peer: Peer) -> None:
    peer.head()
    peer.send(peer.event(CALL.replace(MARK, "")) if peer.streamed else b"")


def _half_close(name: str, share: float) -> None:
    """The beginning of the answer comes, and the end of the stream; the connection stays half open."""

    def act(peer: Peer) -> None:
        body = (_EVENTS if peer.streamed else _OK + b"\r\n") + peer.good()
        peer.send(body[: int(len(body) * share)])
        peer.connection.shutdown(socket.SHUT_WR)
        peer.silence()

    _add(name, act, answered=False)


_half_close("half_closed", 0.0)
_half_close("half_closed_in_the_answer", 0.5)


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


def schedule(names: Sequence[str]) -> Mode:
    """Return a mode that does to each request what is next in the schedule, and then answers well."""
    turns = iter(names)  # `next` of a list's iterator is atomic

    def act(peer: Peer) -> None:
        name = next(turns, None)
        if name is None:
            peer.answer(peer.good())
        else:
            MODES[name].act(peer)
            raise ConnectionError("the schedule ends the connection")

    return Mode("schedule", act, everywhere=True)
