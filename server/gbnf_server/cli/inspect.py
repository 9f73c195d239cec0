"""`gbnf inspect`: a page that shows what a grammar does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gbnf_server.cli import input_files
from gbnf_server.cli.config import configured_providers
from gbnf_server.cli.default_model import foreign_tools, model_for_other_tools
from gbnf_server.cli.model_options import GrammarOptions, LoraOption, ModelOption, ModelSource
from gbnf_server.cli.output import say, serve_app, writing
from gbnf_server.cli.tool_options import PathsArgument, ToolSources
from gbnf_server.system.errors import InputError

if TYPE_CHECKING:
    from gbnf_server.inspect.grammar_choice import GrammarChoice
    from gbnf_server.inspect.inspection import Inspection
    from gbnf_server.inspect.live_decoding import LiveDecoder
    from gbnf_server.llama.native import NativeModel
    from gbnf_server.planner.runs.run_files import RecordedRun

_HOST = "127.0.0.1"


def inspect(
    context: typer.Context,
    paths: PathsArgument = None,
    *,
    sources: ToolSources,
    schema: Annotated[str | None, input_files.SCHEMA_OPTION] = None,
    run: Annotated[
        list[Path] | None,
        "FILE",
        "Run to show, from `gbnf run --record` or `--json`, or the log of a batch; repeatable.",
    ] = None,
    options: GrammarOptions,
    call_format: Annotated[
        Literal["json", "native"], "How calls are written: as JSON, or as the chat template of --model does."
    ] = "json",
    model: ModelOption = None,
    lora: LoraOption = None,
    html: Annotated[
        Path | None, "FILE", "Write one self-contained file without the live parts, and exit."
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535), "TCP port; 0: any free port."] = 0,
    no_open: Annotated[bool, "Do not open the page in a browser."] = False,
) -> None:
    """Show what a grammar does, as a page in the browser.

    For each tool, or for one JSON Schema: the schema, the GBNF and railroad diagrams side by side, with the
    keyword that each rule comes from and what is not enforced; a text as you type it, how far the grammar
    accepts it and why not further; a request as the model decodes it, token by token, with what the grammar
    refused; for a request, the tools that are offered and what each costs. With --run, what happened in a
    run, and how its calls were decoded. Print the URL when ready; it is valid on this machine, and contains a
    token. Nothing is loaded from elsewhere. --model names the model that decodes, and whose tokenizer counts
    the prompt, by default the bundled one; a JSON Schema and other tools are decoded by smollm2, if it is
    installed.

    \b
    Try:
      gbnf inspect                                the bundled tools
      gbnf inspect my-tools/                      your own tools
      gbnf inspect --schema person.json           one JSON Schema
      gbnf inspect --mcp mcp.json --html mcp.html
      gbnf inspect --call-format native --model Qwen3-4B-Q4_K_M.gguf
      gbnf inspect --run run.json                 from `gbnf run --record run.json`
    """
    source = ModelSource(model, lora=lora)
    source.check()
    choice = _choice(options, call_format, source)
    with _inspection(context, paths or [], sources, schema, source, run or [], choice) as inspection:
        if html is not None:
            with writing(f"{html} cannot be written"):  # a schema may contain a lone surrogate
                html.write_text(inspection.file(), "utf-8", errors="replace")
            say(f"wrote {html}")
        else:
            inspection.decoder = _decoder(source, inspection, choice)
            _serve(inspection, port, opens=not no_open and sys.stdout is not None and sys.stdout.isatty())


@contextmanager
def _inspection(
    context: typer.Context,
    paths: list[Path],
    sources: ToolSources,
    schema: str | None,
    source: ModelSource,
    run: list[Path],
    choice: GrammarChoice,
) -> Iterator[Inspection]:
    """Return what the command line names, while its MCP servers run. Raises InputError."""
    from gbnf_server.inspect.inspection import Inspection

    runs: list[RecordedRun] = []
    if run:  # otherwise without the planner, which the module imports
        from gbnf_server.planner.runs.run_files import read_runs

        runs = [recorded for file in run for recorded in read_runs(file)]
    if runs and not (paths or sources or schema):
        yield Inspection(", ".join(map(str, run)), runs=runs)
        return
    input_files.check_one_stdin(schema, *(sources.tools or ()))
    files = [*paths, *([] if schema is None else [Path(schema)])]
    sources = sources.with_paths(files, context)
    schemas = input_files.schemas_among(paths, schema)
    if schemas:
        if len(sources) > 1:
            raise typer.BadParameter(f"{schemas[0]} is a JSON Schema, which is shown alone: give no tools")
        if choice.tool_format is not None:
            raise typer.BadParameter("--call-format native is for tools: a JSON Schema has no calls")
        yield _schema_inspection(schemas[0], runs, choice)
        return
    counter = _token_counter(source)
    title = ", ".join([*map(str, files), *(sources.tools or ()), *(sources.mcp or ())]) or "The bundled tools"
    with sources.open() as pool:
        if not pool and not runs:
            raise InputError(f"{title}: there is no tool in it to show.")
        yield Inspection(
            title, pool, count_tokens=counter, runs=runs, choice=choice, providers=configured_providers()
        )


def _choice(options: GrammarOptions, call_format: str, source: ModelSource) -> GrammarChoice:
    """Return how the grammars are compiled. Raises ModelLoadError for the model's file."""
    if call_format == "json":
        return options.choice()
    if (options.whitespace, options.property_order, options.open_) != ("default", "any", False):
        raise typer.BadParameter(
            "--whitespace, --property-order and --open do not apply to --call-format native: the chat "
            "template decides"
        )
    from gbnf_server.backends.in_process import ChatTemplate
    from gbnf_server.llama.native import NativeModel

    path = source.path()
    with closing(NativeModel(path, vocab_only=True)) as native:
        tool_format = ChatTemplate(native).traits.tool_format
    if tool_format is None:
        raise typer.BadParameter(
            f"the chat template of {path.name} has no tools, so the model has no tool-call format: "
            "use --call-format json"
        )
    return options.choice(tool_format)


