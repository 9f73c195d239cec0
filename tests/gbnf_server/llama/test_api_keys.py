"""Keys of servers that this user started: found by the address, by nobody else, for as long as they run."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.llama import api_keys

URL = "http://127.0.0.1:8080"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GBNF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_key_is_found_by_its_address_until_it_is_dropped() -> None:
    api_keys.save(URL, "one")
    for url in (URL, URL + "/", URL + "/v1", "http://localhost:8080", "http://[::1]:8080"):
        assert api_keys.find(url) == "one"
    for url in ("http://127.0.0.1:8081", "http://127.0.0.1", "http://127.0.0.1.evil.com:8080"):
        assert api_keys.find(url) is None
    api_keys.save(URL, "two")
    api_keys.delete(URL, "one")  # the server that is gone was another one
    assert api_keys.find(URL) == "two"
    api_keys.delete(URL, "two")
    api_keys.delete(URL, "two")
    assert api_keys.find(URL) is None
    api_keys.save(URL, "of a server that was killed")
    api_keys.delete(URL)
    assert api_keys.find(URL) is None


def test_nobody_else_can_read_it(cache: Path) -> None:
    api_keys.save(URL, "one")
    file = api_keys.key_file(URL)
    assert file is not None
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [*file.parent.iterdir()] == [file]


@given(st.text())
def test_any_text_may_be_asked_for(url: str) -> None:
    assert api_keys.find(url) is None or api_keys.key_file(url) is not None
