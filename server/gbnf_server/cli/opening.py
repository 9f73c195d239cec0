"""The model that a command line names, opened."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that the others start quickly

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gbnf_server.backends.base import Backend


def open_backend(
    model: Path | None, server: str | None, api_key: str | None, *, parallel: int = 1
) -> tuple[Backend, Callable[[], dict[str, Any]]]:
    """The backend, and what tells its model apart. `parallel`: calls at a time of a model in this process."""
    from gbnf_server.bench.about import model_file, model_server  # a bench's header says the same

    if server is not None:
        from gbnf_server.backends.llama_server import LlamaServer

        remote = LlamaServer(server, api_key=api_key)
        return remote, lambda: model_server(server, api_key, remote)
    from gbnf_server.backends.in_process import InProcess
    from gbnf_server.embedded import model_path

    path = model or model_path()
    local = InProcess(
        path, guard_grammars=False, parallel=parallel
    )  # all grammars come from our own compiler
    return local, lambda: model_file(path, local)
