"""Load llama-cpp-python's bindings. Raises SetupError if that fails."""

from __future__ import annotations

import os
from typing import Any

from gbnf_server.errors import SetupError
from gbnf_server.inference.prebuilt import load_bindings

try:
    llama_cpp: Any = load_bindings(os.environ)
except (ImportError, OSError, RuntimeError, SetupError) as _error:  # it raises the first three
    raise SetupError(f"llama-cpp-python cannot be loaded: {_error}. Run `gbnf doctor`.") from _error

__all__ = ["llama_cpp"]
