"""Fixtures that several packages of tests share."""

from collections.abc import Iterator

import pytest

from gbnf_server.system.cpu_cores import UsableCores
from support.server import brief_pauses, llama_server, tiny_model

__all__ = ["brief_pauses", "llama_server", "tiny_model"]


@pytest.fixture(scope="session", autouse=True)
def one_thread_for_a_model() -> Iterator[None]:
    """Other workers of pytest-xdist have the other cores: several threads would wait for each other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gbnf_server.llama.native.usable_cores", lambda: UsableCores(1, "the tests"))
        yield
