"""Compare tool calls with an output contract of lines on three small tasks, each in several forms.

    python bench/plain.py --model F.gguf|smollm2 | --server URL | --backend ollama --model NAME

Ten texts for each task: a poet writes three short lines, a judge picks one of three poems and says why, and a
record is read from a sentence. Forms: a call as text, with each style of descriptions; a call with a grammar,
as JSON and as this model's own format; and a line for each field. One attempt each, greedy. `ok`: three lines
of at most 60 characters; a pick with a reason of three words or more; all fields as the text has them.
"""

from __future__ import annotations

import datetime as dt
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field

from gbnf.prompts.messages import PROMPT_STYLES, PromptStyle
from gbnf_server.backends.base import Backend
from gbnf_server.cli.model_options import ModelSource
from gbnf_server.planner.extraction import ExtractionError, Extractor
from gbnf_server.planner.options import CallFormat
from tables import new_table, parser_of, show

TOPICS = "a frog, the first snow, a train, rain in May, a bicycle, the sea, a lost key, bread, a cat, moss"
POEMS = (
    "the pond is quiet / a frog leaps into the sun / and the rings grow wide",
    "roses are red / violets are blue / this is a poem",
    "night train to the coast / each lit window is a life / that I do not know",
    "snow on the mailbox / a letter that no one reads / grows a little thick",
)
NAMES = ["Ada", "Ann", "Ben", "Carl", "Edith", "Emmy", "Grace", "Lise", "Max", "Sophie"]


class Judgement(BaseModel):
    """Pick the best of the three poems, and say why in one sentence."""

    best: int = Field(ge=1, le=3, description="number of the best poem")
    reason: str


class Bill(BaseModel):
    """The bill that the text describes."""

    customer: str
    total: float
    due: dt.date


Poem = Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=3, max_length=3)]


@dataclass(frozen=True, slots=True)
class Task:
    """What is asked. `texts`: each with what the value has to be, if that is known."""

    name: str
    type: Any
    instructions: str
    texts: Sequence[tuple[str, Any]]
    is_right: Callable[[Any, Any], bool]


def is_poem(value: Any, _expected: Any) -> bool:
    """Return whether each line is short, and no line comes twice."""
    return len({line.strip() for line in value}) == 3 and all(0 < len(line.strip()) <= 60 for line in value)


def has_reason(value: Any, _expected: Any) -> bool:
    """Return whether a judgement says why; the schema has the bounds of the pick."""
    return len(value.reason.split()) >= 3


def topics() -> Iterator[tuple[str, Any]]:
    """Yield what a poem is asked about."""
    yield from ((topic, None) for topic in TOPICS.split(", "))


def bills() -> Iterator[tuple[str, Any]]:
    """Yield sentences, each with its bill."""
    for index, name in enumerate(NAMES):
        customer, total, due = f"{name} Gardener", 17.5 * (index + 1), dt.date(2026, index + 1, 2 * index + 3)
        yield (
            f"{customer} has to pay {total:.2f} euro by {due:%d %B %Y}.",
            Bill(customer=customer, total=total, due=due),
        )


def poems() -> Iterator[tuple[str, Any]]:
    """Yield lists of three poems."""
    for index in range(10):
        chosen = [POEMS[(index * step + step) % len(POEMS)] for step in (1, 2, 3)]
        yield "\n".join(f"{number}. {poem}" for number, poem in enumerate(chosen, 1)), None


TASKS = (
    Task("poet", Poem, "Write a poem of three short lines about it.", [*topics()], is_poem),
    Task("judge", Judgement, "", [*poems()], has_reason),
    Task("record", Bill, "", [*bills()], lambda value, expected: bool(value == expected)),
)  # fmt: skip


def ask(task: Task, backend: Backend, call_format: CallFormat | None) -> tuple[int, float, float]:
    """Ask for each text once; return how many are right, and the median seconds and prompt tokens."""
    extractor: Extractor[Any] = Extractor(
        task.type,
        backend,
        instructions=task.instructions,
        attempts=1,
        max_tokens=100,
        spans=False,
        call_format=call_format,
    )
    right, seconds, tokens = 0, [], []
    for text, expected in task.texts:
        begun = time.perf_counter()
        try:
            extraction = extractor.extract(text)
            right += task.is_right(extraction.value, expected)
            tokens.append(extraction.usage.prompt_tokens)
        except ExtractionError:
            pass
        seconds.append(time.perf_counter() - begun)
    return right, statistics.median(seconds), statistics.median(tokens or [0])


def main() -> None:
    """Print a row for each form."""
    parser = parser_of(__doc__)
    parser.add_argument("--model", help="model file, or the server's name of the model")
    parser.add_argument("--server", help="URL of a running server")
    parser.add_argument("--backend", help="kind of server, as of `gbnf run`")
    parser.add_argument("--threads", type=int, help="in process")
    parser.add_argument("--form", action="append", help="a form; repeatable. Default: all")
    chosen = vars(parser.parse_args())
    names = chosen.pop("form")
    source = ModelSource(**chosen)
    source.check()
    forms: list[tuple[str, CallFormat | None, PromptStyle]] = [
        *((f"call as text, {style}", "text", style) for style in PROMPT_STYLES),
        ("call as JSON, grammar", "json", "default"),
        ("call, as `extract` asks", None, "default"),
        ("lines", "lines", "default"),
    ]
    columns = [f"{task.name}: ok | p50, s" for task in TASKS]
    table = new_table(" | ".join(["form", *columns, "prompt tokens"]))
    for name, call_format, style in forms:
        if names and name not in names:
            continue
        with source.open(style) as backend:
            if backend.dialect == "none" and call_format in {"json", None}:
                continue
            results = [ask(task, backend, call_format) for task in TASKS]
        cells = [cell for right, p50, _ in results for cell in (f"{right} of 10", f"{p50:.2f}")]
        table.add_row(name, *cells, f"{statistics.median(tokens for *_, tokens in results):.0f}")
    show(table)


if __name__ == "__main__":
    main()
