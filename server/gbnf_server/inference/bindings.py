"""Load llama-cpp-python's bindings. Raises SetupError if that fails."""

from __future__ import annotations

from gbnf_server.errors import SetupError

try:
    import llama_cpp
except (ImportError, OSError, RuntimeError) as _error:  # it raises all three
    raise SetupError(f"llama-cpp-python cannot be loaded: {_error}. Run `gbnf doctor`.") from _error

__all__ = ["llama_cpp"]
