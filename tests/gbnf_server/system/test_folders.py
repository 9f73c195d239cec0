"""Where files of this user lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from gbnf_server.system.folders import cache_folder


def test_the_cache_is_the_chosen_folder_or_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GBNF_CACHE", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("GBNF_CACHE")
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: f"/somewhere/{name}")
    assert cache_folder() == Path("/somewhere/gbnf")
