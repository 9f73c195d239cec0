"""The tools of the last requests by their JSON text, which clients send again with each request."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

from gbnf_server.web.limits import nesting

_MOST_KEPT, _LONGEST = 16, 256 * 1024
_STYLES: tuple[tuple[str, dict[str, Any]], ...] = (
    ('"tools":', {"separators": (",", ":"), "ensure_ascii": False}),  # how JavaScript and httpx write JSON
    ('"tools": ', {}),  # how Python does
)


class ToolTexts:
    """The texts, for any number of threads. What belongs to a text is not changed."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Any] = OrderedDict()

    def shorten(self, body: bytes) -> tuple[bytes, Any]:
        """Return a body with null for known tools, and the tools; the body and None if it has none."""
        for text, tools in reversed(list(self._known.items())):
            before, found, after = body.partition(text)
            if found and nesting(before) == 1 and before.rstrip().endswith((b"{", b",")):
                return b'%b"tools":null%b' % (before, after), tools
        return body, None

    def add(self, body: bytes, tools: Any) -> None:
        """Remember the tools of a body."""
        for key, style in _STYLES if isinstance(tools, list) else ():
            text = f"{key}{json.dumps(tools, **style)}".encode()
            if len(text) <= _LONGEST and text in body:
                self._known[text] = tools
                if len(self._known) > _MOST_KEPT:
                    self._known.popitem(last=False)
