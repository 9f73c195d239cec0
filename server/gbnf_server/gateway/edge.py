"""What the server needs of an API: one small object without I/O.

    class ChatCompletions:
        path = "/v1/chat/completions"
        def parse(self, body, headers): …      JSON of a request -> what `answer` decodes
        def reply(self, parsed): …             events -> JSON, or the text of server-sent events
        def error(self, problem): …            a problem -> JSON in the API's own shape

The server reads the body, calls `parse` (in a thread, since it may be large), waits for a free place, decodes,
and sends what the `Reply` returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from gbnf_server.errors import GbnfServerError

_Event_contra = TypeVar("_Event_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a request has no answer. `status` is HTTP's, `code` a stable word, `param` the path in the request.

    `retry_after`: seconds after which the same request may succeed, None if it would not.
    """

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    retry_after: int | None = None


class RequestRefused(GbnfServerError):  # noqa: N818  # it is not a fault of the server
    """A request that is not answered. Field: `problem`."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.message)


class Reply(Protocol[_Event_contra]):
    """One answer while it is made: collects its events, and writes them as the API does."""

    stream: bool
    """Whether the client asked for server-sent events."""

    def feed(self, event: _Event_contra) -> str:
        """Add an event. Return the text to send now: server-sent events, "" for none or if not streamed."""
        ...

    def fail(self, problem: Problem) -> str:
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

    def parse(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
        """Return what the engine answers, from the JSON of a request. Raises RequestRefused.

        Names of `headers` are in lower case. Called in a thread.
        """
        ...

    def reply(self, parsed: Any) -> Reply[Any]:
        """Return an empty answer to a parsed request."""
        ...

    def error(self, problem: Problem) -> dict[str, Any]:
        """Return the JSON of an error."""
        ...
