"""A model of random weights, and both ways to run a planner."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from gbnf_server.backends.in_process import InProcess
from support.models import make_model
from support.toys import Driver


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """Random weights: without a grammar it writes noise, with one tool offered it can only call that tool."""
    path = make_model(tmp_path_factory.mktemp("model") / "tiny.gguf", context=4096)
    with InProcess(path, prompt_style="minimal") as model:
        yield model


@pytest.fixture(params=["sync", "async"])
def driver(request: pytest.FixtureRequest) -> Driver:
    if request.param == "sync":
        return lambda planner, query: planner.run(query)
    return lambda planner, query: asyncio.run(planner.arun(query))
