"""The application: its commands and its options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gbnf_server.cli.batch import batch
from gbnf_server.cli.bench import bench
from gbnf_server.cli.call import call
from gbnf_server.cli.chat import chat
from gbnf_server.cli.check import check
from gbnf_server.cli.compile import compile_
from gbnf_server.cli.config import apply_config
from gbnf_server.cli.doctor import doctor
from gbnf_server.cli.generate import generate
from gbnf_server.cli.help import EXIT_CODES, reflow
from gbnf_server.cli.manifests import manifests
from gbnf_server.cli.mcp import mcp
from gbnf_server.cli.new import new
from gbnf_server.cli.output import escape_control_characters
from gbnf_server.cli.property_test import property_test
from gbnf_server.cli.run import run
from gbnf_server.cli.serve import serve
from gbnf_server.cli.server import server
from gbnf_server.cli.tune import tune

_HELP = """Compile tool manifests to GBNF grammars, and plan tool calls that they constrain.

\b
Try:
  gbnf run "create a folder trips"    plan and execute, with the bundled model
  gbnf chat                           one request after another
  gbnf batch requests.jsonl           plan and execute many requests
  gbnf new my-tools/NAME              write a new tool, ready to run
  gbnf call my-tools/NAME '{…}'       execute one tool, without a model
  gbnf serve --model F.gguf           serve it to OpenAI and Anthropic clients
  gbnf manifests                      list the bundled tools
  gbnf generate "…" --schema F.json   generate one JSON value
  gbnf compile > tools.gbnf           print the grammar of their calls
  gbnf check tools.gbnf '{"name": "get_now", "arguments": {}}'
  gbnf test my-manifests              property-test your own tools
  gbnf bench --model F.gguf           measure what a grammar does
  gbnf tune --model F.gguf            find the best strategy for it
  gbnf doctor                         check this machine"""


_OLD_OPTIONS = {
    "--config": "--configuration",
    "--context": "--ctx-size",
    "--lang": "--language",
    "--lines": "--call-format=lines",
    "--no-grammar": "--call-format=text",
    "--rung": "--strategy",
    "--slots": "--parallel",
    "--soft": "--call-format=text",
    "--thought-tokens": "--reasoning-budget",
}
"""Options of earlier versions, which are still accepted."""


_ARGUMENTS = "gbnf_server.arguments"  # in the context: those of the command line, up to "--"


class _Commands(TyperGroup):
    """Accepts the old names of options, and escapes control characters in messages that quote arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        current = list(map(_current_option, args[:end]))
        ctx.meta[_ARGUMENTS] = current
        return super().parse_args(ctx, [*current, *args[end:]])

    def make_context(self, *given: Any, **extra: Any) -> Any:
        with _readable():
            return super().make_context(*given, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _readable():
            return super().invoke(ctx)


def _current_option(argument: str) -> str:
    name, equals, value = argument.partition("=")
    return f"{_OLD_OPTIONS.get(name, name)}{equals}{value}"


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error of click
            error.message = escape_control_characters(error.message)  # type: ignore[attr-defined]
        raise


app = typer.Typer(
    cls=_Commands,
    help=reflow(_HELP, EXIT_CODES),
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(help=reflow(run.__doc__, EXIT_CODES))(run)
app.command(help=reflow(chat.__doc__))(chat)
app.command(help=reflow(batch.__doc__, EXIT_CODES))(batch)
app.command(help=reflow(tune.__doc__))(tune)
app.command(help=reflow(generate.__doc__))(generate)
app.command(help=reflow(new.__doc__))(new)
app.command(help=reflow(call.__doc__))(call)
app.command("compile", help=reflow(compile_.__doc__))(compile_)
app.command(help=reflow(check.__doc__))(check)
app.command(help=reflow(manifests.__doc__))(manifests)
app.command(help=reflow(mcp.__doc__))(mcp)
app.command(help=reflow(serve.__doc__))(serve)
app.command("test", help=reflow(property_test.__doc__))(property_test)
app.command(help=reflow(doctor.__doc__))(doctor)
app.add_typer(bench, name="bench")
app.add_typer(server, name="server")


def _print_version(wanted: bool) -> None:
    if wanted:
        try:
            typer.echo(f"gbnf-toolkit {version('gbnf-toolkit')}")
        except PackageNotFoundError:
            typer.echo("gbnf-toolkit, not installed")
        raise typer.Exit


@app.callback()
def _gbnf(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback exits
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    apply_config(context, context.meta[_ARGUMENTS])
