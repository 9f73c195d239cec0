"""OpenAI's Responses API: `POST /v1/responses`, and the stored responses.

Without I/O: JSON to a `ChatRequest`, and the events of its answer to JSON or server-sent events.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

from gbnf_server.gateway.openai_responses.reply import ResponsesReply
from gbnf_server.gateway.openai_responses.request import read_request
from gbnf_server.gateway.openai_responses.store import ResponseStore
from gbnf_server.web.errors import HttpError


def random_id(prefix: str) -> str:
    """Return a new id, such as `resp_5f0c…`."""
    return f"{prefix}_{secrets.token_hex(16)}"


class Responses:
    """The Responses API. `new_id(prefix)` returns an id; `clock()` the seconds since 1970."""

    path = "/v1/responses"

    def __init__(
        self,
        store: ResponseStore | None = None,
        *,
        new_id: Callable[[str], str] = random_id,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = ResponseStore() if store is None else store
        self._new_id, self._clock = new_id, clock

    def parse(self, body: Mapping[str, Any], headers: Mapping[str, str], owner: str = "") -> ResponsesReply:  # noqa: ARG002
        """Read the JSON of a request. Raises HttpError."""
        store = self.store.of(owner)
        return ResponsesReply(read_request(body, store), store, self._new_id, self._clock)

    def retrieve(self, response_id: str, owner: str = "") -> Mapping[str, Any]:
        """Return a stored response, for `GET /v1/responses/{id}`. Raises HttpError (404)."""
        found = self.store.of(owner).get(response_id)
        if found is None:
            raise _not_found(response_id)
        return found

    def delete(self, response_id: str, owner: str = "") -> dict[str, Any]:
        """Remove a stored response, for `DELETE /v1/responses/{id}`. Raises HttpError (404)."""
        if not self.store.of(owner).delete(response_id):
            raise _not_found(response_id)
        return {"id": response_id, "object": "response", "deleted": True}

    def error(self, error: HttpError) -> dict[str, Any]:
        """Return the JSON of an error."""
        kind = "invalid_request_error" if error.status < 500 else "server_error"
        return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


def _not_found(response_id: str) -> HttpError:
    return HttpError(404, f"there is no stored response with the id {response_id!r}.", "not_found")
