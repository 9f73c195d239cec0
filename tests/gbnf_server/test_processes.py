"""Names of signals, and ending process groups without touching anybody else's."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.processes import signal_name


@given(number=st.integers())
def test_every_number_has_a_name_of_its_own(number: int) -> None:
    name = signal_name(number)
    base, _, distance = name.partition("+")
    if name.startswith("signal "):
        assert name == f"signal {number}"
    else:
        assert signal.Signals[base] + int(distance or 0) == number


@pytest.mark.parametrize("each", signal.Signals)
def test_a_signal_that_python_knows_has_its_name(each: signal.Signals) -> None:
    assert signal_name(int(each)) == each.name


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="no realtime signals on this system")
@pytest.mark.parametrize("distance", [1, 3, signal.SIGRTMAX - signal.SIGRTMIN - 1])
def test_realtime_signals_are_named_by_their_distance(distance: int) -> None:
    assert signal_name(signal.SIGRTMIN + distance) == f"SIGRTMIN+{distance}"
