"""What happened at each token of an answer: what the model preferred, what the grammar refused.

A trace costs a mask over the whole vocabulary for each sampled token, so it is recorded only on request.
Probabilities are the softmax of the logits: of the model alone, at temperature 1, without truncation.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from gbnf_server.llama.constraint import Constraint
from gbnf_server.llama.native import NativeModel
from gbnf_server.llama.repetition_guard import RepetitionGuard
from gbnf_server.llama.token_budget import TokenBudget
from gbnf_server.llama.token_values import Candidate, TokenKind, TokenLogprob, TracedToken

_CANDIDATES = 10


class TraceRecorder:
    """Records the tokens of one answer."""

    def __init__(self, model: NativeModel, constraint: Constraint | None, max_tokens: int) -> None:
        self.tokens: list[TracedToken] = []
        self._model, self._constraint, self._max_tokens = model, constraint, max_tokens
        self._started = time.perf_counter()
        self._everything = np.arange(model.size)

    def look(
        self, logits: npt.NDArray[np.float32], budget: TokenBudget | None, guard: RepetitionGuard | None
    ) -> TracedToken:
        """Return what is known before a token is sampled; `sampled` completes it."""
        values = np.exp(logits.astype(np.float64) - float(logits.max()))
        probabilities = values / values.sum()
        allowed = np.ones(len(logits), dtype=np.bool_)
        if self._constraint is not None:
            seconds = self._constraint.seconds
            allowed = np.asarray(self._constraint.allowed(self._everything))
            self._constraint.seconds = seconds
        likeliest = np.argsort(-probabilities, kind="stable")[:_CANDIDATES]
        candidates = tuple(
            Candidate(
                self._model.piece(int(token)),
                float(probabilities[token]),
                "grammar"
                if not allowed[token]
                else "limit"
                if budget is not None and not budget.would_fit(int(token))
                else "repetition"
                if guard is not None and not guard.would_fit(int(token))
                else None,
            )
            for token in likeliest
        )
        self._probabilities = probabilities
        return self._now(
            TracedToken(b"", "sampled", 0.0, 0, None, float(probabilities[allowed].sum()), candidates)
        )

    def sampled(self, looked: TracedToken, token: int, kind: TokenKind) -> None:
        """Add the token that was sampled."""
        piece = b"" if kind == "end" else self._model.piece(token)
        self.tokens.append(
            replace(looked, token=piece, kind=kind, probability=float(self._probabilities[token]))
        )

    def forced(self, tokens: Sequence[int]) -> None:
        """Add forced tokens."""
        for token in tokens:
            self.tokens.append(self._now(TracedToken(self._model.piece(token), "forced", 0.0, 0)))

    def _now(self, token: TracedToken) -> TracedToken:
        left = self._max_tokens - len(self.tokens)
        return replace(token, at_s=time.perf_counter() - self._started, left=left)


def token_logprob(
    model: NativeModel, logits: npt.NDArray[np.float32], token: int, count: int
) -> TokenLogprob:
    """Return the log-probability of a token, and of the `count` likeliest."""
    values = logits.astype(np.float64)
    values -= values.max()
    values -= np.log(np.exp(values).sum())
    top = np.argsort(-values, kind="stable")[:count] if count else ()
    others = tuple((model.piece(int(each)), float(values[each])) for each in top)
    return TokenLogprob(model.piece(token), float(values[token]), others)
