"""Log-probabilities of tokens, from the logits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gbnf_server.llama.native import NativeModel
from gbnf_server.llama.token_values import TokenLogprob


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
