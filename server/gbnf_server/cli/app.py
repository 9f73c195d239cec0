"""The application: its commands and its options."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gbnf_server.cli.commands import EXIT_CODES, Commands, ConvertsLazily, extra_of, reflow

_HELP = """Compile tool manifests to GBNF grammars, and plan tool calls that they constrain.

\b
Try:
  gbnf run "create a folder trips"    plan and execute, with the bundled model
  gbnf chat                           one request after another
  gbnf batch requests.jsonl           plan and execute many requests
  gbnf new my-tools/NAME              write a new tool, ready to run
  gbnf call my-tools/NAME '{…}'       execute one tool, without a model
  gbnf serve --model F.gguf           serve it to OpenAI and Anthropic clients
  gbnf launch claude --model F.gguf   start a coding agent on it
  gbnf manifests                      list the bundled tools
  gbnf extract F.txt --schema F.json  extract typed values from texts
  gbnf compile > tools.gbnf           print the grammar of their calls
  gbnf check tools.gbnf '{"name": "get_now", "arguments": {}}'
  gbnf sample tools.gbnf              print random texts of a grammar
  gbnf diff old.gbnf new.gbnf         print a text that only one accepts
  gbnf inspect                        see what the grammar does
  gbnf test my-manifests              property-test your own tools
  gbnf bench --model F.gguf           measure what a grammar does
  gbnf tune --model F.gguf            find the best strategy for it
  gbnf doctor                         check this machine"""


_ARGUMENTS = "gbnf_server.arguments"  # in the context: those of the command line, up to "--"


class _Gbnf(ConvertsLazily, TyperGroup):
    """Loads a command when it runs, and escapes control characters in messages that quote arguments."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: Any = Commands()

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.commands = Commands().summaries()
        super().format_help(ctx, formatter)
        self.commands = Commands()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        ctx.meta[_ARGUMENTS] = args[:end]
        return super().parse_args(ctx, args)

    def make_context(self, *args: Any, **extra: Any) -> Any:
        with _readable():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _readable():
            try:
                return super().invoke(ctx)
            except ModuleNotFoundError as error:
                from gbnf.extras import missing_extra

                raise missing_extra(error, extra_of(ctx.invoked_subcommand)) or error from error


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error of click
            from gbnf_server.cli.output import escape_control_characters

            hint = (
                ". Write -- before a text that begins with a dash." if hasattr(error, "option_name") else ""
            )
            message = error.message.rstrip() if hint else error.message  # type: ignore[attr-defined]  # of ClickException
            error.message = escape_control_characters(message + hint)  # type: ignore[attr-defined]  # of ClickException
        raise


app = typer.Typer(
    cls=_Gbnf,
    help=reflow(_HELP, EXIT_CODES),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"gbnf-toolkit {version('gbnf-toolkit')}")
        except PackageNotFoundError:
            typer.echo("gbnf-toolkit, not installed")
        raise typer.Exit


@app.callback()
def _gbnf(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001  # its callback exits
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
    no_cache: Annotated[
        bool,
        typer.Option("--no-cache", help="Compile all tools, without those in the cache folder."),
    ] = False,
) -> None:
    from gbnf_server.cli.config import apply_config
    from gbnf_server.system.part_cache import CACHE_PARTS_VARIABLE, use_disk_cache

    if no_cache:
        os.environ[CACHE_PARTS_VARIABLE] = "0"  # also for a planner, and for other processes
    use_disk_cache()
    apply_config(context, context.meta[_ARGUMENTS])
