"""Load llama-cpp-python's bindings. Raises SetupError if that fails."""

from __future__ import annotations

import os
from typing import Any

from gbnf.extras import missing_extra
from gbnf_server.llama.prebuilt import load_bindings
from gbnf_server.system.errors import SetupError

# OpenMP reads it when it is loaded, here and in a llama-server. By default, threads that wait for each other
# spin: when another program uses one of the cores, they take the rest of the time from the one that they wait
# for. SmolLM2 135M with two threads on two cores, both in demand: 2 tokens/s, and 50 with this.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
try:
    llama_cpp: Any = load_bindings(os.environ)
except (ImportError, OSError, RuntimeError, SetupError) as _error:  # it raises the first three
    if isinstance(_error, ImportError) and (_missing := missing_extra(_error)):
        raise _missing from _error
    raise SetupError(f"llama-cpp-python cannot be loaded: {_error}. Run `gbnf doctor`.") from _error

__all__ = ["llama_cpp"]
