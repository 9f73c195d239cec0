"""Ranking of tools by an embedding model that llama.cpp runs: by meaning, where words differ.

    ranker = EmbeddingRanker(ServerEmbeddings("http://127.0.0.1:8080"))      # llama-server --embeddings
    ranker = EmbeddingRanker(ModelEmbeddings("embeddinggemma-300M-Q8_0.gguf"))
    Planner(tools, backend, PlannerOptions(ranker=ranker), context=context)

A tool is embedded once, as it is described to a model. `ranker.rank("", tools)` does so before the first
request.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from gbnf.prompts.descriptions import describe_tool
from gbnf.tools import Tool
from gbnf_server.backends.http_client import HttpClient, HttpSession, RetryPolicy
from gbnf_server.backends.wire import read_object
from gbnf_server.llama.bindings import llama_cpp
from gbnf_server.llama.native import NativeModel, default_threads
from gbnf_server.system.addresses import llama_server_url
from gbnf_server.system.errors import BackendError, ModelLoadError, ServerResponseError
from gbnf_server.system.event_loop import shared_loop

Embed: TypeAlias = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""Returns a vector for each text, all of the same length. Raises BackendError."""

_BATCH: Final = 16
"""Texts of one request to a server. Its answer takes less than the 4 MB that are allowed for any."""

_UNSPECIFIED, _NO_POOLING, _MEAN = -1, 0, 1  # llama.h, enum llama_pooling_type

_LONGEST: Final = 1200
"""Characters of a text: many embedding models take 512 tokens, and servers refuse longer texts."""


class EmbeddingRanker:
    """A `gbnf.Ranker`: the score of a tool is the cosine of the angle between its vector and the request's.

    `query_prefix` and `tool_prefix`: what the model wants before a question and before a document, such as
    "query: " and "passage: ". May be used by several threads at once if `embed` may.
    """

    def __init__(self, embed: Embed, *, query_prefix: str = "", tool_prefix: str = "") -> None:
        self._embed, self._query_prefix, self._tool_prefix = embed, query_prefix, tool_prefix
        self._vectors: dict[str, npt.NDArray[np.float64]] = {}  # by the tool's fingerprint

    def rank(self, query: str, tools: Sequence[Tool]) -> list[float]:
        """Return the scores, between -1 and 1. Raises BackendError."""
        new = {tool.fingerprint: tool for tool in tools if tool.fingerprint not in self._vectors}
        texts = [self._tool_prefix + describe_tool(tool, "default", "en") for tool in new.values()]
        *vectors, query_vector = self._unit_vectors(
            [text[:_LONGEST] for text in (*texts, self._query_prefix + query)]
        )
        self._vectors.update(zip(new, vectors, strict=True))
        tool_vectors = [self._vectors[tool.fingerprint] for tool in tools]
        if any(vector.shape != query_vector.shape for vector in tool_vectors):
            raise BackendError("the embedding model has changed: its vectors have another length than before")
        return [float(vector @ query_vector) for vector in tool_vectors]

    def _unit_vectors(self, texts: Sequence[str]) -> list[npt.NDArray[np.float64]]:
        vectors = [np.asarray(vector, dtype=np.float64) for vector in self._embed(texts)]
        usable = (vector.ndim == 1 and vector.size > 0 and np.isfinite(vector).all() for vector in vectors)
        if len(vectors) != len(texts) or not all(usable):
            raise BackendError(f"the embedding model did not return a vector for each of {len(texts)} texts")
        return [vector / (np.linalg.norm(vector) or 1.0) for vector in vectors]


class ServerEmbeddings:
    """The embeddings of a llama-server that was started with `--embeddings`, or of another OpenAI server.

    `url`: by default port 9931, or else 8080, of this machine.
    `model`: the server's name for the model, if it needs one. `api_key`: by default that of a server that
    this user started there. `timeout`: seconds for a request with its retries.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        model: str | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
    ) -> None:
        """Prepare a client; no request is sent. Raises BackendUnreachableError if the URL is invalid."""
        self._body: dict[str, Any] = {} if model is None else {"model": model}
        self._http = HttpClient(
            url or llama_server_url(),
            server_name="llama-server",
            api_key=api_key,
            retry_policy=RetryPolicy(timeout),
            hint="Start one with `gbnf server start --model …`, and --embeddings",
        )

    def __call__(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """Return a vector for each text. Raises BackendError."""
        return shared_loop().run(self._vectors(texts))

    async def _vectors(self, texts: Sequence[str]) -> list[Sequence[float]]:
        async with self._http.session() as session:
            batches = [texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
            return [vector for batch in batches for vector in await self._request(session, batch)]

    async def _request(self, session: HttpSession, texts: Sequence[str]) -> list[Sequence[float]]:
        body = {**self._body, "input": list(texts), "encoding_format": "float"}
        response = await session.request("POST", "/v1/embeddings", body)
        items = read_object(response).get("data")
        vectors: list[Any] = [
            item.get("embedding") if isinstance(item, dict) else None
            for item in (items if isinstance(items, list) else ())
        ]
        if len(vectors) != len(texts) or not all(map(_is_list_of_numbers, vectors)):
            problem = f"the answer has no list of numbers for each of {len(texts)} texts"
            raise ServerResponseError(response.status_code, problem)
        return vectors

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._http.close()


def _is_list_of_numbers(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(number, int | float) and not isinstance(number, bool) for number in value
    )


class ModelEmbeddings:
    """The embeddings of a GGUF file, in this process. `context_length`: tokens; the rest of a text is cut.

    A model without a pooling of its own, such as a chat model, gives the mean of its tokens' vectors.
    """

    def __init__(self, path: Path | str, *, context_length: int = 512) -> None:
        """Load the model. Raises ModelLoadError if the file is missing or llama.cpp cannot use it."""
        self._model = NativeModel(path)
        self._length = context_length
        self._lock = threading.Lock()
        self._context = self._open_context(_UNSPECIFIED)
        if llama_cpp.llama_pooling_type(self._context) == _NO_POOLING:
            llama_cpp.llama_free(self._context)
            self._context = self._open_context(_MEAN)
        self._close = weakref.finalize(self, self._free, self._context, self._model)

    def _open_context(self, pooling: int) -> Any:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = self._length
        params.n_threads = params.n_threads_batch = default_threads(self._model.path)
        params.embeddings, params.pooling_type = True, pooling
        context = llama_cpp.llama_init_from_model(self._model.handle, params)
        if not context:
            raise ModelLoadError(
                f"{self._model.path} cannot be used for embeddings of {self._length} tokens."
            )
        return context

    @staticmethod
    def _free(context: Any, model: NativeModel) -> None:
        llama_cpp.llama_free(context)
        model.close()

    def __call__(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """Return a vector for each text. Raises BackendError."""
        with self._lock:
            return [self._vector(text or " ") for text in texts]

    def _vector(self, text: str) -> Sequence[float]:
        tokens = self._model.tokenize(text, special=False, adds_ends=True)[: self._length]
        array = (llama_cpp.llama_token * len(tokens))(*tokens)  # the batch refers to it
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)
        status = llama_cpp.llama_decode(self._context, llama_cpp.llama_batch_get_one(array, len(tokens)))
        vector = None if status else llama_cpp.llama_get_embeddings_seq(self._context, 0)
        if not vector:
            raise BackendError(f"the embedding model failed: llama_decode returned {status}")
        return list(vector[: llama_cpp.llama_model_n_embd(self._model.handle)])

    def close(self) -> None:
        """Release the model. Idempotent."""
        self._close()
