"""Where files of this user lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from gbnf_server.system.folders import cache_folder, config_folder


def test_the_cache_is_the_chosen_folder_or_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GBNF_CACHE", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("GBNF_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/gbnf")


@pytest.mark.parametrize(
    ("platform", "cache", "config"),
    [
        ("linux", ".cache/gbnf", ".config/gbnf"),
        ("darwin", "Library/Caches/gbnf", "Library/Application Support/gbnf"),
    ],
)
def test_the_users_folders_are_those_of_the_system(
    platform: str, cache: str, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setenv("HOME", "/home/anna")
    for name in ("GBNF_CACHE", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert cache_folder() == Path("/home/anna") / cache
    assert config_folder() == Path("/home/anna") / config
