"""Manifests: TOML files (or mappings) that describe executors, read into values.

    load_manifests(paths)  ->  tuple[Executor, ...]  |  ManifestErrors

The rooms, each importing only those before it: `policies` (when a tool is offered, how it runs), `checks`
(what may be wrong with a manifest), `executor` (the value and the built-in tools), `loading` (files).
"""

from gbnf.tools.loading import load_manifests
from gbnf.tools.policies import OfferPolicy, RunPolicy
from gbnf.tools.tool import ASK_USER, BUILT_IN_TOOLS, FINAL_ANSWER, Tool, localized

__all__ = [
    "ASK_USER",
    "BUILT_IN_TOOLS",
    "FINAL_ANSWER",
    "OfferPolicy",
    "RunPolicy",
    "Tool",
    "load_manifests",
    "localized",
]
