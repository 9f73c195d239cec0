"""Where a command's tools come from: options that several commands share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeAlias

import typer

from gbnf_server.cli.input_files import STDIN, check_one_stdin, is_json_file, read_json
from gbnf_server.cli.output import escape_line, say
from gbnf_server.cli.python_source import python_target, python_value
from gbnf_server.system.folders import manifests_path

if TYPE_CHECKING:
    from gbnf.tools import Tool

PathArgument: TypeAlias = Annotated[
    Path | None, typer.Argument(), "PATH", "Tools: a folder or a file. Default: the bundled tools."
]
PathsArgument: TypeAlias = Annotated[
    list[Path] | None,
    typer.Argument(),
    "PATH",
    "Tools, in folders of manifests or in files, or a JSON Schema. Default: the bundled tools.",
]
ManifestsOption: TypeAlias = Annotated[
    list[Path] | None, "PATH", "Tools: a folder or a manifest; repeatable. Default: the bundled tools."
]
ToolsOption: TypeAlias = Annotated[
    list[str] | None,
    "FILE",
    (
        "Tools in JSON: a list as of OpenAI, Anthropic or MCP (-: standard input); or Python functions: "
        "tools.py, tools.py:NAME, module:NAME; repeatable."
    ),
]


@dataclass(frozen=True, slots=True)
class ToolSources:
    """The tools that a command line names; without any, the bundled ones.

    `manifests` are paths, `tools` files that `gbnf.load_tools` reads, "-", or names of Python code, `mcp`
    sources of `gbnf_server.mcp.mcp_tools`.
    """

    manifests: ManifestsOption = None
    tools: ToolsOption = None
    mcp: Annotated[
        list[str] | None,
        "SERVER",
        "Tools of an MCP server: a command line, a URL, or an mcp.json; repeatable.",
    ] = None

    def __len__(self) -> int:
        return len(self.manifests or ()) + len(self.tools or ()) + len(self.mcp or ())

    @contextmanager
    def open(self, *, verbose: bool = False) -> Iterator[tuple[Tool, ...]]:
        """Load the tools, for use inside the block, in which MCP servers run.

        `verbose`: show what they log.
        """
        from gbnf import load_manifests, load_tools

        check_one_stdin(*(self.tools or ()))
        files: list[str | Path] = [*(self.manifests or ()), *(self.tools or ())]
        if self.mcp:
            from gbnf_server.mcp import mcp_tools

            with mcp_tools(*self.mcp, on_log=_log if verbose else None) as servers:
                yield load_tools([*map(_content, files), *servers.tools])
        elif self.tools or any(is_json_file(Path(file)) or python_target(str(file)) for file in files):
            yield load_tools([_content(file) for file in files])
        else:
            yield load_manifests(files or manifests_path())

    def with_paths(self, paths: Sequence[Path], context: typer.Context) -> Self:
        """Return the tools of a command that takes paths, too, which replace those of the configuration."""
        if not paths:
            return self

        def given(name: str) -> Any:
            source = context.get_parameter_source(name)
            return None if source is not None and source.name == "DEFAULT_MAP" else getattr(self, name)

        return replace(
            self, manifests=[*paths, *(given("manifests") or ())], tools=given("tools"), mcp=given("mcp")
        )


def _log(server: str, line: str) -> None:
    say(escape_line(f"{server}: {line}"))


def _content(file: str | Path) -> Any:
    """Return what `load_tools` reads: the path, or the JSON value where the name does not say that it is.

    Of Python code, it is the function or the module.
    """
    if python_target(str(file)):
        return python_value(str(file))
    is_unnamed_json = str(file) == STDIN or (Path(file).suffix != ".json" and is_json_file(Path(file)))
    return read_json(file, "tools") if is_unnamed_json else file
