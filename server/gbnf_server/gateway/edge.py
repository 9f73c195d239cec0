"""What the server needs of an API: one small object without I/O.

The server reads the body, calls `Edge.parse` (in a thread, since the body may be large), waits for a free
place, has the engine answer the request of the `Reply`, feeds it the events, and sends what it returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from gbnf_server.gateway.answers import AnswerEvent
from gbnf_server.gateway.chat import ChatRequest
from gbnf_server.web.errors import HttpError


class Reply(Protocol):
    """A request, and its answer while it is made: collects the events, and writes them as the API does.

    If the request is streamed, `feed` returns server-sent events; otherwise `body` returns the answer.
    `keep_alive`: the event that says nothing, for a stream in which nothing happens.
    """

    request: ChatRequest
    keep_alive: str

    def feed(self, event: AnswerEvent) -> str:
        """Add an event. Return the text to send now: server-sent events, "" for none or if not streamed."""
        ...

    def fail(self, error: HttpError) -> str:
        """Return the text that ends a stream that has begun, as the API reports an error in its midst."""
        ...

    def headers(self) -> Mapping[str, str]:
        """Return more headers, such as warnings; called before the first byte is sent."""
        ...

    def body(self) -> dict[str, Any]:
        """Return the JSON of an answer that is not streamed, after its last event."""
        ...


class Edge(Protocol):
    """One API: a path, and what is exchanged there."""

    path: str

    def parse(self, body: Mapping[str, Any], headers: Mapping[str, str], owner: str = "") -> Reply:
        """Read the JSON of a request; names of headers are in lower case. Raises HttpError.

        `owner`: whose request it is, see `Access.check`.
        """
        ...

    def error(self, error: HttpError) -> dict[str, Any]:
        """Return the JSON of an error."""
        ...


@runtime_checkable
class StoredAnswers(Protocol):
    """An API that keeps its answers: they are read and deleted at the path of the edge, `/` and their id.

    Only the `owner` of an answer reads and deletes it: for others, it does not exist.
    """

    def retrieve(self, response_id: str, owner: str = "") -> Mapping[str, Any]:
        """Return the JSON of a kept answer. Raises HttpError."""
        ...

    def delete(self, response_id: str, owner: str = "") -> Mapping[str, Any]:
        """Forget an answer, and return the JSON that confirms it. Raises HttpError."""
        ...


@runtime_checkable
class TokenCounts(Protocol):
    """An API that counts the tokens of a request, at the path of the edge and `/count_tokens`."""

    def parse_count(self, body: Mapping[str, Any]) -> ChatRequest:
        """Read the JSON of a request. Raises HttpError."""
        ...

    def count(self, tokens: int) -> dict[str, Any]:
        """Return the JSON of a count."""
        ...
