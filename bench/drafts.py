"""Time the tool calls of the suites with and without drafts, against one step a token.

    python bench/drafts.py [--suite NAME …] [--calls N] [--repeat N] [--layout NAME] [--model GGUF]
                           [--threads N] [--folder DIR] [--json OUT]

The expected calls of the suites are generated in the conversation that asks for them (the request, and the
calls before it), with the system prompt of the bundled tools. Random weights copy nothing, so the model's
choice is set: the logit of the expected call's next token is raised after each evaluation. All else is the
usual decoding, so the times are those of a model of this size that makes the expected calls. `--model` takes
any GGUF file, or smollm2, instead of random weights. Rows:

    one by one          every token sampled
    forced text         text that the grammar forces is appended
    forced and drafts   the same, and text that occurred before is drafted (`gbnf_server.llama.drafts`)

Seconds are CPU seconds of this process, with the prompt cached: the least of `--repeat` rounds, summed over
the calls. A call that comes out as another text is reported and not counted.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, cast
from unittest.mock import patch

import typer
from rich.table import Table

from corpus import DataMissingError, shared_path
from gbnf import Grammar, compile_pool, load_manifests
from gbnf.compiler.layout import Whitespace
from gbnf.prompts.messages import Message, PromptStyle, call_text, system_prompt
from gbnf_bench.suite_files import load_suite
from gbnf_server.backends.base import Completion, Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.llama.cancellation import Cancellation
from gbnf_server.llama.drafts import PromptLookup
from gbnf_server.llama.kv_cache import CachedSequence, Logits
from gbnf_server.system.folders import manifests_path
from gbnf_server.system.model_files import smollm2_path
from scripted import Shape, write_model
from tables import new_table, show

_ROWS = ("one by one", "forced text", "forced and drafts")
_VOCABULARY = "ggml-vocab-qwen2.gguf"  # it has the control tokens of the template
_SUITES = ("representative", "unseen-wording", "italian")


@dataclass(frozen=True, slots=True)
class Job:
    """An expected call, and the conversation before it."""

    name: str
    text: str
    messages: list[Message]


@dataclass(frozen=True, slots=True)
class Result:
    """The generation of one call by one row: the least seconds of all rounds, and counts of tokens."""

    row: str
    job: str
    seconds: float
    steps: int
    evaluated: int
    tokens: int
    forced: int
    drafted: int
    accepted: int
    is_same: bool


def jobs(suite: str, grammar: Grammar, style: PromptStyle) -> Iterator[Job]:
    """Yield the calls of a suite whose expected arguments are values, not conditions."""
    tools = {tool.name: tool for tool in load_manifests(manifests_path())}
    system: Message = {"role": "system", "content": system_prompt([*tools.values()], style=style)}
    for case in load_suite(suite).cases:
        messages: list[Message] = [system, {"role": "user", "content": case.query}]
        for index, call in enumerate(case.source.get("calls", ())):
            order, values = [*tools[call["name"]].args.get("properties", ())], call.get("arguments", {})
            arguments = {name: values[name] for name in sorted(values, key=order.index)}
            text = call_text({"name": call["name"], "arguments": arguments})
            if not grammar.match(text).complete:
                break
            yield Job(f"{suite}/{case.id}/{index + 1}", text, list(messages))
            messages.append({"role": "assistant", "content": text})
            messages.append({"role": "tool", "content": json.dumps({"step": index + 1, "result": {}})})


@dataclass(slots=True)
class Choices:
    """Sets the choices of a model: `script` are the tokens after a prompt of `start` tokens."""

    backend: InProcess
    start: int = 0
    script: Sequence[int] = ()
    steps: int = 0
    evaluated: int = 0

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Raise the logit of the script's token after each evaluation."""
        cache = self.backend._kv_cache  # noqa: SLF001  # the one place where all logits come from
        original = cache.evaluate

        def evaluate(
            sequence: CachedSequence, tokens: Sequence[int], stop: Any, output_positions: Sequence[int]
        ) -> list[Logits]:
            first = len(sequence.cached_tokens) + 1 - self.start
            rows = original(sequence, tokens, stop, output_positions)
            self.steps += 1
            self.evaluated += len(tokens)
            for position, logits in zip(output_positions, rows, strict=True):
                if 0 <= first + position < len(self.script):
                    logits[self.script[first + position]] = 1e4
            return rows

        with patch.object(cache, "evaluate", evaluate):
            yield


@contextmanager
def configured(backend: InProcess, row: str) -> Iterator[None]:
    """Decode as the row says."""
    with patch.object(backend, "_jumps", row != "one by one"):
        if row == "forced text":
            with patch.object(PromptLookup, "guess", lambda *_: ""):
                yield
        else:
            yield


