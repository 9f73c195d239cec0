"""Chat templates of real models: those that llama.cpp's sources carry.

They are looked for in the source tree that the environment variable GBNF_LLAMA_CPP_SOURCE names, otherwise in
what `python tests/support/llama_source.py` keeps of the source.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from gbnf.tool_formats import ToolFormat, detect
from support.llama_source import kept_source

SOURCE_VARIABLE = "GBNF_LLAMA_CPP_SOURCE"
BOS, EOS = "<BOS>", "<EOS>"
WITHOUT_CALLS = {
    "HuggingFaceTB-SmolLM3-3B",
    "google-gemma-2-2b-it",
    "llama-cpp-rwkv-world",
    "microsoft-Phi-3.5-mini-instruct",
}


def llama_cpp_source() -> Path | None:
    """Return llama.cpp's source tree, None if there is none on this machine."""
    named = os.environ.get(SOURCE_VARIABLE)
    folder = Path(named) if named else kept_source()
    return folder if folder and (folder / "models" / "templates").is_dir() else None


@cache
def chat_templates() -> dict[str, str]:
    """Return the templates by name, in order; none where there are no sources."""
    source = llama_cpp_source()
    if source is None:
        return {}
    files = sorted((source / "models" / "templates").glob("*.jinja"))
    return {file.stem: file.read_text(encoding="utf-8") for file in files}


def templates_with_calls() -> list[str]:
    """Return the names of the templates that write tool calls, without the work of `tool_format`."""
    return [name for name in chat_templates() if name not in WITHOUT_CALLS]


@cache
def tool_format(name: str) -> ToolFormat:
    """Return the format of a template's calls, once for all tests, since finding it takes 50 ms."""
    return detect(chat_templates()[name], bos_token=BOS, eos_token=EOS)