def _schema_inspection(file: str, runs: list[RecordedRun], choice: GrammarChoice) -> Inspection:
    from gbnf.tools.near_misses import misspelt_keywords
    from gbnf_server.inspect.inspection import InspectedSchema, Inspection

    name = input_files.source_name(file)
    content = input_files.read_schema_source(file).schema
    with input_files.errors_of(file):
        shown = InspectedSchema(name, content, tuple(misspelt_keywords("", content)))
        return Inspection(name, schema=shown, runs=runs, choice=choice)


def _token_counter(source: ModelSource) -> Callable[[str], int] | None:
    """Return what counts the tokens of a text; None without a model. Raises ModelLoadError."""
    path = source.path()
    if not path.is_file():
        return None

    @cache
    def native() -> NativeModel:
        from gbnf_server.llama.native import NativeModel

        return NativeModel(path, vocab_only=True)

    return lambda text: len(native().tokenize(text, special=False))


def _decoder(source: ModelSource, inspection: Inspection, choice: GrammarChoice) -> LiveDecoder | None:
    """Return what decodes requests for the page; None without a model, which is loaded for the first one."""
    from gbnf_server.inspect.live_decoding import LiveDecoder

    if inspection.schema is not None or foreign_tools(inspection.tools):
        source = model_for_other_tools(source)
    if not source.path().is_file():
        return None
    if inspection.tools:
        name = source.model or "the demonstration model (trained on the bundled tools only)"
        providers = configured_providers()
        return LiveDecoder(source.open, name, inspection.tools, providers=providers, choice=choice)
    if inspection.schema is not None and source.model is not None:  # the bundled model knows no schemas
        return LiveDecoder(source.open, source.model, schema=inspection.schema.schema, choice=choice)
    return None


def _serve(inspection: Inspection, port: int, *, opens: bool) -> None:
    """Serve the page until Ctrl-C."""
    import secrets

    from gbnf_server.inspect.app import create_app

    token = secrets.token_urlsafe(24)
    app = create_app(inspection, token)
    serve_app(app, _HOST, port, f"/?token={token}", "press Ctrl-C to stop", opens=opens)
    if inspection.decoder is not None:
        inspection.decoder.close()
