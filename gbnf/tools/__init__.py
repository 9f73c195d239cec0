"""Tools as values, read from manifests: TOML files, or mappings of the same form.

    load_manifests(paths)  ->  tuple[Tool, ...], or raises BrokenManifestsError
    load_tools(source)     ->  the same, from any description of tools

A tool is what a model calls; its executor is the code that carries out the call (`gbnf_server.executors`).
Modules, each importing only from those before it: `argument_schema`, `near_misses` and `manifest_checks`
(checks of a manifest), `tool` (the value and the built-in tools), `loosening` (tools of other programs),
`functions` (Python functions and models), `sources` (manifests, and all of them).
"""

from gbnf.tools.manifest_checks import OfferPolicy, RunPolicy
from gbnf.tools.sources import load_manifests, load_tools
from gbnf.tools.tool import ASK_USER, BUILT_IN_TOOLS, FINAL_ANSWER, FIND_TOOLS, Tool, localized

__all__ = [
    "ASK_USER",
    "BUILT_IN_TOOLS",
    "FINAL_ANSWER",
    "FIND_TOOLS",
    "OfferPolicy",
    "RunPolicy",
    "Tool",
    "load_manifests",
    "load_tools",
    "localized",
]
