"""A model whose logits depend on the tokens before only, and on nothing that rounds."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest

from gbnf import Grammar
from gbnf_server.llama.cancellation import Cancellation
from gbnf_server.llama.decoder import Decoder, Generation
from gbnf_server.llama.demo_model import model_path
from gbnf_server.llama.grammar_engines import grammar_engine
from gbnf_server.llama.kv_cache import CachedSequence, Logits
from gbnf_server.llama.native import NativeModel
from gbnf_server.llama.sampler import Sampler


@pytest.fixture(scope="module", autouse=True)
def no_model_is_small() -> Iterator[None]:
    """Draft and force text for any model: those of the tests are too small for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NativeModel, "is_small", False)
        yield


@cache
def vocabulary() -> NativeModel:
    """Return the vocabulary of the bundled model."""
    return NativeModel(model_path(), vocab_only=True)


@dataclass
class PureModel:
    """In place of a KV cache: logits that depend on the tokens before only, and on nothing that rounds.

    They are noise, except that the next token of `wanted` is more likely, by `strength`.
    """

    vocabulary: NativeModel
    prompt: Sequence[int]
    wanted: Sequence[int]
    strength: float
    evaluated: list[int] = field(default_factory=list)  # the length of the sequence after each evaluation

    def roll_back(self, sequence: CachedSequence, length: int) -> None:
        del sequence.cached_tokens[length:]

    def evaluate(
        self,
        sequence: CachedSequence,
        tokens: Sequence[int],
        _stop: Cancellation,
        output_positions: Sequence[int],
    ) -> list[Logits]:
        start = len(sequence.cached_tokens)
        sequence.cached_tokens.extend(tokens)
        self.evaluated.append(len(sequence.cached_tokens))
        return [self._logits(sequence.cached_tokens[: start + at + 1]) for at in output_positions]

    def _logits(self, before: Sequence[int]) -> Logits:
        seed = zlib.crc32(np.array(before, dtype=np.int32).tobytes())
        logits = np.random.default_rng(seed).standard_normal(self.vocabulary.size, dtype=np.float32)
        written = len(before) - len(self.prompt)
        if written < len(self.wanted):
            logits[self.wanted[written]] += self.strength
        return logits


@dataclass(frozen=True)
class Run:
    answer: Generation
    evaluated: list[int]
    cached_tokens: list[int]
    pieces: list[str]


def run_pure(
    model: PureModel, grammar: Grammar | None, sampler: Sampler, max_tokens: int, **options: Any
) -> Run:
    """Generate an answer. `options`: those of `Decoder`."""
    sequence, pieces = CachedSequence(0), list[str]()
    constraint = (
        None if grammar is None else grammar_engine("llama.cpp", model.vocabulary).constraint(grammar)
    )
    options = {"jumps": True, "stop": Cancellation(), "on_text": pieces.append, **options}
    decoder = Decoder(model.vocabulary, model, sequence, sampler, constraint, **options)  # type: ignore[arg-type]  # the part of a KV cache that a decoder uses
    answer = decoder.generate(model.prompt, max_tokens)
    return Run(answer, model.evaluated, sequence.cached_tokens, pieces)
