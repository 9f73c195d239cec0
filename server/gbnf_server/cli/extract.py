"""`gbnf extract` and `gbnf generate`: values that fit a JSON Schema, from texts."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gbnf.errors import clip, suggestion
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
    column: Annotated[
        str | None, "NAME", "The files are CSV, with the texts in this column: a value for each row."
    ] = None,
    output: Annotated[
        Path | None,
        "FILE",
        (
            "Write the results there: JSON lines, or CSV if it ends in .csv. Beside it is a log, from which "
            "the same command continues. Default: print them."
        ),
    ] = None,
    instructions: Annotated[str, "What is wanted, beyond the schema's descriptions."] = "",
    attempts: Annotated[int, typer.Option(min=1), "How often the model may try."] = 3,
    concurrency: Annotated[int, typer.Option(min=1), "Texts at a time."] = 1,
    no_spans: Annotated[
        bool, "Allow dates, times, durations and numbers that the text does not have, such as sums."
    ] = False,
    date_order: Annotated[
        Literal["day", "month"] | None, "What comes first in 03/04/2026. Default: as the text says."
    ] = None,
    source: ModelSource,
    sampling: SamplingOptions,
    quiet: QuietOption = False,
) -> None:
    """Extract a value that fits a JSON Schema, or a Python type, from each text.

    A result is one line of JSON: the input, the value, the probability of each date, number, enum value and
    boolean, the spans of the text that values were read from, tokens and seconds; or the error. In CSV it is
    a row: the columns of the input, and the fields of the value. A value that a validator refuses is reported
    to the model, which tries again. Without --model or --server, use smollm2.

    \b
    Try:
      gbnf extract letter.txt --schema invoice.json
      gbnf extract docs/*.txt --schema models.py:Invoice --output invoices.jsonl --model Qwen3-4B-Q4_K_M.gguf
      gbnf extract mails.csv --column body --schema order.json --output orders.csv
      pbpaste | gbnf extract - --schema contact.json --server http://127.0.0.1:8080 | jq .value.email

    \b
    Exit codes: 0 success, 1 a text gave no valid value, 3 invalid schema or input, 4 the model does not work.
    """
    source.check()
    sources = [*(input_ or ()), *(inputs or ())]  # of `--input *.txt`, the first is the option's
    if not sources:
        raise typer.BadParameter("give the texts: gbnf extract FILE… --schema SCHEMA; - is standard input")
    input_files.check_one_stdin(schema, *sources)
    texts = _texts(sources, column)
    with interruptible("run the same command again to continue" if output else ""):
        options = {"attempts": attempts, "spans": not no_spans, "date_order": date_order}
        opened = _opened(source, schema, sampling, concurrency, instructions=instructions, **options)
        with opened as extractor:
            for finding in extractor.findings:
                say(escape_line(str(finding)), "checked afterwards")
            failed = asyncio.run(_write(extractor, texts, output, concurrency, quiet=quiet))
        if untrained := _untrained(source):
            say(untrained, "error", "bold red")
    raise typer.Exit(ExitCode.FAILURE if failed or untrained else ExitCode.SUCCESS)


_REST = "\0"
"""The name of what a row has beside its columns."""


@dataclass(frozen=True, slots=True)
class _InputText:
    """A text, its name, and the row of a table that it comes from; or why it cannot be read."""

    name: str
    text: str = ""
    row: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


def _texts(files: Sequence[str], column: str | None) -> list[_InputText]:
    """Return the texts of files, or of the rows of CSV files. Raises InputError if none can be read."""
    texts: list[_InputText] = []
    for file in files:
        try:
            content = input_files.read_text(file, "a text file")
            texts += [_text(file, content)] if column is None else _rows(file, content, column)
        except InputError as error:
            texts.append(_InputText(file, problem=str(error)))
    if not any(entry.text for entry in texts):
        raise InputError(texts[0].problem if texts else f"{input_files.source_name(files[0])} has no rows.")
    return texts


def _text(name: str, text: str, row: Mapping[str, str] | None = None) -> _InputText:
    problem = "" if text.strip() else f"{input_files.source_name(name)} is empty."
    return _InputText(name, text.strip(), row or {}, problem)


def _rows(file: str, content: str, column: str) -> list[_InputText]:
    """Return the texts of a CSV file. Raises InputError if it has no such column, or is no CSV."""
    name, texts = input_files.source_name(file), []
    delimiter = max(",;\t", key=content.partition("\n")[0].count)
    rows = csv.DictReader(
        io.StringIO(content, newline=""), restkey=_REST, restval="", delimiter=delimiter, strict=True
    )
    csv.field_size_limit(max(csv.field_size_limit(), len(content) + 1))
    try:
        names = list(rows.fieldnames or ())
        if twice := next((heading for heading in names if names.count(heading) > 1), None):
            raise InputError(f"{name} has two columns {twice!r}; name them differently")
        if column not in names:
            hint = suggestion(column, names)
            raise InputError(f"{name} has no column {column!r}; it has {', '.join(names) or 'none'}.{hint}")
        for row in rows:
            row.pop(_REST, None)
            texts.append(_text(f"{file}:{rows.line_num}", row[column], row))
    except csv.Error as error:
        raise InputError(f"{name}, line {rows.line_num}: {error}") from None
    return texts


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
    **options: Any,
) -> Iterator[Extractor[Any]]:
    """Give what extracts values of a schema, with the `options` of an `Extractor`.

    Raises InputError with the file's name, and BackendError.
    """
    from gbnf_server.planner.extraction import Extractor

    wanted = input_files.read_schema_source(schema)
    with model_for_other_tools(source).open(parallel=concurrency) as opened:
        with input_files.errors_of(schema):
            extractor: Extractor[Any] = Extractor(
                wanted.schema if wanted.type is None else wanted.type,
                opened,
                **asdict(sampling),
                **options,
            )
        yield extractor


async def _write(
    extractor: Extractor[Any],
    texts: Sequence[_InputText],
    output: Path | None,
    concurrency: int,
    *,
    quiet: bool,
) -> int:
    """Write a line for each text; return how many gave no value. Raises SetupError."""
    failed = 0
    log = None if output is None else output.with_name(output.name + ".log")
    results = extractor.amany([entry.text for entry in texts if not entry.problem], log, concurrency)
    columns = tuple(dict.fromkeys(name for entry in texts for name in entry.row))
    # what a table has is not replaced
    own = [f"value.{name}" if name in columns else name for name in ("input", *extractor.fields, "error")]
    header = (*columns, *own) if output is not None and output.suffix.lower() == ".csv" else ()
    with _lines(output) as write_line, progress_bar(stderr_console(), quiet=quiet) as progress:
        bar = progress.add_task("", total=len(texts))
        if header:
            write_line(_csv_line(header))
        async with aclosing(results):
            for entry in texts:
                line = {"error": entry.problem} if entry.problem else _line(await anext(results))
                failed += "error" in line
                if header:
                    value = line.get("value")
                    fields = (
                        value if isinstance(value, Mapping) and not extractor.is_wrapped else {"value": value}
                    )
                    cells = (fields.get(name) for name in extractor.fields)
                    row = (entry.row.get(name) for name in columns)
                    write_line(_csv_line((*row, entry.name, *cells, line.get("error"))))
                else:
                    write_line(json.dumps({"input": entry.name, **line}, ensure_ascii=False))
                progress.update(bar, advance=1, description=escape_line(clip(entry.name, SHOWN_CHARACTERS)))
    return failed


def _csv_line(values: Iterable[Any]) -> str:
    """Return a line of CSV: texts as they are, other values as JSON, nothing for null."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(
        value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
        for value in values
    )
    return line.getvalue()


def _line(result: Extraction[Any] | ExtractionError) -> dict[str, Any]:
    if isinstance(result, Exception):
        attempts = [attempt.text for attempt in result.attempts]
        return {"error": str(result), "outcome": result.outcome, "attempts": attempts}
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

    As `gbnf extract --no-spans` with one text, and the value alone. Objects have the properties that the
    schema declares; others if it allows additionalProperties.

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
    with interruptible(), _opened(source, schema, sampling, spans=False) as extractor:
        try:
            write(json.dumps(extractor.extract(text).json, ensure_ascii=False))
            problem = _untrained(source)
        except ExtractionError as error:
            problem = str(error)
        if problem:
            say(escape_line(problem), "error", "bold red")
            raise typer.Exit(ExitCode.FAILURE)
