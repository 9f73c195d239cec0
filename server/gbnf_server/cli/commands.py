"""The commands by name. Each is imported when it runs, so that it waits for no other's imports."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from functools import cache, partial, wraps
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, Signature, cleandoc, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand
from typer.main import get_command, get_group

_COMMANDS = {
    "run": "run:run",
    "chat": "chat:chat",
    "batch": "batch:batch",
    "tune": "gbnf_bench.tune_command:tune",
    "extract": "extract:extract",
    "generate": "extract:generate",
    "new": "new:new",
    "call": "call:call",
    "compile": "compile:compile_",
    "check": "check:check",
    "lint": "grammar_files:lint",
    "fmt": "grammar_files:fmt",
    "sample": "languages:sample",
    "diff": "languages:diff",
    "lsp": "languages:lsp",
    "inspect": "inspect:inspect",
    "manifests": "manifests:manifests",
    "mcp": "mcp:mcp",
    "serve": "serve:serve",
    "launch": "launch:launch",
    "test": "property_test:property_test",
    "doctor": "doctor:doctor",
    "bench": "gbnf_bench.bench_command:bench",
    "server": "server:server",
}
"""Each command's function or application, whose module is in `gbnf_server.cli` if it names no package."""
_SUMMARY = r'^(?:def {0}_?\(.*?"""|{0} = .*?help=")(.+?)(?:\n\n|")'
"""Where the source of a command, or of an application, has the first paragraph of its help."""
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
    "launch": "serve",
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
        return {name: TyperCommand(name, short_help=_summary(name)) for name in _COMMANDS}


class ConvertsLazily:
    """A command that converts texts and paths itself, and no defaults: typer uses pydantic, a slow import."""

    def get_params(self, ctx: Any) -> Any:  # noqa: D102  # as in the base class
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


def _place(name: str) -> tuple[str, str]:
    """Return the module of a command, and its name there. Raises KeyError."""
    module, _, attribute = _COMMANDS[name].partition(":")
    return module if "." in module else f"gbnf_server.cli.{module}", attribute


def _summary(name: str) -> str:
    """Return the first paragraph of a command's help from its source: an import would take too long."""
    module, attribute = _place(name)
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text("utf-8")
    match = re.search(_SUMMARY.format(attribute), source, re.DOTALL | re.MULTILINE)
    return " ".join(match[1].split()) if match else ""


@cache
def _load(name: str) -> Any:
    """Return a command. Raises KeyError."""
    module, attribute = _place(name)
    command = getattr(import_module(module), attribute)
    if isinstance(command, typer.Typer):
        group = get_group(command)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    texts = [command.__doc__, EXIT_CODES] if name in _WITH_EXIT_CODES else [command.__doc__]
    alone.command(name, cls=_Command, help=reflow(*texts))(with_options(command))
    return get_command(alone)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the parameters that typer takes.

    A parameter that is a dataclass of options is replaced by one for each annotated field. The texts in the
    annotation of an option are its help, or its metavar and its help, after what else typer is to know of it.
    Without that, a flag has no negative form.
    """
    parameters = []
    groups: dict[str, tuple[Any, list[str]]] = {}
    for parameter in signature(command, eval_str=True).parameters.values():
        group = parameter.annotation
        if not is_dataclass(group):
            annotation = _described_option(parameter.name, group)
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=annotation))
            continue
        hints = get_type_hints(group, include_extras=True)
        options = [
            Parameter(
                field.name,
                Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=_described_option(field.name, hints[field.name]),
            )
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


def _described_option(name: str, annotation: Any) -> Any:
    """Return an annotation with the option or argument that the texts in it describe, if there are any."""
    *declared, text = getattr(annotation, "__metadata__", (None,))
    if not isinstance(text, str):
        return annotation
    metavar = declared.pop() if declared and isinstance(declared[-1], str) else None
    option = copy(declared[0]) if declared else typer.Option(f"--{name.strip('_').replace('_', '-')}")
    option.metavar, option.help = metavar, text
    return Annotated[annotation.__origin__, option]
