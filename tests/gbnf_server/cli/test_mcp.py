"""`gbnf mcp`: what it refuses before it serves."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from support.command_line import Gbnf


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--http", "0.0.0.0:0"], "give --api-key"),
        (["--http", "example.org:0"], "give --api-key"),
        (["--http", "[::]:0"], "give --api-key"),
        (["--http", "localhost"], "is not [HOST:]PORT"),
        (["--http", "65536"], "is not [HOST:]PORT"),
        (["--http", "a:b"], "is not [HOST:]PORT"),
        (["--api-key", "x"], "it is for --http"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    gbnf: Gbnf, tmp_path: Path, options: list[str], message: str
) -> None:
    left = gbnf("mcp", "--workspace", tmp_path, *options)
    assert left.code == 2
    assert message in " ".join(left.err.replace("│", " ").split())


def test_a_port_in_use_is_named(gbnf: Gbnf, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        left = gbnf("mcp", "--workspace", tmp_path, "--http", taken.getsockname()[1])
    assert left.code == 4
    assert "cannot be used: Address already in use" in left.err


def test_a_folder_without_manifests_is_named(gbnf: Gbnf, tmp_path: Path) -> None:
    left = gbnf("mcp", "--workspace", tmp_path / "w", "--manifests", tmp_path)
    assert left.code == 3
    assert "contains no manifest.toml" in left.err
