"""`gbnf generate`: one answer that fits a JSON Schema."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gbnf_server.cli.default_model import model_for_other_tools, other_model_hint
from gbnf_server.cli.errors import ExitCode, interruptible
from gbnf_server.cli.input_files import (
    SCHEMA_OPTION,
    check_one_stdin,
    compile_schema_file,
    read_request,
    read_schema,
)
from gbnf_server.cli.model_options import (
    ModelSource,
    SeedOption,
    TemperatureOption,
)
from gbnf_server.cli.output import escape_line, say, write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gbnf import Grammar
    from gbnf.protocols.protocol import AnswerFormat
    from gbnf_server.backends.base import Backend, Completion

_INSTRUCTIONS = "Answer with one JSON value that fits this JSON Schema, and nothing else:\n"
_UNTRAINED = "the demonstration model is trained on the bundled tools only, so its answer makes no sense."


def generate(
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", help="What to generate; -: read it from standard input.")
    ],
    schema: Annotated[str, SCHEMA_OPTION],
    *,
    source: ModelSource,
    max_tokens: Annotated[int, typer.Option(min=1, help="Maximum tokens of the answer.")] = 1024,
    temperature: TemperatureOption = 0.0,
    seed: SeedOption = 0,
) -> None:
    """Generate one JSON value that fits a JSON Schema, and print it.

    The model reads the schema, and the grammar compiled from it constrains the answer, which is then
    validated with jsonschema. Without --model or --server, use smollm2, if it is installed; the demonstration
    model is not trained for this.

    \b
    Try:
      gbnf generate "Ada Lovelace, born in 1815" --schema person.json --model Qwen3-4B-Q4_K_M.gguf
      gbnf generate "Ada Lovelace, born in 1815" --schema models.py:Person
      gbnf generate - --schema invoice.json --server http://127.0.0.1:8080 < letter.txt | jq .total

    \b
    Exit codes: 0 success, 1 truncated or invalid answer, 3 invalid schema, 4 the model does not work.
    """
    source.check()
    check_one_stdin(prompt, schema)
    from gbnf_server.backends.base import Request

    text = read_request(prompt, "PROMPT")
    value = read_schema(schema)
    source = model_for_other_tools(source)
    with interruptible():
        grammar = compile_schema_file(schema, value)
        with source.open() as opened:
            answer = opened.complete(
                Request(
                    [
                        {"role": "system", "content": _INSTRUCTIONS + json.dumps(value, ensure_ascii=False)},
                        {"role": "user", "content": text},
                    ],
                    _constraint(opened, grammar, value),
                    max_tokens=max_tokens,
                    temperature=temperature,
                    seed=seed,
                )
            )
    write(answer.text)
    if answer.shortened_at is not None:
        why = (
            f"a value that repeats {answer.repeated!r} was ended"
            if answer.repeated
            else f"the answer is shortened to end within --max-tokens {max_tokens}"
        )
        say(f"{why}: see the values from character {answer.shortened_at} on", "note", "bold yellow")
    problem = _problem(answer, value, max_tokens)
    if not problem and source.is_demo_model:
        problem = f"{_UNTRAINED} {other_model_hint()}"
    if problem:
        say(escape_line(problem), "error", "bold red")
        raise typer.Exit(ExitCode.FAILURE)


def _constraint(backend: Backend, grammar: Grammar, schema: Mapping[str, Any] | bool) -> AnswerFormat | None:
    """Return what constrains the answer, in the backend's dialect."""
    match backend.dialect:
        case "gbnf":
            return grammar
        case "json_schema":
            return {} if isinstance(schema, bool) else schema  # `false` has no grammar
        case "none":
            return None


def _problem(answer: Completion, schema: Mapping[str, Any] | bool, max_tokens: int) -> str:
    """Return why the answer cannot be used, "" if it can."""
    from gbnf.schema.validators import violation
    from gbnf.strict_json import InvalidJsonError, parse_json

    if answer.finish_reason == "length" and answer.repeated:
        return f"the answer repeats {answer.repeated!r} without an end. Use maxLength or maxItems"
    if answer.finish_reason == "length":
        return (
            f"the answer is truncated after {answer.usage.completion_tokens} tokens. "
            f"Allow more: --max-tokens {2 * max_tokens}, or a larger --ctx-size"
        )
    try:
        value = parse_json(answer.text)
    except InvalidJsonError as error:
        return f"the answer is not JSON: {error}"
    problem = violation(schema, value)
    return f"the answer does not fit the schema: {problem}" if problem else ""
