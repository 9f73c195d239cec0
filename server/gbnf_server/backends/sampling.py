"""Choosing the next token from logits, held by a grammar.

Rejection first: a token is picked from the raw logits, that one is tested against the grammar, and only when
it is refused is the whole vocabulary masked and the pick repeated. For greedy decoding and for sampling alike
that is exactly the masked distribution, at microseconds a token where masking costs tens of milliseconds.

Under a grammar the bytes are held to UTF-8 too. The engine alone is not enough: it reads overlong forms, so
that where "😀" and "日" may both come, it lets a model write "日" in the four bytes that no decoder takes.
"""

from __future__ import annotations

import codecs
import time

import numpy as np
import numpy.typing as npt

from gbnf_server.native import NativeGrammar, NativeModel


class Held:
    """What holds an answer: the grammar, and that its bytes are UTF-8. `seconds`: what that took so far."""

    def __init__(self, model: NativeModel, grammar: NativeGrammar) -> None:
        self._model, self._grammar = model, grammar
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self.seconds = 0.0

    def allows(self, token: int) -> bool:
        begun = time.perf_counter()
        allowed = self._grammar.allows(token)
        self.seconds += time.perf_counter() - begun
        return allowed and self.spells(token)

    def spells(self, token: int) -> bool:
        """Tell whether the text is still UTF-8 after the token, a character perhaps unfinished."""
        state = self._decoder.getstate()
        try:
            self._decoder.decode(self._model.piece(token))
        except UnicodeDecodeError:
            return False
        finally:
            self._decoder.setstate(state)
        return True

    def mask(self, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The logits with -inf where the grammar refuses; the caller sees whether a token `spells`."""
        begun = time.perf_counter()
        masked = self._grammar.mask(logits)
        self.seconds += time.perf_counter() - begun
        return masked

    def accept(self, token: int) -> None:
        begun = time.perf_counter()
        self._grammar.accept(token)
        self.seconds += time.perf_counter() - begun
        self._decoder.decode(self._model.piece(token))


class Picker:
    """Chooses tokens: the likeliest at temperature 0, else at random by their probabilities."""

    def __init__(self, temperature: float, seed: int) -> None:
        if temperature < 0:
            raise ValueError(f"the temperature is {temperature}; it is at least 0")
        self._temperature = temperature
        self._random = np.random.default_rng(seed)

    def pick(self, logits: npt.NDArray[np.float32], held: Held | None) -> int | None:
        """One token that is allowed, None where none is."""
        token = self._choose(logits)
        if held is None or held.allows(token):
            return token
        masked = held.mask(logits)
        while np.isfinite(masked).any():
            token = self._choose(masked)
            if held.spells(token):
                return token
            masked[token] = -np.inf
        return None

    def _choose(self, logits: npt.NDArray[np.float32]) -> int:
        if self._temperature == 0:
            return int(np.argmax(logits))
        weights = np.exp((logits.astype(np.float64) - logits.max()) / self._temperature)
        cumulated = np.cumsum(weights)
        return int(np.searchsorted(cumulated, self._random.random() * cumulated[-1], side="right"))
