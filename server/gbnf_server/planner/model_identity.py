"""What identifies a model: in stored benches, and in the logs of batches."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gbnf_server.backends.base import Backend
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.planner.fingerprints import digest


def describe_model_file(path: Path, backend: Backend) -> dict[str, Any]:
    """Return the fields that identify a model file."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        "name": backend.name,
        "file": path.name,
        "bytes": path.stat().st_size,
        "sha256": sha256,
        "context_length": backend.context_length(),
        "prompt_style": backend.info().prompt_style,
    }


def describe_server_model(backend: LlamaServer) -> dict[str, Any]:
    """Return what a llama-server reports of its model.

    It has no hash; the file's name and the build identify it. Raises BackendError.
    """
    info = backend.info()
    return {
        "name": backend.name,
        "file": info.name,
        "build": info.build,
        "slots": info.slots,
        "context_length": backend.context_length(),
        "prompt_style": info.prompt_style,
    }


def identity(model: Mapping[str, Any]) -> str:
    """Return the part of a run's fingerprint that identifies the model, without the server's URL."""
    told = {
        key: value
        for key, value in model.items()
        if key != "slots" and not (key == "name" and model.get("file"))
    }
    return str(model.get("sha256") or digest(told))
