"""The odds that a model calls a tool."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.backends.base import Request
from gbnf_server.backends.call_odds import call_odds, odds_request
from support.by_hand import completion
from support.small_models import odds


@given(st.floats(-8, 8))
def test_the_odds_of_a_call_are_those_of_its_beginnings(log_odds: float) -> None:
    found = call_odds(odds(log_odds))
    assert found is not None
    assert math.isclose(found, log_odds, abs_tol=1e-6)
    assert call_odds(completion("x")) is None
    sure = call_odds(odds(log_odds), "The call:")
    assert sure is not None
    assert sure > 10, "the format's own calls begin with the rest"
    asked = odds_request(
        Request([{"role": "user", "content": "x"}], max_tokens=99, temperature=1.0, stop=["a"])
    )
    assert (asked.grammar, asked.max_tokens, asked.temperature, asked.stop) == (None, 1, 0.0, ())
