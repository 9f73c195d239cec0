"""The tools of the last requests by their JSON text, which clients send again with each request.

Such a text is left out of a body before that is read, and its value put in its place afterwards.
"""

from __future__ import annotations

import json
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

_MOST_KEPT = 16
_LONGEST = 256 * 1024
_STYLES: tuple[tuple[str, dict[str, Any]], ...] = (
    ('"tools":', {"separators": (",", ":"), "ensure_ascii": False}),  # of JavaScript and httpx
    ('"tools": ', {}),  # of Python
)
"""How clients write JSON."""


class ToolTexts:
    """The texts, for any number of threads. What belongs to a text is not changed."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Any] = OrderedDict()
        self._mark = secrets.token_hex()

    def shorten(self, body: bytes) -> tuple[bytes, Any]:
        """Return a body without the text of known tools, and the tools; None for a body without any."""
        for text, tools in reversed(list(self._known.items())):
            before, found, after = body.partition(text)
            if found:
                return b'%b"tools":"%b"%b' % (before, self._mark.encode(), after), tools
        return body, None

    def restored(self, value: Mapping[str, Any], tools: Any) -> Mapping[str, Any] | None:
        """Return the value of a shortened body with its tools, None if they were somewhere else in it."""
        return {**value, "tools": tools} if value.get("tools") == self._mark else None

    def add(self, body: bytes, tools: Any) -> None:
        """Remember the tools of a body."""
        for key, style in _STYLES if isinstance(tools, list) else ():
            text = f"{key}{json.dumps(tools, **style)}".encode()
            if len(text) <= _LONGEST and text in body:
                self._known[text] = tools
                if len(self._known) > _MOST_KEPT:
                    self._known.popitem(last=False)
