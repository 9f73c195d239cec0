"""Parse what servers send: bytes to lines, lines and bodies to JSON, JSON to texts, numbers and errors.

Invariants: the chunks in which bytes arrive make no difference. Invalid Unicode (invalid UTF-8, half of a
surrogate pair) is refused, and replaced only in the body of an error. Whatever a server sends, only a
BackendError and the ValueError of `parse_json` are raised.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any, TypeAlias

import httpx

from gbnf import surrogates
from gbnf.strict_json import map_texts, nests_deeper
from gbnf_server.llama.token_values import TokenLogprob
from gbnf_server.system.errors import (
    BackendUnreachableError,
    ContextOverflowError,
    GrammarRefusedError,
    MalformedTextError,
    ServerResponseError,
)

GrammarErrors: TypeAlias = tuple[Collection[int], Collection[str]]
"""The statuses of errors, and words of which one is in their messages, that mean a refused grammar."""
_BOM = b"\xef\xbb\xbf"
_DEEPEST = 100
"""The deepest nesting of an answer; that of real servers is about ten."""
_MOST = 2**53
ENDED_EARLY = "the server's answer ended too early. It may have been stopped: see its log."


class LineDecoder:
    """Splits a stream of UTF-8 into lines, only at line feeds: JSON may contain all other separators.

    `str.splitlines`, and so httpx's `iter_lines`, also splits at U+2028, U+0085 and more. Raises
    MalformedTextError.
    """

    def __init__(self) -> None:
        self._unfinished = bytearray()
        self._is_first = True

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Add bytes, and yield the lines that they end."""
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._unfinished += part
            yield self._line()
        self._unfinished += rest

    def end(self) -> Iterator[str]:
        """Yield the last line, which no line feed ends."""
        if self._unfinished:
            yield self._line()

    def _line(self) -> str:
        line = bytes(self._unfinished)
        self._unfinished.clear()
        if self._is_first:
            line, self._is_first = line.removeprefix(_BOM), False
        return _decoded(line.removesuffix(b"\r"))


class SurrogateJoiner:
    """Joins the surrogate pairs that were split between two pieces of a text.

    Raises MalformedTextError for one half alone.
    """

    def __init__(self) -> None:
        self._half = ""

    def feed(self, piece: str) -> str:
        """Return a piece, without half of a pair at its end, and with the half that the last one left."""
        text = self._half + piece
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return join_surrogates(text.removesuffix(self._half))

    def end(self) -> None:
        """Check that no half is left."""
        join_surrogates(self._half)


def join_surrogates(text: str) -> str:
    """Return the text with the halves of surrogate pairs joined. Raises MalformedTextError for one alone."""
    try:
        return surrogates.join_surrogates(text)
    except UnicodeDecodeError:
        raise MalformedTextError("half of a surrogate pair") from None


def _decoded(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise MalformedTextError(f"the byte 0x{line[error.start]:02x}, invalid UTF-8") from None


def parse_json(text: str) -> Any:
    """Return the value of a JSON text, with surrogates unchanged. Raises ValueError for invalid JSON."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    is_flat = text.count("[") + text.count("{") <= _DEEPEST
    if not is_flat and nests_deeper(value, _DEEPEST):
        raise ValueError("it is nested too deeply")
    return value


def read(body: bytes, *, is_error: bool = False) -> Any:
    """Return the value of a whole answer, None for invalid JSON. Raises MalformedTextError.

    In the body of an error, invalid Unicode becomes U+FFFD.
    """
    content = body.removeprefix(_BOM)
    try:
        value = parse_json(content.decode(errors="replace") if is_error else _decoded(content))
    except ValueError:
        return None
    return map_texts(value, surrogates.replace_lone_surrogates if is_error else join_surrogates)


def read_object(
    response: httpx.Response,
    streamed: dict[str, Any] | None = None,
    *,
    context_length: int | None = None,
    grammar_errors: GrammarErrors = ((), ()),
) -> dict[str, Any]:
    """Return the JSON object of a response. `streamed`: what the lines of a streamed response add up to.

    Servers send errors as {"error": "…"}, {"error": {"message": "…"}}, {"message": "…"} or plain text. Raises
    ContextOverflowError, GrammarRefusedError, ServerResponseError, MalformedTextError or BackendError.
    """
    if not response.is_success:
        value = read(response.content, is_error=True)
    elif streamed == {}:
        raise BackendUnreachableError(ENDED_EARLY)
    else:
        value = read(response.content) if streamed is None else map_texts(streamed, join_surrogates)
    answer: dict[str, Any] = value if isinstance(value, dict) else {}
    error = answer.get("error")
    if response.is_success and error is None:
        if isinstance(value, dict):
            return answer
        raise ServerResponseError(response.status_code, f"no JSON object: {response.text[:200]!r}")
    told = error if isinstance(error, dict) else {}
    named = told.get("message") or error or answer.get("message") or answer.get("detail")
    message = str(named or response.text[:200] or response.reason_phrase)
    # an error in a stream comes with the status of its beginning
    status = (response.is_success and parse_count(told.get("code"))) or response.status_code
    if told.get("type") == "exceed_context_size_error" or _is_overflow(message.lower()):
        available = parse_count(told.get("n_ctx")) or context_length
        raise ContextOverflowError(parse_count(told.get("n_prompt_tokens")) or None, available)
    statuses, words = grammar_errors
    if status in statuses and any(word in message.lower() for word in words):
        raise GrammarRefusedError(message)
    raise ServerResponseError(status, message)


def _is_overflow(message: str) -> bool:
    """Return whether an error means that the messages are too long for the model."""
    return "context" in message and any(
        word in message for word in ("length", "window", "size", "exceed", "overflow", "longer", "too long")
    )


def value_at(value: Any, *path: str) -> Any:
    """Return the value at a path of keys, None for none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def parse_number(value: Any) -> float:
    """Return a number of a server; 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 < value < _MOST else 0.0


def parse_count(value: Any) -> int:
    """Return a number of a server, rounded down; 0 for anything else."""
    return int(parse_number(value))


def message_text(content: Any) -> str | None:
    """Return the text of a message: a string, or its parts of type text. None for anything else."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = []
    for part in content:
        if isinstance(part, dict) and part.get("type", "text") != "text":
            continue
        text = part.get("text") if isinstance(part, dict) else part
        if not isinstance(text, str):
            return None
        texts.append(text)
    return "".join(texts)


def parse_logprobs(entries: Any, count: int | None) -> tuple[TokenLogprob, ...]:
    """Return the log-probabilities in OpenAI's form, each with `count` alternatives; () for None.

    The form is `{"token", "bytes", "logprob", "top_logprobs": [the same]}`. Invalid entries are left out, and
    those without a text: tokens that end the answer.
    """
    if count is None or not isinstance(entries, list):
        return ()
    logprobs = []
    for entry in entries:
        parsed = _token_logprob(entry)
        if parsed is not None and parsed[0]:
            others = value_at(entry, "top_logprobs")
            top = filter(None, map(_token_logprob, others if isinstance(others, list) else ()))
            logprobs.append(TokenLogprob(*parsed, (*top,)[:count]))
    return tuple(logprobs)


def _token_logprob(entry: Any) -> tuple[bytes, float] | None:
    logprob, raw, text = (value_at(entry, key) for key in ("logprob", "bytes", "token"))
    if not isinstance(logprob, int | float):
        return None
    if isinstance(raw, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in raw):
        return bytes(raw), float(logprob)
    token = message_text(text)
    return None if token is None else (token.encode(errors="replace"), float(logprob))
