"""The warning for the demonstration model with tools that it is not trained on."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that the others start quickly

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gbnf.tools import Tool
    from gbnf_server.cli.model_options import ModelSource


def restrict_demo_model(source: ModelSource, tools: tuple[Tool, ...]) -> tuple[tuple[Tool, ...], bool]:
    """Return the tools, and whether the model is the demonstration model, not trained on one of them.

    Its calls and answers are not reliable then: print a warning, and require approval for each tool that
    changes something and that it is not trained on.
    """
    if not source.is_demo_model:
        return tools, False
    from rich.text import Text

    from gbnf import load_manifests
    from gbnf_server.bundled import describe_frame_manifest, manifests_path
    from gbnf_server.cli.output import escape_line, stderr_console

    bundled = load_manifests([manifests_path(), describe_frame_manifest()])
    trained = {tool.name: tool.args for tool in bundled}
    foreign = [tool.name for tool in tools if trained.get(tool.name) != tool.args]
    if not foreign:
        return tools, False
    named = ", ".join(foreign[:3]) + (f" and {len(foreign) - 3} more" if len(foreign) > 3 else "")
    described = " as described here" if trained.keys() & set(foreign) else ""
    message = (
        f"the demonstration model is trained on the bundled tools only, not on {escape_line(named)}"
        f"{described}, so its answer is not reliable. Give another model: --model FILE.gguf, or --server URL."
    )
    stderr_console().print(Text.assemble(("warning: ", "yellow"), message), soft_wrap=True)
    restricted = tuple(
        replace(tool, run=replace(tool.run, confirm=True))
        if tool.name in foreign and tool.run.effect == "write"
        else tool
        for tool in tools
    )
    return restricted, True
