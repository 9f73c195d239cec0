"""Qwen2.5-Coder-0.5B-Instruct, a real model whose chat template has tools, and which calls them in its text.

It is the file that `GBNF_TOOL_MODEL` names, otherwise one in `~/.cache/gbnf-models`; tests that need it are
skipped where it is not.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_NAME = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
MODEL = Path(os.environ.get("GBNF_TOOL_MODEL") or Path.home() / ".cache" / "gbnf-models" / _NAME)

requires_qwen = pytest.mark.skipif(not MODEL.is_file(), reason=f"no {MODEL}")
