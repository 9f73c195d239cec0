"""The decoding loop: adds tokens that the model samples and text that the grammar forces.

A trace costs a mask over the whole vocabulary for each sampled token, so it is recorded only on request. Its
probabilities are the softmax of the logits: of the model alone, at temperature 1, without truncation.
"""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from gbnf.calls.stop_strings import StopStrings
from gbnf.grammar.forced_continuation import ForcedContinuation
from gbnf_server.llama.answer_ends import RepetitionGuard, TokenBudget
from gbnf_server.llama.cancellation import Cancellation
from gbnf_server.llama.constraint import Constraint
from gbnf_server.llama.drafts import Draft, Drafter, DraftHistory, following_tokens
from gbnf_server.llama.evidence_bias import EvidenceBias
from gbnf_server.llama.kv_cache import CachedSequence, KVCache, Logits
from gbnf_server.llama.native import NativeModel
from gbnf_server.llama.sampler import Sampler
from gbnf_server.llama.token_values import Candidate, TokenKind, TokenLogprob, TracedToken
from gbnf_server.system.errors import BackendError

_MIN_DRAFTS = 2  # on a CPU, two tokens at once cost as much as one after the other


@dataclass(slots=True)
class Generation:
    """The answer so far. `forced_tokens`: how many of `tokens` took no step; `first_token_at`: time in s.

    `stop_string`: what ended it, and is no part of `text`. `logprobs`: one per token, if they are wanted.
    `shortened_at`: the index in `text` from which on a token was refused so that the answer can end;
    `repeated`: what was repeated there, "" if the token limit refused it. `trace`: one entry for each token,
    and one for the end of the generation, if it was asked for.
    """

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    forced_tokens: int = 0
    finish_reason: Literal["stop", "length"] = "length"
    first_token_at: float = 0.0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    stop_string: str | None = None
    shortened_at: int | None = None
    repeated: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)
    trace: list[TracedToken] = field(default_factory=list)


