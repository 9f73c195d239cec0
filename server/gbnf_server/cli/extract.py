"""`gbnf extract` and `gbnf generate`: values that fit a JSON Schema, from texts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gbnf.errors import ManifestError, SchemaError, clip
from gbnf_server.cli import input_files
from gbnf_server.cli.default_model import model_for_other_tools, other_model_hint
from gbnf_server.cli.errors import ExitCode, interruptible
from gbnf_server.cli.model_options import (
    ModelSource,
    QuietOption,
    SamplingOptions,
    SeedOption,
    TemperatureOption,
)
from gbnf_server.cli.output import (
    SHOWN_CHARACTERS,
    escape_line,
    progress_bar,
    say,
    stderr_console,
    write,
    writing,
)
from gbnf_server.system.errors import InputError

if TYPE_CHECKING:
    from gbnf_server.planner.extraction import Extraction, ExtractionError, Extractor


def extract(
    inputs: Annotated[
        list[str] | None, typer.Argument(), "[FILE]...", "Text files, one value each; -: standard input."
    ] = None,
    *,
    schema: Annotated[str, input_files.SCHEMA_OPTION],
    input_: Annotated[list[str] | None, "FILE", "Text file, as FILE; repeatable."] = None,
    output: Annotated[
        Path | None,
        "FILE.jsonl",
        ("Write the results there, with a log from which the same command continues. Default: print them."),
    ] = None,
    instructions: Annotated[str, "What is wanted, beyond the schema's descriptions."] = "",
    attempts: Annotated[int, typer.Option(min=1), "How often the model may try."] = 3,
    concurrency: Annotated[int, typer.Option(min=1), "Texts at a time."] = 1,
    source: ModelSource,
    sampling: SamplingOptions,
    quiet: QuietOption = False,
) -> None:
    """Extract a value that fits a JSON Schema, or a Python type, from each text.

    A result is one line of JSON: the input, the value, the probability of each enum value, boolean and
    number, tokens and seconds; or the error. A value that a validator refuses is reported to the model, which
    tries again. Without --model or --server, use smollm2.

    \b
    Try:
      gbnf extract letter.txt --schema invoice.json
      gbnf extract docs/*.txt --schema models.py:Invoice --output invoices.jsonl --model Qwen3-4B-Q4_K_M.gguf
      pbpaste | gbnf extract - --schema contact.json --server http://127.0.0.1:8080 | jq .value.email

    \b
    Exit codes: 0 success, 1 a text gave no valid value, 3 invalid schema or input, 4 the model does not work.
    """
    source.check()
    given = [*(input_ or ()), *(inputs or ())]  # of `--input *.txt`, the first is the option's
    if not given:
        raise typer.BadParameter("give the texts: gbnf extract FILE… --schema SCHEMA; - is standard input")
    input_files.check_one_stdin(schema, *given)
    texts = [input_files.read_text(each, "a text file").strip() for each in given]
    blank = next((each for each, text in zip(given, texts, strict=True) if not text), None)
    if blank is not None:
        raise InputError(f"{input_files.source_name(blank)} is empty.")
    with interruptible("run the same command again to continue" if output else ""):
        with _opened(source, schema, sampling, concurrency, instructions, attempts) as extractor:
            for finding in extractor.findings:
                say(escape_line(str(finding)), "checked afterwards")
            failed = asyncio.run(_write(extractor, given, texts, output, concurrency, quiet=quiet))
        if untrained := _untrained(source):
            say(untrained, "error", "bold red")
    raise typer.Exit(ExitCode.FAILURE if failed or untrained else ExitCode.SUCCESS)


def _untrained(source: ModelSource) -> str:
    """Return why the answers of the model make no sense, "" if they may."""
    if not model_for_other_tools(source, quiet=True).is_demo_model:
        return ""
    return f"the demonstration model is trained on the bundled tools only. {other_model_hint()}"


@contextmanager
def _opened(
    source: ModelSource,
    schema: str,
    sampling: SamplingOptions,
    concurrency: int = 1,
    instructions: str = "",
    attempts: int = 3,
) -> Iterator[Extractor[Any]]:
    """Give what extracts values of a schema. Raises InputError with the file's name, and BackendError."""
    from gbnf_server.planner.extraction import Extractor

    wanted = input_files.read_schema_source(schema)
    with model_for_other_tools(source).open(parallel=concurrency) as opened:
        try:
            extractor: Extractor[Any] = Extractor(
                wanted.schema if wanted.type is None else wanted.type,
                opened,
                instructions=instructions,
                attempts=attempts,
                max_tokens=sampling.max_tokens,
                temperature=sampling.temperature,
                seed=sampling.seed,
            )
        except (SchemaError, ManifestError) as error:
            raise InputError(f"{input_files.source_name(schema)}: {error}") from None
        yield extractor


async def _write(
    extractor: Extractor[Any],
    names: Sequence[str],
    texts: Sequence[str],
    output: Path | None,
    concurrency: int,
    *,
    quiet: bool,
) -> int:
    """Write a line for each text; return how many gave no value. Raises SetupError."""
    failed = 0
    log = None if output is None else output.with_name(output.name + ".log")
    results = extractor.amany(texts, log, concurrency)
    with _lines(output) as write_line, progress_bar(stderr_console(), quiet=quiet) as progress:
        bar = progress.add_task("", total=len(texts))
        async with aclosing(results):
            for name in names:
                result = await anext(results)
                failed += isinstance(result, Exception)
                write_line(json.dumps({"input": name, **_line(result)}, ensure_ascii=False))
                progress.update(bar, advance=1, description=escape_line(clip(name, SHOWN_CHARACTERS)))
    return failed


def _line(result: Extraction[Any] | ExtractionError) -> dict[str, Any]:
    if isinstance(result, Exception):
        return {"error": str(result), "attempts": [each.text for each in result.attempts]}
    return result.to_json()


@contextmanager
def _lines(output: Path | None) -> Iterator[Callable[[str], None]]:
    """Give what writes a line to the file, or prints it. Raises SetupError."""
    if output is None:
        yield write
        return
    with writing(f"the results can't be written to {output}"), output.open("w", encoding="utf-8") as file:
        yield partial(print, file=file, flush=True)


def generate(
    prompt: Annotated[str, typer.Argument(), "PROMPT", "What to generate; -: read it from standard input."],
    schema: Annotated[str, input_files.SCHEMA_OPTION],
    *,
    source: ModelSource,
    max_tokens: Annotated[int, typer.Option(min=1), "Maximum tokens of the answer."] = 1024,
    temperature: TemperatureOption = 0.0,
    seed: SeedOption = 0,
) -> None:
    """Generate one JSON value that fits a JSON Schema, or a Python type, and print it.

    As `gbnf extract` with one text, and the value alone. Objects have the properties that the schema
    declares; others if it allows additionalProperties.

    \b
    Try:
      gbnf generate "Ada Lovelace, born in 1815" --schema person.json --model Qwen3-4B-Q4_K_M.gguf
      gbnf generate - --schema invoice.json --server http://127.0.0.1:8080 < letter.txt | jq .total

    \b
    Exit codes: 0 success, 1 no valid answer, 3 invalid schema, 4 the model does not work.
    """
    source.check()
    input_files.check_one_stdin(prompt, schema)
    from gbnf_server.planner.extraction import ExtractionError

    text = input_files.read_request(prompt, "PROMPT")
    sampling = SamplingOptions(max_tokens, temperature, seed)
    with interruptible(), _opened(source, schema, sampling) as extractor:
        try:
            write(json.dumps(extractor.extract(text).json, ensure_ascii=False))
            problem = _untrained(source)
        except ExtractionError as error:
            problem = str(error)
        if problem:
            say(escape_line(problem), "error", "bold red")
            raise typer.Exit(ExitCode.FAILURE)
