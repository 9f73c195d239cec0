"""The bundled demonstration model; `server/training` in a checkout trains it."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def model_path() -> Path:
    """Return the path of the bundled GGUF model."""
    return Path(str(files(__package__) / "model.gguf"))
