"""Score values in an answer that has just been generated, from its prompt and answer in the KV cache.

The values are scored from the last to the first, so that each rolls the cache back once. A value's tokens are
those of the tokenizer, from the last token of the answer that ends before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from gbnf.requests.evidence import Evidence
from gbnf_server.llama.cancellation import Cancellation
from gbnf_server.llama.decoder import log_probabilities, token_logprob
from gbnf_server.llama.evidence_bias import EvidenceBias
from gbnf_server.llama.kv_cache import CachedSequence, KVCache, Logits, shared_prefix_length
from gbnf_server.llama.native import NativeModel
from gbnf_server.llama.token_values import TokenLogprob, token_range

_REPORTED = 64  # likeliest tokens at each place
_TAIL = 4  # characters after a value: the tokenizer may join its end with them


class AnswerScorer:
    """Scores values in the text of an answer's tokens; see `ValueScorer` of the backends."""

    def __init__(
        self,
        model: NativeModel,
        kv_cache: KVCache,
        sequence: CachedSequence,
        stop: Cancellation,
        prompt: Sequence[int],
        tokens: Sequence[int],
        text: str,
        evidence: Evidence | None,
    ) -> None:
        self._model, self._kv_cache, self._sequence, self._stop = model, kv_cache, sequence, stop
        self._prompt, self._tokens, self._text, self._evidence = prompt, tokens, text, evidence
        self._ends = list(accumulate((len(model.piece(token)) for token in tokens), initial=0))

    def scores(self, start: int, end: int, alternatives: Sequence[str]) -> list[float] | None:
        """Return the log-probability of each text in place of `text[start:end]`, up to where it ends.

        None if the tokenizer cannot spell one of them.
        """
        before, _, begins = token_range(self._text, self._ends, start, end)
        if len(self._text[:begins].encode()) < self._ends[before]:
            return None  # the token before ends inside of a character
        rest, tail = self._text[begins:start], self._text[end : end + _TAIL]
        spelled: list[list[int]] = []
        for text in alternatives:
            tokens = self._model.tokenize_exactly(rest + text + tail)
            if tokens is None:
                return None
            # a number ends where something else begins
            least = len((rest + text).encode()) + (text[0] != '"' and bool(tail))
            ends = accumulate(len(self._model.piece(token)) for token in tokens)
            spelled.append(tokens[: 1 + next(index for index, size in enumerate(ends) if size >= least)])
        sums = dict.fromkeys(range(len(spelled)), 0.0)
        path: list[int] = []
        rows: list[npt.NDArray[np.float64]] = []  # log-probabilities after each token of the path
        for index in sorted(sums, key=lambda index: spelled[index]):
            tokens = spelled[index]
            shared = shared_prefix_length(path, tokens)
            del rows[shared + 1 :]
            if len(rows) < len(tokens):
                shown = [*self._tokens[:before], *tokens[:-1]]
                rows += map(log_probabilities, self._logits(shown, len(tokens) - len(rows)))
            path = tokens
            sums[index] = float(sum(row[token] for row, token in zip(rows, tokens, strict=False)))
        return list(sums.values())

    def logprobs(self, start: int, end: int) -> tuple[int, Sequence[TokenLogprob]]:
        """Return the tokens of `text[start:end]`, and where in the text the first begins."""
        first, last, begins = token_range(self._text, self._ends, start, end)
        tokens = self._tokens[first:last]
        rows = self._logits(self._tokens[: last - 1], last - first) if tokens else ()
        return begins, [
            token_logprob(self._model, row, token, _REPORTED) for row, token in zip(rows, tokens, strict=True)
        ]

    def _logits(self, tokens: Sequence[int], count: int) -> Iterator[Logits]:
        """Yield the logits after the last `count` of these tokens, with the bonus of the evidence."""
        all_tokens = [*self._prompt, *tokens]
        cached = self._sequence.cached_tokens
        shared = shared_prefix_length(cached, all_tokens)
        self._kv_cache.roll_back(self._sequence, min(shared, len(all_tokens) - count))
        rest = all_tokens[len(cached) :]
        rows = self._kv_cache.evaluate(self._sequence, rest, self._stop, range(len(rest) - count, len(rest)))
        for index, logits in enumerate(rows, len(tokens) + 1 - count):
            if self._evidence is not None:
                bias = EvidenceBias(self._model, self._evidence)
                bias.accept(b"".join(map(self._model.piece, tokens[:index])).decode(errors="replace"))
                logits = bias.biased(logits)  # noqa: PLW2901  # the same logits
            yield logits
