"""Backends, the executors' runtime, the planner and the command line around `gbnf`.

Names are loaded when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gbnf_server.backends.base import Request
    from gbnf_server.backends.in_process import InProcess
    from gbnf_server.backends.llama_server import LlamaServer
    from gbnf_server.backends.ollama import Ollama
    from gbnf_server.backends.openai_compatible import OpenAICompatible
    from gbnf_server.executors import Context
    from gbnf_server.planner import Planner, PlannerOptions, Run
    from gbnf_server.system.folders import manifests_path

__all__ = [
    "Context",
    "InProcess",
    "LlamaServer",
    "Ollama",
    "OpenAICompatible",
    "Planner",
    "PlannerOptions",
    "Request",
    "Run",
    "manifests_path",
]

_MODULES = {
    "Context": "gbnf_server.executors",
    "InProcess": "gbnf_server.backends.in_process",
    "LlamaServer": "gbnf_server.backends.llama_server",
    "Ollama": "gbnf_server.backends.ollama",
    "OpenAICompatible": "gbnf_server.backends.openai_compatible",
    "Planner": "gbnf_server.planner",
    "PlannerOptions": "gbnf_server.planner",
    "Request": "gbnf_server.backends.base",
    "Run": "gbnf_server.planner",
    "manifests_path": "gbnf_server.system.folders",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        from gbnf.extras import missing_extra  # noqa: PLC0415 - as above

        raise missing_extra(error, "run") or error from error
