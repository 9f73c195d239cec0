"""Backends, the executors' runtime, the planner and the command line around `gbnf`.

Names are loaded when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import gbnf

if "compile_pool" not in getattr(gbnf, "__all__", ()):  # its distribution may be installed over this one
    raise ImportError(
        "the package gbnf is not that of gbnf-toolkit: an unrelated package of this name replaces it. Run: "
        "pip uninstall -y gbnf && pip install --force-reinstall --no-deps gbnf-toolkit"
    )

if TYPE_CHECKING:
    from gbnf_server.backends.base import Request as Request
    from gbnf_server.backends.in_process import InProcess as InProcess
    from gbnf_server.backends.llama_server import LlamaServer as LlamaServer
    from gbnf_server.backends.ollama import Ollama as Ollama
    from gbnf_server.backends.openai_compatible import OpenAICompatible as OpenAICompatible
    from gbnf_server.executors import Context as Context
    from gbnf_server.llama.token_values import Truncation as Truncation
    from gbnf_server.planner import Planner as Planner
    from gbnf_server.planner import PlannerOptions as PlannerOptions
    from gbnf_server.planner import Run as Run
    from gbnf_server.planner.extraction import Extraction as Extraction
    from gbnf_server.planner.extraction import ExtractionError as ExtractionError
    from gbnf_server.planner.extraction import Extractor as Extractor
    from gbnf_server.planner.extraction import achoose as achoose
    from gbnf_server.planner.extraction import aextract as aextract
    from gbnf_server.planner.extraction import aextract_many as aextract_many
    from gbnf_server.planner.extraction import aextract_stream as aextract_stream
    from gbnf_server.planner.extraction import choose as choose
    from gbnf_server.planner.extraction import extract as extract
    from gbnf_server.planner.extraction import extract_many as extract_many
    from gbnf_server.planner.extraction import extract_stream as extract_stream
    from gbnf_server.system.folders import manifests_path as manifests_path

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
    "Truncation": "gbnf_server.llama.token_values",
    "manifests_path": "gbnf_server.system.folders",
    **dict.fromkeys(
        (
            "Extraction", "ExtractionError", "Extractor", "achoose", "aextract", "aextract_many",
            "aextract_stream", "choose", "extract", "extract_many", "extract_stream",
        ),
        "gbnf_server.planner.extraction",
    ),
}  # fmt: skip
__all__ = sorted(_MODULES)  # noqa: PLE0605  # the table is the list


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        from gbnf.extras import missing_extra  # noqa: PLC0415  # as above

        raise missing_extra(error, "run") or error from error
