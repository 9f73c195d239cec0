"""The cycle collector is off inside the block, and afterwards as it was before."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from gbnf.compiler.schema import paused_garbage_collection


@pytest.fixture(params=[True, False], ids=["on", "off"])
def enabled(request: pytest.FixtureRequest) -> Iterator[bool]:
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_the_collector_is_off_inside_and_then_as_before(enabled: bool) -> None:
    with paused_garbage_collection():
        assert not gc.isenabled()
    assert gc.isenabled() == enabled


def test_the_collector_is_as_before_after_an_error(enabled: bool) -> None:
    with pytest.raises(ZeroDivisionError), paused_garbage_collection():
        assert 1 / 0
    assert gc.isenabled() == enabled
