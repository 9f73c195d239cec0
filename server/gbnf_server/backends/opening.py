"""Open a model by its name."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from gbnf_server.backends.base import Backend
from gbnf_server.system.model_files import SMOLLM2, model_files


def open_model(model: str | Path | Backend | None, *, parallel: int = 1) -> Backend:
    """Return the backend of a GGUF file, of "smollm2" (the default), or of a llama-server's URL.

    The last one is kept open, and given again; a backend is returned as it is. `parallel`: how many calls may
    run at once in process. Raises BackendError or SetupError.
    """
    if model is None or isinstance(model, str | Path):
        return _opened(str(model or SMOLLM2), parallel)
    return model


@lru_cache(maxsize=1)
def _opened(model: str, parallel: int) -> Backend:
    if model.startswith(("http://", "https://")):
        from gbnf_server.backends.llama_server import LlamaServer  # noqa: PLC0415  # servers need no extra

        return LlamaServer(model)
    from gbnf_server.backends.in_process import InProcess  # noqa: PLC0415  # it needs the extra local

    files = model_files(model)
    return InProcess(files.path, lora=files.adapter, name=files.name, parallel=parallel)
