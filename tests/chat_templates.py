"""Chat templates of real models: those that llama.cpp's sources carry.

They are looked for in the source tree that the environment variable GBNF_LLAMA_CPP_SOURCE names, otherwise in
what `gbnf server install` keeps of the source.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from gbnf_server.llama.server_build import kept_source

SOURCE_VARIABLE = "GBNF_LLAMA_CPP_SOURCE"


def llama_cpp_source() -> Path | None:
    """Return llama.cpp's source tree, None if there is none on this machine."""
    named = os.environ.get(SOURCE_VARIABLE)
    if not named and find_spec("llama_cpp") is None:
        return None
    folder = Path(named) if named else kept_source()
    return folder if folder and (folder / "models" / "templates").is_dir() else None


def chat_templates() -> dict[str, str]:
    """Return the templates by name, in order; none where there are no sources."""
    source = llama_cpp_source()
    if source is None:
        return {}
    files = sorted((source / "models" / "templates").glob("*.jinja"))
    return {file.stem: file.read_text(encoding="utf-8") for file in files}
