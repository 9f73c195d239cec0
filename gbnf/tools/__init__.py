"""Tools as values, read from manifests: TOML files, or mappings of the same form.

    load_manifests(paths)  ->  tuple[Tool, ...], or raises BrokenManifestsError
    load_tools(source)     ->  the same, from any description of tools

A tool is what a model calls; its executor is the code that carries out the call (`gbnf_server.executors`).
Modules, each importing only from those before it: `argument_schema`, `near_misses` and `manifest_checks`
(checks of a manifest), `tool` (the value and the built-in tools), `loosening` (tools of other programs),
`functions` (Python functions and models), `sources` (manifests, and all of them).
"""

from gbnf.exports import exported as _exported
from gbnf.tools.manifest_checks import OfferPolicy as OfferPolicy
from gbnf.tools.manifest_checks import RunPolicy as RunPolicy
from gbnf.tools.sources import load_manifests as load_manifests
from gbnf.tools.sources import load_tools as load_tools
from gbnf.tools.tool import ASK_USER as ASK_USER
from gbnf.tools.tool import BUILT_IN_TOOLS as BUILT_IN_TOOLS
from gbnf.tools.tool import FINAL_ANSWER as FINAL_ANSWER
from gbnf.tools.tool import FIND_TOOLS as FIND_TOOLS
from gbnf.tools.tool import Tool as Tool
from gbnf.tools.tool import localized as localized

__all__ = _exported(globals())  # noqa: PLE0605  # the imports are the list
