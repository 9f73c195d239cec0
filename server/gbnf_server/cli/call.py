"""`gbnf call`: execute one tool, without a model."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from gbnf.errors import suggestion
from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf_server.cli.errors import ExitCode, interruptible
from gbnf_server.cli.input_files import STDIN, check_one_stdin
from gbnf_server.cli.model_options import ApproveAllOption, WorkspaceOption
from gbnf_server.cli.output import escape_line, say, stderr_console, write
from gbnf_server.cli.person import person_at_terminal
from gbnf_server.cli.python_source import python_target
from gbnf_server.cli.tool_options import ToolSources
from gbnf_server.system.errors import ExecutorError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbnf.tools import Tool


def call(
    name: Annotated[
        str,
        typer.Argument(),
        "TOOL",
        "Tool: its name, its folder (tools/NAME), or tools.py:NAME, module:NAME.",
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(),
        "JSON|KEY=VALUE",
        "Arguments: a JSON object (-: standard input), or KEY=VALUE, repeated for a list.",
    ] = None,
    *,
    sources: ToolSources,
    workspace: WorkspaceOption = Path("gbnf-workspace"),
    yes: ApproveAllOption = False,
) -> None:
    """Validate the arguments of one tool, execute it, and print the result as JSON. No model is used.

    A VALUE is JSON where the tool's schema accepts that, and otherwise text.

    What the tool prints goes to stderr, as does the traceback of an exception. A tool that requires approval
    asks at the terminal; without a terminal it is executed only with --yes.

    \b
    Try:
      gbnf call get_now
      gbnf call compute '{"expression": "12 * 7"}' | jq .value
      gbnf call my-tools/count_words text="two words"
      gbnf call my_tools.py:weather city=Rome days=3
      echo '{"paths": ["trips"]}' | gbnf call create_dirs -

    \b
    Exit codes: 0 executed, 1 the tool failed, 2 invalid arguments, 3 invalid manifest.
    """
    if python_target(name):
        sources = ToolSources(tools=[name])
    elif Path(name).is_dir() and ("/" in name or not sources):
        sources = ToolSources([Path(name)])
    elif "/" in name:  # no name of a tool
        siblings = [path.name for path in Path(name).parent.glob("*/")]
        hint = suggestion(Path(name).name, siblings)
        raise typer.BadParameter(f"there is no folder {name!r}.{hint}", param_hint="TOOL")
    check_one_stdin(*(arguments or ()), *(sources.tools or ()))
    with interruptible(), sources.open() as pool:
        tool = _named(name, pool)
        values = _valid_arguments(arguments or ["{}"], tool)
        code = _execute(tool, values, workspace, approve_all=yes)
    raise typer.Exit(code)


def _named(name: str, tools: Sequence[Tool]) -> Tool:
    """Return the tool with this name, or the only one in the folder with this path."""
    if python_target(name) and len(tools) == 1:
        return tools[0]
    folder = Path(name).absolute()
    for tool in tools:
        if tool.name == name or (tool.path is not None and tool.path.parent == folder):
            return tool
    names = [tool.name for tool in tools]
    hint = suggestion(name, names) or f" The tools are {', '.join(names)}."
    raise typer.BadParameter(f"unknown tool {name!r}.{hint}", param_hint="TOOL")


def _valid_arguments(texts: Sequence[str], tool: Tool) -> dict[str, Any]:
    """Return the arguments. Raises BadParameter with all errors."""
    from gbnf import validate_call

    if len(texts) > 1 or _is_pair(texts[0]):
        arguments: Any = _read_pairs(texts, tool)
    else:
        text = sys.stdin.buffer.read().decode(errors="surrogateescape") if texts[0] == STDIN else texts[0]
        try:
            arguments = parse_json(text)
        except InvalidJsonError as error:
            problem = f"invalid JSON: {error}. Give a JSON object, or KEY=VALUE."
            raise typer.BadParameter(problem, param_hint="JSON") from None
    if errors := validate_call({"name": tool.name, "arguments": arguments}, [tool]).errors:
        raise typer.BadParameter("\n".join(errors), param_hint="JSON")
    assert isinstance(arguments, dict)
    return arguments


def _is_pair(text: str) -> bool:
    return "=" in text and text.lstrip()[0] not in '{["'


def _read_pairs(texts: Sequence[str], tool: Tool) -> dict[str, Any]:
    """Return the arguments in `KEY=VALUE` texts, each value read so that it has the fewest errors."""
    from gbnf import validate_call

    values_by_key: dict[str, list[str]] = {}
    for text in texts:
        if not _is_pair(text):
            raise typer.BadParameter(f"expected KEY=VALUE, got {text!r}", param_hint="KEY=VALUE")
        key, _, value = text.partition("=")
        values_by_key.setdefault(key, []).append(value)

    def count_errors(argument: tuple[str, Any]) -> int:
        return len(validate_call({"name": tool.name, "arguments": dict([argument])}, [tool]).errors)

    arguments: dict[str, Any] = {}
    for key, values in values_by_key.items():
        read = [_json_or_text(value) for value in values]
        meanings = [*(read + values if len(values) == 1 else ()), read, values]
        arguments |= [min(((key, meaning) for meaning in meanings), key=count_errors)]
    return arguments


def _json_or_text(text: str) -> Any:
    """Return a JSON value, or the text if it is none or a string: a tool may want its quotes."""
    with suppress(InvalidJsonError):
        if not isinstance(value := parse_json(text), str):
            return value
    return text


def _execute(tool: Tool, arguments: dict[str, Any], folder: Path, *, approve_all: bool) -> ExitCode:
    """Execute the tool; print the result, and what else the tool says."""
    from gbnf_server.executors import Context, Workspace, run_executor

    console = stderr_console()
    workspace = Workspace(folder)
    person = person_at_terminal(workspace, console, approve_all=approve_all)

    def show(output: str) -> None:
        console.print(Text(output), soft_wrap=True)

    try:
        if tool.run.confirm and not person.approve({"name": tool.name, "arguments": arguments}):
            raise ExecutorError("the call was not approved, so it was not executed")  # noqa: TRY301  # one way to report
        result = run_executor(tool, arguments, Context(workspace, person=person, on_output=show))
    except ExecutorError as error:
        for note in getattr(error, "__notes__", ()):
            show(note)
        say(escape_line(error.message), "error", "bold red")
        return ExitCode.FAILURE
    write(json.dumps(result, ensure_ascii=False, indent=2))
    return ExitCode.SUCCESS
