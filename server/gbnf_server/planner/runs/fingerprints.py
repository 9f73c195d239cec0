"""What identifies a run and its model: short hashes of all that determines it. Equal runs have equal ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gbnf.tools import Tool
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.system.model_files import file_sha256

if TYPE_CHECKING:
    from gbnf_server.backends.base import Backend


def digest(value: Any) -> str:
    """Return a short hash of a JSON value, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=repr).encode()).hexdigest()[:16]


def tool_identity(tool: Tool) -> Mapping[str, Any]:
    """Return what of a tool determines a run: its manifest without its path and its resource limits."""
    run = asdict(tool.run)
    return {
        "name": tool.name,
        "descriptions": dict(tool.descriptions),
        "args": tool.args,
        "offer": asdict(tool.offer),
        "run": {key: run[key] for key in ("effect", "confirm", "timeout_s")},
    }


def options_identity(options: ResolvedOptions) -> Mapping[str, Any]:
    """Return what of the options determines a run.

    All but the backend's name, and most of what is known of the model, since it has an identity; of the
    ranker its class, since it may hold a connection.
    """
    names = {field.name for field in fields(options)} - {"backend", "model"}
    return {
        **{name: getattr(options, name) for name in names},
        "ranker": type(options.ranker).__qualname__,
        "prompt_style": options.model.prompt_style,
        "gives_logprobs": options.model.gives_logprobs,
        "reasoning_tags": options.model.reasoning_tags if options.reasoning == "free" else None,
    }


def describe_model(backend: Backend, file: Path | None = None, adapter: Path | None = None) -> dict[str, Any]:
    """Return the fields that identify a model: its file and its adapter, or what a llama-server reports.

    The latter has no hash; the file's name and the build identify it. Raises BackendError.
    """
    info = backend.info()
    own: dict[str, Any] = {"name": backend.name}
    if file is None:
        own |= {"file": info.name, "build": info.build, "slots": info.slots}
    else:
        own |= {"file": file.name, "bytes": file.stat().st_size, "sha256": file_sha256(file)}
    if adapter is not None:
        own |= {"lora": adapter.name, "lora_sha256": file_sha256(adapter)}
    return {**own, "context_length": backend.context_length(), "prompt_style": info.traits.prompt_style}


def identity(model: Mapping[str, Any]) -> str:
    """Return the part of a run's fingerprint that identifies the model, without the server's URL."""
    told = {
        key: value
        for key, value in model.items()
        if key != "slots" and not (key == "name" and model.get("file"))
    }
    return "".join(model.get(key, "") for key in ("sha256", "lora_sha256")) or digest(told)
