"""The command line, for every test of it."""

from pathlib import Path

import pytest

from support.command_line import gbnf
from support.smollm2 import no_smollm2

__all__ = ["gbnf", "no_smollm2"]


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brief_pauses: None) -> None:
    """What somebody has tuned or configured on this machine has no part in a test."""
    monkeypatch.setenv("GBNF_CONFIG", "")
    monkeypatch.setenv("GBNF_PROFILES", str(tmp_path / "no-profiles"))
