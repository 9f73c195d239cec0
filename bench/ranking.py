"""How often is the right tool among the first k of a large pool?

    python bench/ranking.py [--data FOLDER] [--model GGUF]

The requests and functions are those of BFCL, the Berkeley function-calling leaderboard: of an installed
`bfcl-eval`, or in the folder `bfcl_eval/data` of its wheel. The functions of a set are one pool, the first of
each name. "Plain BM25" is one bag of words for each function, without stems and stop words. `--model` adds an
embedding model, in this process.

The ranking was tuned on the development sets, which have none of the functions of the held-out set, and only
measured on that one. The bound is the share of requests that have a word in common with their function: the
others, for example in another language, cannot be found by words. The column "small model" has the share of
requests whose tool is kept for a small model, and the mean number of tools kept.
"""

from __future__ import annotations

import math
import re
import statistics
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from gbnf.prompts.messages import system_prompt
from gbnf.requests.pool_filter import best_first, filter_pool
from gbnf.requests.ranking import BM25, Ranker
from gbnf.tools import Tool
from gbnf_bench.bfcl.files import LeaderboardEntry, read_folder
from gbnf_bench.bfcl.functions import tools_of
from gbnf_server.backends.embeddings import EmbeddingRanker, ModelEmbeddings
from gbnf_server.planner.options import SMALL_MODEL_MARGIN, SMALL_MODEL_TOOLS
from tables import leaderboard_data, new_table, show

KS = (1, 4, 8, 16, 32)
HELD_OUT = ("live_multiple",)
DEVELOPMENT = (
    ("simple_python", "multiple", "parallel", "parallel_multiple"),
    ("live_simple", "live_parallel", "live_parallel_multiple"),
)


@dataclass(frozen=True, slots=True)
class RequestSet:
    """A pool, and requests with a tool that each of them needs; a request that needs two is there twice."""

    name: str
    pool: tuple[Tool, ...]
    requests: tuple[tuple[str, Tool], ...]


class PlainBM25:
    """The baseline, with k1 = 1.5 and b = 0.75."""

    def __init__(self) -> None:
        self._documents: dict[Tool, Counter[str]] = {}

    def rank(self, query: str, tools: Sequence[Tool]) -> list[float]:
        """Return the score of each tool for a query."""
        documents = [self._document(tool) for tool in tools]
        lengths = [document.total() for document in documents]
        average = statistics.mean(lengths)
        scores = [0.0] * len(tools)
        for word in _words(query):
            containing = sum(word in document for document in documents)
            rarity = math.log(1 + (len(tools) - containing + 0.5) / (containing + 0.5))
            for index, document in enumerate(documents):
                share = 0.25 + 0.75 * lengths[index] / average
                scores[index] += rarity * 2.5 * document[word] / (document[word] + 1.5 * share)
        return scores

    def _document(self, tool: Tool) -> Counter[str]:
        if tool not in self._documents:
            text = f"{tool.name} {tool.description()} {' '.join(_texts(tool.args))}"
            self._documents[tool] = Counter(_words(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)))
        return self._documents[tool]


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def _texts(schema: Any) -> Iterator[str]:
    """The names and descriptions of a schema's properties."""
    for name, member in (schema.get("properties", {}) if isinstance(schema, Mapping) else {}).items():
        yield name
        yield str(member.get("description", ""))
        yield from _texts(member)
        yield from _texts(member.get("items"))


def pool_of(entries: Sequence[LeaderboardEntry], *, without: Collection[str] = ()) -> dict[str, Tool]:
    """The functions of all entries as tools, by their names, `without` those of some names."""
    functions = [function for entry in entries for function in entry.functions]
    return tools_of([function for function in functions if function["name"] not in without])


