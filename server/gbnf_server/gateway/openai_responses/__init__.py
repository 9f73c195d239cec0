"""OpenAI's Responses API: `POST /v1/responses`, and the stored responses.

Without I/O: JSON to a `ChatRequest`, and the events of its answer to JSON or server-sent events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gbnf_server.gateway.api import Api, nothing, openai_error
from gbnf_server.gateway.openai_responses.reply import ResponsesReply
from gbnf_server.gateway.openai_responses.request import read_request
from gbnf_server.gateway.openai_responses.store import ResponseStore
from gbnf_server.web.errors import HttpError


class Responses(Api):
    """The Responses API. Only the owner of a response reads and deletes it. `store`: see `ResponseStore`."""

    path = "/v1/responses"
    parse_blocks = True  # the store
    error = staticmethod(openai_error)

    def __init__(self, store: str = "") -> None:
        self.store = ResponseStore(store)

    def parse(
        self, body: Mapping[str, Any], owner: str = "", reserve: Callable[[int], None] = nothing
    ) -> ResponsesReply:
        """Read the JSON of a request. Raises HttpError."""
        store = self.store.of(owner, reserve)
        return ResponsesReply(read_request(body, store), store)

    def retrieve(
        self, response_id: str, owner: str = "", reserve: Callable[[int], None] = nothing
    ) -> Mapping[str, Any]:
        """Return a stored response, for `GET /v1/responses/{id}`. Raises HttpError (404)."""
        response = self.store.of(owner, reserve).get(response_id)
        if response is None:
            raise _not_found(response_id)
        return response

    def delete(
        self, response_id: str, owner: str = "", reserve: Callable[[int], None] = nothing
    ) -> dict[str, Any]:
        """Remove a stored response, for `DELETE /v1/responses/{id}`. Raises HttpError (404)."""
        if not self.store.of(owner, reserve).delete(response_id):
            raise _not_found(response_id)
        return {"id": response_id, "object": "response", "deleted": True}


def _not_found(response_id: str) -> HttpError:
    return HttpError(404, f"there is no stored response with the id {response_id!r}.", "not_found")
