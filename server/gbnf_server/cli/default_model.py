"""The model of a command line that names none: the demonstration model, or smollm2 for other tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gbnf_server.cli.output import escape_line, say
from gbnf_server.system.folders import describe_frame_manifest, manifests_path
from gbnf_server.system.model_files import SMOLLM2, has_smollm2

if TYPE_CHECKING:
    from gbnf.tools import Tool
    from gbnf_server.cli.model_options import ModelSource


def choose_model(source: ModelSource, tools: tuple[Tool, ...]) -> tuple[ModelSource, tuple[Tool, ...], bool]:
    """Return the model for the tools, the tools, and whether it is not trained on them and so not reliable.

    The last is the case of the demonstration model with other tools than the bundled ones, if smollm2 is not
    installed: print a warning, and require approval for each such tool that changes something.
    """
    foreign = foreign_tools(tools) if source.is_demo_model else []
    if not foreign:
        return source, tools, False
    chosen = model_for_other_tools(source)
    if not chosen.is_demo_model:
        return chosen, tools, False
    named = ", ".join(foreign[:3]) + (f" and {len(foreign) - 3} more" if len(foreign) > 3 else "")
    message = (
        "the demonstration model is trained on the bundled tools only, not on "
        f"{escape_line(named)} as described here, so its answer is not reliable. {other_model_hint()}"
    )
    say(message, "warning", "yellow")
    restricted = tuple(
        replace(tool, run=replace(tool.run, confirm=True))
        if tool.name in foreign and tool.run.effect == "write"
        else tool
        for tool in tools
    )
    return source, restricted, True


def model_for_other_tools(source: ModelSource, *, quiet: bool = False) -> ModelSource:
    """Return smollm2 instead of the demonstration model, if it is installed; say so unless `quiet`."""
    if not (source.is_demo_model and has_smollm2()):
        return source
    if not quiet:
        say(f"model: {SMOLLM2}, which is small and weak; --model FILE.gguf or --server URL names another")
    return replace(source, model=SMOLLM2)


def other_model_hint() -> str:
    """Return how to use another model than the demonstration model."""
    return (
        f"Use a small real one: --model {SMOLLM2} (98 MB, downloaded once, and the default here then). "
        "Or give your own: --model FILE.gguf, or --server URL."
    )


def foreign_tools(tools: Sequence[Tool]) -> list[str]:
    """Return the names of the tools that the demonstration model is not trained on as they are described."""
    from gbnf import load_manifests

    bundled = manifests_path()
    others = [tool for tool in tools if tool.path is None or not tool.path.is_relative_to(bundled)]
    if not others:
        return []
    trained = {tool.name: tool.args for tool in load_manifests([bundled, describe_frame_manifest()])}
    return [tool.name for tool in others if trained.get(tool.name) != tool.args]
