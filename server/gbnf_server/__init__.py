"""Backends, the executors' runtime, the planner and the command line around `gbnf`.

Names are loaded when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import gbnf

if "compile_pool" not in getattr(gbnf, "__all__", ()):  # its distribution may be installed over this one
    raise ImportError(
        "the package gbnf is not that of gbnf-toolkit: an unrelated package of this name replaces it. Run: "
        "pip uninstall -y gbnf && pip install --force-reinstall --no-deps gbnf-toolkit"
    )

from gbnf.lazy_names import lazy_names  # of that package

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

__all__, __getattr__, __dir__ = lazy_names(__name__, {
    "gbnf_server.backends.base": ("Request",),
    "gbnf_server.backends.in_process": ("InProcess",),
    "gbnf_server.backends.llama_server": ("LlamaServer",),
    "gbnf_server.backends.ollama": ("Ollama",),
    "gbnf_server.backends.openai_compatible": ("OpenAICompatible",),
    "gbnf_server.executors": ("Context",),
    "gbnf_server.llama.token_values": ("Truncation",),
    "gbnf_server.planner": ("Planner", "PlannerOptions", "Run"),
    "gbnf_server.planner.extraction": (
        "Extraction", "ExtractionError", "Extractor", "achoose", "aextract", "aextract_many",
        "aextract_stream", "choose", "extract", "extract_many", "extract_stream",
    ),
    "gbnf_server.system.folders": ("manifests_path",),
}, extra="run")  # fmt: skip
