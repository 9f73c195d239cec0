"""One JSON object a line for each request, on the logger `gbnf_server.gateway`.

Invariant: no text of a request or of an answer is logged unless `contents` is set.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

LOGGER = logging.getLogger("gbnf_server.gateway")
LOGGER.addHandler(logging.NullHandler())

_MOST_CHARACTERS = 100_000  # of one logged text


class JsonFormatter(logging.Formatter):
    """Formats records as JSON on one line, in ASCII: no text can move a terminal's cursor."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record, with the fields that `log` was given."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def log(message: str, **fields: Any) -> None:
    """Log a message with more fields."""
    LOGGER.info(message, extra={"fields": fields})


def log_error(error: Exception, **fields: Any) -> None:
    """Log an error that nobody raises on purpose, with its traceback."""
    LOGGER.error("error", exc_info=error, extra={"fields": fields})


def content_text(content: Any) -> str:
    """Return what a client sent or is sent, for the log: bytes, text or a JSON value, shortened."""
    match content:
        case bytes():
            text = content[: 4 * _MOST_CHARACTERS].decode(errors="replace")
        case str():
            text = content
        case _:
            text = json.dumps(content, ensure_ascii=False)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def log_to_stderr() -> None:
    """Print the log on stderr, with uvicorn's errors."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for logger in (LOGGER, logging.getLogger("uvicorn")):
        logger.handlers[:] = [handler]
        logger.propagate = False
    LOGGER.setLevel(logging.INFO)
