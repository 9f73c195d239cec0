"""The error that becomes an HTTP response."""

from __future__ import annotations

from gbnf_server.system.errors import GbnfServerError


class HttpError(GbnfServerError):
    """A request to the gateway, or to a page, that has no answer.

    Fields: `status` (HTTP), `message`, `code` (a stable word), `param` (the path in the request), and
    `retry_after` (seconds after which the same request may succeed, None if it would not).
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        param: str | None = None,
        *,
        retry_after: int | None = None,
    ) -> None:
        self.status, self.message, self.code = status, message, code
        self.param, self.retry_after = param, retry_after
        super().__init__(message)


def invalid_request(message: str, param: str | None = None) -> HttpError:
    """Return the error of a request that is invalid at `param`."""
    return HttpError(400, message, "invalid_request", param)
