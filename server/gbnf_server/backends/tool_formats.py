"""The tool-call format of a model, from its chat template. Pure."""

from __future__ import annotations

from functools import lru_cache

from gbnf.errors import ToolFormatError
from gbnf.tool_formats import ToolFormat, detect


@lru_cache(maxsize=32)
def find_tool_format(template: str, bos_token: str = "", eos_token: str = "") -> ToolFormat | None:
    """Return the format of a chat template, None if it has no tools, or they cannot be derived."""
    try:
        return detect(template, bos_token=bos_token, eos_token=eos_token)
    except ToolFormatError:
        return None