def measure(backend: InProcess, grammar: Grammar, job: Job, rounds: int) -> Iterator[Result]:
    """Generate one call in turn by all rows, round by round; an extra round first fills the cache."""
    model = backend._model  # noqa: SLF001  # its tokenizer
    request = Request(job.messages, grammar, max_tokens=400)
    choices = Choices(backend, asyncio.run(backend.count_tokens(request)))
    choices.script = [*model.tokenize(job.text, special=False), min(model.end_tokens)]
    best: dict[str, tuple[float, Completion, int, int]] = {}
    with choices.applied():
        for number in range(rounds + 1):
            for row in _ROWS[: 1 if not number else None]:
                choices.steps = choices.evaluated = 0
                with configured(backend, row):
                    begun = time.process_time()
                    completion = backend.complete(request)
                    seconds = time.process_time() - begun
                if number and (row not in best or seconds < best[row][0]):
                    best[row] = seconds, completion, choices.steps, choices.evaluated
    for row, (seconds, completion, steps, evaluated) in best.items():
        counts = (
            completion.usage.completion_tokens,
            completion.usage.forced_tokens,
            completion.usage.drafted_tokens,
            completion.usage.accepted_tokens,
        )
        yield Result(row, job.name, seconds, steps, evaluated, *counts, completion.text == job.text)


def summary(results: Sequence[Result], title: str) -> Table:
    """Return a row for each way of decoding, over the calls that all of them generated as expected."""
    heads = " | calls | s | × one by one | evaluations | tokens | forced | drafted | accepted"
    drawn = new_table(heads, title)
    other = {run.job for run in results if not run.is_same}
    rows = {row: [run for run in results if run.row == row and run.job not in other] for row in _ROWS}
    base = sum(run.seconds for run in rows["one by one"])
    for row, mine in rows.items():
        if not mine:
            continue
        seconds = sum(run.seconds for run in mine)
        drafted, accepted = sum(run.drafted for run in mine), sum(run.accepted for run in mine)
        drawn.add_row(
            row,
            str(len(mine)),
            f"{seconds:.2f}",
            f"{seconds / base:.2f}",
            str(sum(run.steps for run in mine)),
            str(sum(run.tokens for run in mine)),
            str(sum(run.forced for run in mine)),
            str(drafted),
            f"{accepted} ({accepted / drafted:.0%})" if drafted else "0",
        )
    return drawn


def step_costs(backend: InProcess, messages: list[Message]) -> str:
    """Return how long batches take, in steps: the reason why drafts pay, or do not."""
    cache, stop = backend._kv_cache, Cancellation()  # noqa: SLF001  # timed directly
    with cache.slot() as slot:
        tokens = backend._model.tokenize(messages[0]["content"], special=False)[:300]  # noqa: SLF001  # the tokens of the model
        sequence, _ = cache.acquire(slot, tokens, stop)
        costs: dict[int, float] = {}
        for _ in range(6):
            for size in (1, 2, 4, 8, 16):
                cache.roll_back(sequence, min(len(sequence.cached_tokens), len(tokens) - 16))
                if len(sequence.cached_tokens) < len(tokens) - 16:
                    first = tokens[len(sequence.cached_tokens) : -16]
                    cache.evaluate(sequence, first, stop, [len(first) - 1])
                begun = time.process_time()
                cache.evaluate(sequence, tokens[-16:][:size], stop, range(size))
                costs[size] = min(costs.get(size, 1e9), time.process_time() - begun)
    shown = ", ".join(f"{size}: {seconds / costs[1]:.2f}" for size, seconds in costs.items() if size > 1)
    return f"a step takes {1e3 * costs[1]:.1f} ms; a batch with all logits, in steps: {shown}"


def main(
    suite: Annotated[list[str] | None, typer.Option(help="Suite, repeatable.")] = None,
    calls: Annotated[int, typer.Option(help="Most calls per suite.")] = 25,
    repeat: Annotated[int, typer.Option(help="Rounds per call.")] = 2,
    layout: Annotated[str, typer.Option(help="JSON layout, as in compile_pool.")] = "default",
    style: Annotated[str, typer.Option(help="Style of the system prompt.")] = "minimal",
    model: Annotated[
        Path | None, typer.Option(help="GGUF file or smollm2, instead of random weights.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads.")] = 1,
    folder: Annotated[Path | None, typer.Option(help="Folder to keep the model in, about 550 MB.")] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write all results to this file.")] = None,
) -> None:
    """Time the calls of the suites by all rows."""
    grammar = compile_pool(load_manifests(manifests_path()), whitespace=cast("Whitespace", layout))
    with tempfile.TemporaryDirectory() as temporary:
        path = smollm2_path() if str(model) == "smollm2" else model
        path = path or (folder or Path(temporary)) / "drafts-1024-28.gguf"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                write_model(path, shared_path("vocabs", _VOCABULARY), {}, Shape(), name="random")
            except DataMissingError as error:
                raise SystemExit(str(error)) from None
        results: list[Result] = []
        with InProcess(path, threads=threads, context_length=4096) as backend:
            for name in suite or _SUITES:
                for job in [*jobs(name, grammar, cast("PromptStyle", style))][:calls]:
                    if not results:
                        print(step_costs(backend, job.messages))
                    results += measure(backend, grammar, job, repeat)
    show(summary(results, f"{path.stem}, {layout} layout, {threads} thread(s)"))
    for result in results:
        if not result.is_same:
            print(f"{result.row} generated another text for {result.job}: not counted")
    if json_out:
        json_out.write_text(json.dumps([asdict(result) for result in results], indent=1))


if __name__ == "__main__":
    typer.run(main)
