"""The demonstration model that comes with the package, and the programs that make it.

Importing this imports nothing heavy: torch and tokenizers are only for training (the `train` extra).
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def model_path() -> Path:
    """The embedded GGUF model's file."""
    return Path(str(files(__package__) / "model.gguf"))