@dataclass(eq=False)
class Decoder:
    """Generates one answer after a prompt, in a sequence of the KV cache.

    `jumps`: draft forced and copied text (see `drafts`); append the forced end of an answer without asking
    the model, except for log-probabilities. `stop_strings` end the text. `logprobs`: how many alternatives to
    each token are wanted beside its log-probability, None for neither. `on_text` gets each new piece of the
    text. `control_texts`: forced texts that are control tokens, such as the marker of a tool-call format.
    `foreign_tokens`: those that are not sampled, although the constraint allows their texts.
    `trace`: record what happens at each token. `bias`: what is added to the logits. `history`: of the model's
    drafts (see `drafts`).
    """

    model: NativeModel
    kv_cache: KVCache
    sequence: CachedSequence
    sampler: Sampler
    constraint: Constraint | None
    _: KW_ONLY
    jumps: bool
    stop: Cancellation
    stop_strings: Sequence[str] = ()
    logprobs: int | None = None
    on_text: Callable[[str], None] | None = None
    control_texts: Collection[str] = ()
    foreign_tokens: Collection[int] = ()
    trace: bool = False
    bias: EvidenceBias | None = None
    history: DraftHistory | None = None

    def __post_init__(self) -> None:
        self._stops, self._max_tokens = StopStrings(self.stop_strings), 0
        self._control_texts = sorted(self.control_texts, key=len, reverse=True)
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        self._answer = Generation()
        # Logits of the last evaluation, by the number of tokens of prompt and answer before them. Drafts may
        # be cached beyond the answer; `cached_tokens` agrees with prompt and answer in their common length.
        self._logits: dict[int, Logits] = {}
        self._budget: TokenBudget | None = None
        self._guard = RepetitionGuard(self.model, self.constraint)
        # whether the model last wrote an optional space: then it probably writes the next one, too
        self._spaced = True
        self._space_at: int | None = None  # where the text may have the next one
        self._drafter: Drafter | None = None
        self._recorder: TraceRecorder | None = None

    def generate(self, prompt: Sequence[int], max_tokens: int) -> Generation:
        """Generate at most `max_tokens`, which the context must have space for. Raises BackendError."""
        answer, self._max_tokens = self._answer, max_tokens
        if self.constraint is not None:
            self._budget = TokenBudget(self.model, self.constraint, max_tokens)
        if self.trace:
            self._recorder = TraceRecorder(self.model, self.constraint, max_tokens)
            answer.trace = self._recorder.tokens
        if self.jumps:
            self._drafter = Drafter(self.model, prompt, self.constraint, self._control_texts, self.history)
        while self._stops.found is None:
            self.stop.begin("the next token is chosen")
            forced = self._forced_continuation()
            if forced is not None and forced.ends and self._append_end(forced.text, len(prompt)):
                answer.finish_reason = "stop"
                break
            if self._guard.ends_answer:
                self._shorten(self._guard.repeated)
                break
            if len(answer.tokens) >= max_tokens:
                break
            token, looked = self._sample(self._next_logits(prompt, forced), max_tokens - len(answer.tokens))
            if token in self.model.end_tokens:
                answer.finish_reason = "stop"
                if self._recorder is not None and looked is not None:
                    self._recorder.sampled(looked, token, "end")
                break
            position = len(prompt) + len(answer.tokens)
            is_cached = self._commit_token(position, token)
            is_guessed = self._drafter is not None and self._drafter.sampled(position, token)
            answer.forced_tokens += is_cached and not is_guessed
            if self._recorder is not None and looked is not None:
                self._recorder.sampled(looked, token, "drafted" if is_cached else "sampled")
            answer.tokens.append(token)
            self._emit(self._characters.decode(self.model.piece(token)))
        if self._is_complete():
            answer.finish_reason = "stop"
        if answer.finish_reason == "stop":
            self._emit(self._characters.decode(b"", final=True))
        self._end_text()
        if self._drafter is not None:
            answer.drafted_tokens, answer.accepted_tokens = self._drafter.end()
        return answer

    def _forced_continuation(self) -> ForcedContinuation | None:
        """Return the text that the grammar forces, None if nothing is drafted or it is unknown."""
        if self.constraint is None or self._drafter is None:
            return None
        text = self._answer.text
        if self._space_at is not None and self._space_at < len(text):
            self._spaced, self._space_at = text[self._space_at] == " ", None
        continuation = self.constraint.forced_continuation(spaced=self._spaced)
        if continuation is not None and (space := continuation.optional_space) is not None:
            self._space_at = len(text) + space
        return continuation

    def _is_complete(self) -> bool:
        """Whether nothing can follow, or the token limit has determined where the answer ends."""
        state = None if self.constraint is None else self.constraint.state()
        if state is None or not state.can_end or self._stops.found is not None:
            return False
        return state.must_end or (self._budget is not None and self._budget.refused)

    def _append_end(self, text: str, start: int) -> bool:
        """Append forced text that ends the answer; return whether its tokens are known, and any would fit.

        No token after it is sampled, so it is not evaluated. The model might write a token for each byte.
        """
        answer, constraint = self._answer, self.constraint
        tokens = following_tokens(self.model, answer.tokens, text, self._control_texts)
        if self.logprobs is not None or constraint is None:
            return not text
        if tokens is None or len(answer.tokens) + len(text.encode()) > self._max_tokens:
            return False
        if text and not constraint.accept_text(text):
            return False
        for token in tokens:
            self._commit_token(start + len(answer.tokens), token)
            answer.tokens.append(token)
        answer.forced_tokens += len(tokens)
        if self._recorder is not None:
            self._recorder.forced(tokens)
        self._emit(text)
        return True

    def _commit_token(self, index: int, token: int) -> bool:
        """Set the token at an index of prompt and answer; roll back the cache if it has another one there.

        Returns whether the token is already cached.
        """
        cached_tokens = self.sequence.cached_tokens
        if index < len(cached_tokens) and cached_tokens[index] != token:
            self.kv_cache.roll_back(self.sequence, index)
        return index < len(cached_tokens)

    def _next_logits(self, prompt: Sequence[int], forced: ForcedContinuation | None) -> Logits:
        """Return the logits of the next token; an evaluation also computes those for the drafts."""
        tokens, sequence = self._answer.tokens, self.sequence
        length = len(prompt) + len(tokens)
        cached = min(len(sequence.cached_tokens), length)
        if cached == length and length in self._logits:
            return self._logits[length]
        cached = min(cached, length - 1)
        if cached < len(sequence.cached_tokens):
            self.kv_cache.roll_back(sequence, cached)
        missing = [*prompt[cached:], *tokens] if cached < len(prompt) else tokens[cached - len(prompt) :]
        drafts: Sequence[Draft] = ()
        # In the batch of a prompt, other kernels would compute the drafts, and their rounding decide ties.
        if self._drafter is not None and len(missing) == 1 and not self._characters.getstate()[0]:
            drafts = self._drafter.propose(tokens, self._answer.text, forced, spaced=self._spaced)
            drafts = drafts[: self._max_tokens - len(tokens) - 1]
            if len(drafts) < _MIN_DRAFTS:
                drafts = ()
            self._drafter.evaluated(drafts, length)
        ahead = range(len(drafts) + 1)
        output_positions = [len(missing) - 1 + count for count in ahead]
        evaluated = self.kv_cache.evaluate(
            sequence, [*missing, *(draft.token for draft in drafts)], self.stop, output_positions
        )
        self._logits = {length + count: logits for count, logits in zip(ahead, evaluated, strict=True)}
        self._answer.first_token_at = self._answer.first_token_at or time.perf_counter()
        return evaluated[0]

    def _sample(self, logits: Logits, tokens_left: int) -> tuple[int, TracedToken | None]:
        """Return the next token, and what the trace says of it."""
        budget = self._budget if self._budget is not None and self._budget.is_active else None
        guard = self._guard if self._guard.is_active else None
        if budget is not None:
            budget.start_step(tokens_left)
        if guard is not None:
            guard.start_step()
        looked = None if self._recorder is None else self._recorder.look(logits, budget, guard)
        weighted = logits if self.bias is None else self.bias.biased(logits)
        filters = [limit.fits for limit in (budget, guard) if limit is not None]
        if self.foreign_tokens:
            filters.insert(0, lambda token: token not in self.foreign_tokens)
        fits = (lambda token: all(fits(token) for fits in filters)) if filters else None
        try:
            token = self.sampler.sample(weighted, self.constraint, fits)
            if token is None and guard is not None:
                guard.give_up()
                token = self.sampler.sample(weighted, self.constraint, fits)
            if token is None and self.constraint is not None and self.constraint.forget_state():
                token = self.sampler.sample(weighted, self.constraint)
        except ValueError as error:
            raise BackendError(f"the model computes invalid logits: {error}. Is its file complete?") from None
        if token is None:
            raise BackendError(
                "the grammar allows no token of this model's vocabulary: it has a dead end here."
            )
        if budget is not None and budget.refused:
            self._shorten()
        if guard is not None and guard.refused:
            self._shorten(guard.repeated)
        if self.constraint is not None and token not in self.model.end_tokens:
            if budget is not None:
                budget.accept(token)
            self.constraint.accept(token)
        if self.logprobs is not None and token not in self.model.end_tokens:
            self._answer.logprobs.append(token_logprob(self.model, logits, token, self.logprobs))
        if looked is not None and weighted is not logits:
            looked = replace(looked, bonus=float(weighted[token] - logits[token]))
        return token, looked

    def _shorten(self, repeated: str = "") -> None:
        """Note from where on the answer is not the model's own, if this is the first time."""
        if self._answer.shortened_at is None:
            self._answer.shortened_at, self._answer.repeated = len(self._answer.text), repeated

    def _emit(self, text: str) -> None:
        self._answer.text += text
        if self.bias is not None:
            self.bias.accept(text)
        self._guard.accept(text, self._answer.text)
        self._pass_on(self._stops.feed(text))

    def _end_text(self) -> None:
        """Pass on the rest, and drop the text from a stop string on."""
        self._pass_on(self._stops.end())
        if (stop_string := self._stops.found) is not None:
            answer = self._answer
            answer.text = answer.text[: answer.text.index(stop_string)]
            answer.finish_reason, answer.stop_string = "stop", stop_string

    def _pass_on(self, text: str) -> None:
        if text and self.on_text is not None:
            self.on_text(text)


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
        probabilities = np.exp(log_probabilities(logits))
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
        tokens_left = self._max_tokens - len(self.tokens)
        return replace(token, at_s=time.perf_counter() - self._started, left=tokens_left)


def log_probabilities(logits: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return the log-probability of each token."""
    values = logits.astype(np.float64)
    values -= values.max()
    values -= np.log(np.exp(values).sum())
    return values


def token_logprob(
    model: NativeModel, logits: npt.NDArray[np.floating], token: int, count: int
) -> TokenLogprob:
    """Return the log-probability of a token, and of the `count` likeliest."""
    values = log_probabilities(logits)
    top = np.argsort(-values, kind="stable")[:count] if count else ()
    others = tuple((model.piece(int(likely)), float(values[likely])) for likely in top)
    return TokenLogprob(model.piece(token), float(values[token]), others)
