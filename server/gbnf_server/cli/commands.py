"""The commands by name. Each is imported when it runs, so that it waits for no other's imports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial, wraps
from importlib import import_module
from inspect import Parameter, Signature, cleandoc, signature
from pathlib import Path
from typing import Any, get_type_hints

import typer
from typer.core import TyperCommand
from typer.main import get_command, get_group

#: For each command its function or application, whose module is in `gbnf_server.cli` if it names no package,
#: and the first paragraph of its help.
_COMMANDS = {
    "run": ("run:run", "Plan and execute one request with a local model."),
    "chat": ("chat:chat", "Plan and execute one request after another; the model sees the earlier ones."),
    "batch": ("batch:batch", "Plan and execute each request of a file, several at a time."),
    "tune": (
        "gbnf_bench.tune_command:tune",
        "Compare strategies on a model, print a table, and save the best as the model's profile.",
    ),
    "extract": (
        "extract:extract",
        "Extract a value that fits a JSON Schema, or a Python type, from each text.",
    ),
    "generate": (
        "extract:generate",
        "Generate one JSON value that fits a JSON Schema, or a Python type, and print it.",
    ),
    "new": ("new:new", "Write a new tool: a manifest, an executor and a test, which work as they are."),
    "call": (
        "call:call",
        "Validate the arguments of one tool, execute it, and print the result as JSON. No model is used.",
    ),
    "compile": ("compile:compile_", "Compile tools to one GBNF grammar on stdout, or one JSON Schema."),
    "check": ("check:check", "Check a grammar, and whether a text is in its language."),
    "lint": (
        "grammar_files:lint",
        "Report what is wrong or doubtful in GBNF files: position, cause and remedy.",
    ),
    "fmt": (
        "grammar_files:fmt",
        "Rewrite GBNF files in the canonical layout. Comments stay, and so does the grammar.",
    ),
    "sample": (
        "languages:sample",
        "Print random texts of a grammar's language, each as a JSON string in a line.",
    ),
    "diff": (
        "languages:diff",
        "Print the shortest text that only one of two grammars accepts, as a JSON string.",
    ),
    "lsp": (
        "languages:lsp",
        "Serve editors: diagnostics, hover, go to definition, completion and formatting.",
    ),
    "inspect": ("inspect:inspect", "Show what a grammar does, as a page in the browser."),
    "manifests": (
        "manifests:manifests",
        "List the tools: name, effect, complexity of the arguments, and findings.",
    ),
    "mcp": ("mcp:mcp", "Offer tools to MCP clients, such as Claude Desktop, VS Code and Cursor."),
    "serve": (
        "serve:serve",
        "Serve a model to clients of the OpenAI and Anthropic APIs, with calls that a grammar constrains.",
    ),
    "test": (
        "property_test:property_test",
        "Property-test manifests: find calls that their grammar wrongly accepts or rejects.",
    ),
    "doctor": ("doctor:doctor", "Check this machine: one line per check, with a fix for what is missing."),
    "bench": (
        "gbnf_bench.bench_command:bench",
        "Run suites of requests with each configuration, and print a table.",
    ),
    "server": ("server:server", "Build llama-server, and run it on this machine."),
}
EXIT_CODES = """\b
Exit codes:
    0  success: the request was answered, the text accepted
    1  failure: the run ended without an answer of its own, or the text was rejected
    2  usage error
    3  invalid input file: a manifest, a schema, a grammar
    4  a model, a server or the machine does not work
  130  interrupted"""
_WITH_EXIT_CODES = ("run", "batch")
_EXTRAS = {
    **dict.fromkeys(
        ("run", "chat", "batch", "tune", "extract", "generate", "call", "bench", "server"), "run"
    ),
    **{name: name for name in ("inspect", "lsp", "mcp", "serve")},
}


def extra_of(command: str | None) -> str | None:
    """Return the extra whose packages a command needs; None for one of the core."""
    return _EXTRAS.get(command or "")


def reflow(*texts: str | None) -> str:
    """Join the lines of each paragraph, except those that begin with \\b."""
    paragraphs = "\n\n".join(cleandoc(text or "") for text in texts).split("\n\n")
    return "\n\n".join(
        paragraph if paragraph.startswith("\b") else " ".join(paragraph.split()) for paragraph in paragraphs
    )


class Commands(Mapping[str, Any]):
    """The commands as click has them, imported when they are looked up."""

    def __getitem__(self, name: str) -> Any:
        return _load(name)

    def __contains__(self, name: object) -> bool:
        return name in _COMMANDS

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)

    def summaries(self) -> dict[str, TyperCommand]:
        """Return commands that have only a name and the first paragraph of their help."""
        return {name: TyperCommand(name, short_help=summary) for name, (_, summary) in _COMMANDS.items()}


class ConvertsLazily:
    """A command that converts texts and paths itself, and no defaults: typer uses pydantic, a slow import."""

    def get_params(self, ctx: Any) -> Any:  # noqa: D102 - as in the base class
        parameters = super().get_params(ctx)  # type: ignore[misc]  # of the command that this is mixed into
        for parameter in parameters:
            parameter.process_value = partial(_process_value, parameter)
        return parameters


class _Command(ConvertsLazily, TyperCommand):
    pass


_CONVERSIONS: Mapping[Any, Callable[[Any], Any]] = {
    str: str, Path: Path, list[str]: list, list[Path]: lambda texts: [*map(Path, texts)]
}  # fmt: skip


def _process_value(parameter: Any, context: Any, value: Any) -> Any:
    described = getattr(parameter, "type_descriptor", None)
    convert = described and described.parameter_info.dir_okay and _CONVERSIONS.get(described.annotation)
    texts = value if isinstance(value, list | tuple) else (value,)
    is_list = parameter.nargs == -1 or getattr(parameter, "multiple", False)
    if convert and texts and is_list == (texts is value) and all(type(text) is str for text in texts):
        value = convert(value)
    elif parameter.required or (value is not parameter.default and texts):
        return type(parameter).process_value(parameter, context, value)
    return value if parameter.callback is None else parameter.callback(context, parameter, value)


@cache
def _load(name: str) -> Any:
    """Return a command. Raises KeyError."""
    module, _, attribute = _COMMANDS[name][0].partition(":")
    name_of_module = module if "." in module else f"gbnf_server.cli.{module}"
    found = getattr(import_module(name_of_module), attribute)
    if isinstance(found, typer.Typer):
        group = get_group(found)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    texts = [found.__doc__, EXIT_CODES] if name in _WITH_EXIT_CODES else [found.__doc__]
    alone.command(name, cls=_Command, help=reflow(*texts))(_with_separate_options(found))
    return get_command(alone)


def _with_separate_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter that is a dataclass of options by one for each annotated field."""
    parameters = []
    groups: dict[str, tuple[Any, list[str]]] = {}
    for parameter in signature(command, eval_str=True).parameters.values():
        group = parameter.annotation
        if not is_dataclass(group):
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))
            continue
        hints = get_type_hints(group, include_extras=True)
        options = [
            Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
            for field in fields(group)
            if hasattr(hints[field.name], "__metadata__")
        ]
        groups[parameter.name] = (group, [option.name for option in options])
        parameters += options

    @wraps(command)
    def called(**values: Any) -> None:
        for name, (group, options) in groups.items():
            values[name] = group(**{option: values.pop(option) for option in options})
        command(**values)

    called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # `inspect.signature` reads it
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called
