"""Embeddings: of a tiny model with random weights, in this process and in a real llama-server."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from gbnf import filter_pool
from gbnf_server.backends.embeddings import EmbeddingRanker, ModelEmbeddings, ServerEmbeddings
from gbnf_server.llama import server_build as build
from gbnf_server.system.errors import (
    BackendError,
    BackendUnreachableError,
    ModelLoadError,
    ServerResponseError,
)
from support.models import make_model
from support.pools import BUNDLED as TOOLS
from support.server import Reply, Script, require_llama_server, scripted

LENGTH = 1500  # tokens; the tiny model takes one for each byte


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny.gguf", context=LENGTH)


@pytest.fixture
def in_process(model: Path) -> Iterator[ModelEmbeddings]:
    embeddings = ModelEmbeddings(model, context_length=LENGTH)
    yield embeddings
    embeddings.close()


def counted(embed: Callable[[Sequence[str]], Any]) -> tuple[Callable[[Sequence[str]], Any], list[str]]:
    texts: list[str] = []

    def counting(given: Sequence[str]) -> Any:
        texts.extend(given)
        return embed(given)

    return counting, texts


def test_the_model_ranks_tools(in_process: ModelEmbeddings) -> None:
    scores = EmbeddingRanker(in_process).rank("find my notes", TOOLS)
    assert len(set(scores)) > 5
    assert all(-1.0001 <= score <= 1.0001 for score in scores)
    selection = filter_pool(TOOLS, "find my notes", limit=3, ranker=EmbeddingRanker(in_process))
    best = max(selection.kept, key=lambda tool: scores[TOOLS.index(tool)])
    assert all(scores[TOOLS.index(best)] >= scores[TOOLS.index(tool)] for tool in selection.outranked)


def test_a_text_is_most_similar_to_itself(in_process: ModelEmbeddings) -> None:
    same, other, empty = EmbeddingRanker(in_process)._unit_vectors(["find files", "send a message", ""])
    assert float(same @ same) == pytest.approx(1)
    assert float(same @ other) < 0.999
    assert math.isfinite(float(same @ empty))


@pytest.mark.slow
def test_a_server_gives_the_same_scores(model: Path, in_process: ModelEmbeddings) -> None:
    require_llama_server()
    extra = ["--embeddings", "--pooling", "mean", "--ubatch-size", str(LENGTH)]
    with build.start(model, threads=1, context_length=LENGTH, extra=extra) as server:
        embeddings = ServerEmbeddings(server.url)
        scores = EmbeddingRanker(embeddings).rank("find my notes", TOOLS)
        embeddings.close()
    assert scores == pytest.approx(EmbeddingRanker(in_process).rank("find my notes", TOOLS), abs=0.01)


def test_each_tool_is_embedded_once(in_process: ModelEmbeddings) -> None:
    embed, texts = counted(in_process)
    ranker = EmbeddingRanker(embed, query_prefix="query: ", tool_prefix="passage: ")
    first = ranker.rank("one", TOOLS[:5])
    assert [text.startswith("passage: ") for text in texts] == [True] * 5 + [False]
    assert texts[-1] == "query: one"
    texts.clear()
    assert ranker.rank("one", TOOLS[:5]) == first
    ranker.rank("two", TOOLS[:6])
    assert len(texts) == 3


def answering(reply: Reply) -> AbstractContextManager[Script]:
    turns: list[Reply | Callable[[], None]] = [reply]
    return scripted(**{"v1/embeddings": turns})


GOOD = {"index": 0, "embedding": [1.0, 0.5]}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"data": []},
        {"data": [GOOD, GOOD]},
        {"data": ["text"]},
        {"data": [{"index": 0, "embedding": [1, "2"]}]},
        {"data": [{"index": 0, "embedding": [True, 2]}]},
        {"data": [{"index": 0, "embedding": []}]},
        {"data": [{"index": 0, "embedding": [1e400, 1]}]},
        {"data": [{"index": 0, "embedding": [[1, 2]]}]},
    ],
)
def test_an_answer_of_another_form_is_an_error(body: Any) -> None:
    with answering(Reply(200, body)) as server, pytest.raises(BackendError):
        EmbeddingRanker(ServerEmbeddings(server.url)).rank("x", ())


def test_the_error_of_a_server_is_reported() -> None:
    refusal = Reply(501, {"error": {"message": "This server does not support embeddings."}})
    refused = pytest.raises(ServerResponseError, match="does not support embeddings")
    with answering(refusal) as server, refused:
        ServerEmbeddings(server.url)(["x"])


@pytest.mark.usefixtures("brief_pauses")
def test_an_unreachable_server_is_reported() -> None:
    with scripted() as server:
        url = server.url
    with pytest.raises(BackendUnreachableError, match="--embeddings"):
        ServerEmbeddings(url)(["x"])


def test_vectors_of_another_length_than_before_are_an_error() -> None:
    lengths = iter([2, 3])
    ranker = EmbeddingRanker(lambda texts: [[1.0] * length for length in [next(lengths)] for _ in texts])
    ranker.rank("x", TOOLS[:2])
    with pytest.raises(BackendError, match="another length"):
        ranker.rank("x", TOOLS[:2])


def test_a_file_that_is_not_a_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="no model file"):
        ModelEmbeddings(tmp_path / "absent.gguf")
    (tmp_path / "text.gguf").write_text("text")
    with pytest.raises(ModelLoadError, match="not a GGUF file"):
        ModelEmbeddings(tmp_path / "text.gguf")
    (tmp_path / "begun.gguf").write_bytes(b"GGUF\x03\0\0\0")
    with pytest.raises(ModelLoadError, match="cannot be loaded"):
        ModelEmbeddings(tmp_path / "begun.gguf")
