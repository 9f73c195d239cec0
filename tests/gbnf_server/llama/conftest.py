"""A model with the embedded vocabulary, which has many tokens of several words, and random weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gbnf_server.backends.in_process import InProcess
from gbnf_server.llama.demo_model import model_path
from support.vocabularies import make_model_over


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model_over(model_path(), tmp_path_factory.mktemp("models") / "random.gguf")


@pytest.fixture(scope="module")
def backend(random_model: Path) -> Iterator[InProcess]:
    with InProcess(random_model, threads=1, prompt_style="minimal") as model:
        yield model
