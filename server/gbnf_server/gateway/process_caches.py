"""The caches of compilations in this process, which clients could fill with schemas that are sent once."""

from __future__ import annotations

import sys

_PACKAGES = ("gbnf.", "gbnf_server.llama.")


def clear_process_caches() -> None:
    """Empty all caches of functions that have a maximum size; the others depend on no schema."""
    for name, module in list(sys.modules.items()):
        if name.startswith(_PACKAGES):
            for function in list(vars(module).values()):
                parameters = getattr(function, "cache_parameters", None)
                if parameters is not None and parameters()["maxsize"] is not None:
                    function.cache_clear()