def request_set(categories: Sequence[str], data: Path, *, without: Collection[str] = ()) -> RequestSet:
    """The requests of these categories, `without` the functions of these names."""
    entries = read_folder(data, categories=categories).questions
    tools = pool_of(entries, without=without)
    requests = [
        (_request(entry), tools[name])
        for entry in entries
        for name in sorted({name for call in entry.expected for name in call})
        if name in tools
    ]
    return RequestSet(" + ".join(categories), tuple(tools.values()), tuple(requests))


def _request(entry: LeaderboardEntry) -> str:
    return "\n".join(message["content"] for message in entry.messages if message["role"] == "user")


def recall(sample: RequestSet, ranker: Ranker, ks: Sequence[int] = KS) -> list[float]:
    """The share of requests whose tool is among the first k."""
    places = [best_first(sample.pool, query, ranker).index(tool) for query, tool in sample.requests]
    return [sum(place < k for place in places) / len(places) for k in ks]


def kept_for_small_model(sample: RequestSet, ranker: Ranker) -> tuple[float, float]:
    """The share of requests whose tool is offered to a small model, and the mean number of tools offered."""
    limits: dict[str, Any] = {"limit": SMALL_MODEL_TOOLS, "margin": SMALL_MODEL_MARGIN, "ranker": ranker}
    offered = [filter_pool(sample.pool, query, **limits).kept for query, _ in sample.requests]
    hits = sum(tool in tools for (_, tool), tools in zip(sample.requests, offered, strict=True))
    return hits / len(offered), sum(map(len, offered)) / len(offered)


def bound(sample: RequestSet) -> float:
    """The share of requests that have a word in common with their tool."""
    return sum(BM25.rank(query, [tool])[0] > 0 for query, tool in sample.requests) / len(sample.requests)


def main(
    data: Annotated[Path | None, typer.Option(help="Folder with BFCL_v4_*.json.")] = None,
    model: Annotated[Path | None, typer.Option(help="Embedding model, a GGUF file.")] = None,
) -> None:
    """Print the recall of the rankings on each set."""
    folder = leaderboard_data(data)
    rankers: dict[str, Ranker] = {"plain BM25": PlainBM25(), "gbnf.BM25": BM25}
    if model is not None:
        rankers[model.stem] = EmbeddingRanker(ModelEmbeddings(model))
    held_out = request_set(HELD_OUT, folder)
    entries = read_folder(folder, categories=HELD_OUT).questions
    names = {function["name"] for entry in entries for function in entry.functions}
    development = [request_set(categories, folder, without=names) for categories in DEVELOPMENT]
    firsts = " | ".join(f"first {k}" for k in KS)
    table = new_table(
        f"set | tools | requests | ranking | {firsts} | small model | bound | ms a request", left=("ranking",)
    )
    for title, sample in (("held out", held_out), *(("development", group) for group in development)):
        for name, ranker in rankers.items():
            ranker.rank("", sample.pool)
            begun = time.perf_counter()
            shares = [f"{share:.1%}" for share in recall(sample, ranker)]
            seconds = (time.perf_counter() - begun) / len(sample.requests)
            about = (f"{title}: {sample.name}", str(len(sample.pool)), str(len(sample.requests)))
            limit = f"{bound(sample):.1%}" if ranker is BM25 else ""
            share, count = kept_for_small_model(sample, ranker)
            table.add_row(*about, name, *shares, f"{share:.1%}, {count:.1f}", limit, f"{1000 * seconds:.1f}")
    offered = " | ".join(map(str, KS))
    prompts = new_table(f"tools offered | {offered} | all", "Median prompt of the held-out set, characters")
    prompts.add_row("", *(f"{_prompt_length(held_out, k):,}" for k in (*KS, len(held_out.pool))))
    show(table)
    show(prompts)


def _prompt_length(sample: RequestSet, k: int) -> int:
    some = sample.requests[:: max(1, len(sample.requests) // 50)]
    return round(
        statistics.median(len(system_prompt(best_first(sample.pool, query)[:k])) for query, _ in some)
    )


if __name__ == "__main__":
    typer.run(main)
