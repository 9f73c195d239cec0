"""What do hundreds of tools cost, and what stays flat?

    python bench/pools.py [--data FOLDER] [--tools FILE] [--sizes 16,64,256,741] [--plot OUT.svg] [--json OUT]

The tools are the functions of BFCL (of an installed `bfcl-eval`, or in the folder `bfcl_eval/data` of its
wheel), after those of `--tools`, a tools list such as an MCP server's. The same requests and calls, those of
the 16 first tools, are used for every size, so that rows differ by the other tools only. Columns:

    rules, KB       of the grammar
    compile         all caches of the compiler empty; `link`: each tool compiled already; ms
    load            llama.cpp parses the grammar; ms
    mask            over the whole vocabulary, the mean along the calls; ms
    constraint      what our decoder spends on the grammar, along the calls; µs a token
    prompt tokens   of the system prompt in each style, in the same vocabulary
    first token     in process, with the default style: with nothing cached, and with the prompt cached; ms
    ranked          the same for the 16 tools that BM25 ranks first for a request; includes the ranking

The vocabulary is a real one of 128k entries in `$GBNF_SHARED/vocabs`. The model for the times to the first
token is tiny (4 layers of 256, random weights), so that the costs around the model can be seen; a real model
adds its own time for the prompt's tokens. Ratios to the first row are printed below the table.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from compile import unlink
from corpus import vocabulary_path
from gbnf import Grammar, compile_pool, filter_pool, load_tools
from gbnf.calls.validation import validate_call
from gbnf.prompts.messages import PROMPT_STYLES, Message, call_text, system_prompt
from gbnf.schema_caches import caches_in_use
from gbnf.tools import Tool
from gbnf_bench.bfcl.files import LeaderboardEntry, read_folder
from gbnf_server.backends.base import Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.llama.grammar_engines import LlamaCppConstraint
from gbnf_server.llama.native import NativeModel
from gbnf_server.llama.native_grammar import NativeGrammar
from ranking import DEVELOPMENT, HELD_OUT, pool_of
from scripted import Shape, write_model
from tables import leaderboard_data, new_table
from tables import show as show_table

_OFFERED = 16  # tools that the ranking keeps
_SHAPE = {"width": 256, "layers": 4, "heads": 4}


@dataclass(frozen=True, slots=True)
class Row:
    """The costs of a pool; times in ms, `constraint_us` in µs a token. `prompt_tokens` by style."""

    tools: int
    rules: int
    kilobytes: float
    compile_ms: float
    link_ms: float
    load_ms: float
    mask_ms: float
    constraint_us: float
    prompt_tokens: dict[str, int]
    first_cold_ms: float
    first_warm_ms: float
    ranked_cold_ms: float
    ranked_warm_ms: float


def read_data(data: Path) -> tuple[list[Tool], list[tuple[str, dict[str, Any]]]]:
    """Return the functions of the leaderboard as tools, and requests with a valid call that they expect."""
    categories = [*HELD_OUT, *(name for names in DEVELOPMENT for name in names)]
    entries = read_folder(data, categories=categories).questions
    by_name = pool_of(entries)
    calls = [call for entry in entries if (call := _expected(entry, by_name)) is not None]
    return list(by_name.values()), calls


def _expected(entry: LeaderboardEntry, by_name: dict[str, Tool]) -> tuple[str, dict[str, Any]] | None:
    for expected in entry.expected:
        [(name, values)] = expected.items()
        arguments = {key: choices[0] for key, choices in values.items() if choices and choices[0] != ""}
        tool = by_name.get(name)
        if tool is not None:
            call = {"name": tool.name, "arguments": arguments}
            if validate_call(call, [tool]).ok:
                return "\n".join(message["content"] for message in entry.messages), call
    return None


def best_ms(work: Callable[[], object], *, prepare: Callable[[], object] = lambda: None, runs: int) -> float:
    """Return the minimum time of several runs, in ms."""
    taken = []
    for _ in range(runs):
        prepare()
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return 1e3 * min(taken)


def mask_ms(model: NativeModel, native: NativeGrammar, texts: Sequence[str]) -> float:
    """Return the mean time of a mask over the whole vocabulary, along the texts."""
    everything = np.arange(model.size)
    taken = []
    for text in texts:
        with native.clone() as grammar:
            for token in model.tokenize(text, special=False):
                started = time.perf_counter()
                grammar.allowed(everything)
                taken.append(time.perf_counter() - started)
                grammar.allows(token)
                grammar.accept(token)
    return 1e3 * statistics.mean(taken)


def constraint_us(model: NativeModel, grammar: Grammar, native: NativeGrammar, texts: Sequence[str]) -> float:
    """Return the time of our constraint for each token of the texts, as the decoder asks it."""
    rounds = []
    for _ in range(5):
        seconds, count = 0.0, 0
        for text in texts:
            constraint = LlamaCppConstraint(model, native, grammar)
            for token in model.tokenize(text, special=False):
                constraint.forced_continuation(spaced=True)
                assert constraint.allows(token)
                constraint.accept(token)
                count += 1
            seconds += constraint.seconds
        rounds.append(seconds / count)
    return 1e6 * min(rounds)


def first_token_ms(
    backend: InProcess, tools: Callable[[], Sequence[Tool]], request: str
) -> tuple[float, float]:
    """Return the time to the first token: with nothing cached, and with the prompt cached."""
    times = []
    for _ in range(2):
        started = time.perf_counter()
        chosen = tools()
        messages: list[Message] = [
            {"role": "system", "content": system_prompt(chosen)},
            {"role": "user", "content": request},
        ]
        answer = backend.complete(Request(messages, grammar=compile_pool(chosen), max_tokens=24))
        times.append(1e3 * (time.perf_counter() - started - answer.timings.completion_s))
    return times[0], times[1]


def measure(
    model: NativeModel,
    backend: InProcess,
    tools: Sequence[Tool],
    requests: Sequence[str],
    texts: Sequence[str],
) -> Row:
    """Return the costs of a pool."""
    grammar = compile_pool(tools)
    reversed_tools = list(reversed(tools))
    native = NativeGrammar.parse(model, str(grammar))
    cold, warm = _first(backend, requests[:1], lambda _: tools)  # minutes, for 60,000 tokens
    ranked = _first(backend, requests[:3], lambda request: filter_pool(tools, request, limit=_OFFERED).kept)
    return Row(
        tools=len(tools),
        rules=len(grammar.rules.productions),
        kilobytes=len(str(grammar)) / 1024,
        compile_ms=best_ms(lambda: str(compile_pool(tools)), prepare=caches_in_use().results.clear, runs=3),
        link_ms=best_ms(lambda: str(compile_pool(reversed_tools)), prepare=unlink, runs=10),
        load_ms=best_ms(lambda: NativeGrammar.parse(model, str(grammar)), runs=5),
        mask_ms=mask_ms(model, native, texts[:4]),
        constraint_us=constraint_us(model, grammar, native, texts),
        prompt_tokens={
            style: len(model.tokenize(system_prompt(tools, style=style), special=False))
            for style in PROMPT_STYLES
        },
        first_cold_ms=cold,
        first_warm_ms=warm,
        ranked_cold_ms=ranked[0],
        ranked_warm_ms=ranked[1],
    )


def _first(
    backend: InProcess, requests: Sequence[str], choose: Callable[[str], Sequence[Tool]]
) -> tuple[float, float]:
    """Return the medians over the requests."""
    colds, warms = [], []
    for request in requests:
        backend.clear_prompt_cache()
        caches_in_use().results.clear()
        cold, warm = first_token_ms(backend, partial(choose, request), request)
        colds.append(cold)
        warms.append(warm)
    return statistics.median(colds), statistics.median(warms)


def show(rows: Sequence[Row]) -> None:
    """Print the tables."""
    styles = list(rows[0].prompt_tokens)
    figures = {
        "rules": [str(row.rules) for row in rows],
        "grammar, KB": [f"{row.kilobytes:.0f}" for row in rows],
        "compile, ms": [f"{row.compile_ms:.1f}" for row in rows],
        "link, ms": [f"{row.link_ms:.2f}" for row in rows],
        "load in llama.cpp, ms": [f"{row.load_ms:.1f}" for row in rows],
        "mask of the vocabulary, ms": [f"{row.mask_ms:.1f}" for row in rows],
        "constraint, µs a token": [f"{row.constraint_us:.0f}" for row in rows],
        **{f"prompt tokens, {style}": [f"{row.prompt_tokens[style]:,}" for row in rows] for style in styles},
        "first token, cold, ms": [f"{row.first_cold_ms:.0f}" for row in rows],
        "first token, warm, ms": [f"{row.first_warm_ms:.0f}" for row in rows],
        f"first token, {_OFFERED} ranked, cold, ms": [f"{row.ranked_cold_ms:.0f}" for row in rows],
        f"first token, {_OFFERED} ranked, warm, ms": [f"{row.ranked_warm_ms:.0f}" for row in rows],
    }
    table = new_table(" | ".join(["", *(f"{row.tools} tools" for row in rows)]))
    for name, values in figures.items():
        table.add_row(name, *values)
    show_table(table)
    least = rows[0]
    for row in rows[1:]:
        print(
            f"{row.tools} tools ÷ {least.tools}: "
            f"constraint a token {row.constraint_us / least.constraint_us:.2f}, "
            f"mask {row.mask_ms / least.mask_ms:.2f}, rules {row.rules / least.rules:.1f}, "
            f"first token of ranked tools {row.ranked_cold_ms / least.ranked_cold_ms:.2f}"
        )


def plot(rows: Sequence[Row], path: Path) -> None:
    """Write an SVG: each cost relative to the first row, over the number of tools; both axes logarithmic."""
    lines = {
        "constraint, a token": [row.constraint_us for row in rows],
        "first token, 16 ranked": [row.ranked_cold_ms for row in rows],
        "mask of the vocabulary": [row.mask_ms for row in rows],
        "load in llama.cpp": [row.load_ms for row in rows],
        "compile": [row.compile_ms for row in rows],
        "first token, all tools": [row.first_cold_ms for row in rows],
    }
    colours = ("#1b6ca8", "#2a9d8f", "#8a6fb0", "#b08968", "#c0703a", "#c23b4e")
    highest = max(value / values[0] for values in lines.values() for value in values)
    width, height, left, top = 420, 260, 60, 20
    last = np.log(rows[-1].tools / rows[0].tools) or 1.0

    def point(row: Row, ratio: float) -> str:
        x = left + width * np.log(row.tools / rows[0].tools) / last
        y = top + height * (1 - np.log(max(ratio, 0.5) / 0.5) / np.log(max(highest, 2) / 0.5))
        return f"{x:.1f},{y:.1f}"

    marks = []
    ratios = [ratio for ratio in (0.5, 1, 2, 5, 10, 20, 50, 100, 200) if ratio <= highest]
    for ratio in ratios:
        start, end = point(rows[0], ratio).split(","), point(rows[-1], ratio).split(",")
        marks.append(f'<path d="M{",".join(start)} L{",".join(end)}" stroke="#ddd"/>')
        marks.append(f'<text x="{left - 8}" y="{float(start[1]) + 4}" text-anchor="end">×{ratio:g}</text>')
    for row in rows:
        x = point(row, 1).split(",")[0]
        marks.append(f'<text x="{x}" y="{top + height + 18}" text-anchor="middle">{row.tools}</text>')
    for index, ((name, values), colour) in enumerate(zip(lines.items(), colours, strict=True)):
        points = " ".join(point(row, value / values[0]) for row, value in zip(rows, values, strict=True))
        marks.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        marks.append(
            f'<text x="{left + width + 14}" y="{top + 14 + 20 * index}" fill="{colour}">{name}</text>'
        )
    marks.append(f'<text x="{left + width / 2}" y="{top + height + 38}" text-anchor="middle">tools</text>')
    path.write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 330" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="#fff"/>{"".join(marks)}</svg>\n'
    )


def main(
    data: Annotated[Path | None, typer.Option(help="Folder with BFCL_v4_*.json.")] = None,
    tools: Annotated[Path | None, typer.Option(help="Tools list to put before the functions.")] = None,
    sizes: Annotated[str, typer.Option(help="Numbers of tools.")] = "16,64,256,741",
    plot_to: Annotated[Path | None, typer.Option("--plot", help="SVG file to write.")] = None,
    json_to: Annotated[Path | None, typer.Option("--json", help="JSON file to write.")] = None,
) -> None:
    """Measure each size, and print the table."""
    functions, calls = read_data(leaderboard_data(data))
    everything = [*(load_tools(tools) if tools else []), *functions]
    counts = [int(size) for size in sizes.split(",")]
    if counts[-1] > len(everything):
        raise typer.BadParameter(f"there are {len(everything)} tools only. Give more with --tools.")
    first = {tool.name for tool in everything[: counts[0]]}
    chosen = [(request, call) for request, call in calls if call["name"] in first]
    requests, texts = [request for request, _ in chosen], [call_text(call) for _, call in chosen]
    vocabulary = vocabulary_path()
    model = NativeModel(vocabulary, vocab_only=True)
    longest = system_prompt(everything[: counts[-1]])
    context = len(model.tokenize(longest, special=False)) + 4096
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "tiny.gguf"
        write_model(path, vocabulary, {}, Shape(context=context, **_SHAPE), name="tiny")
        with InProcess(path, threads=1, context_length=context) as backend:
            rows = [measure(model, backend, everything[:count], requests, texts) for count in counts]
    show(rows)
    if plot_to is not None:
        plot(rows, plot_to)
    if json_to is not None:
        json_to.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
