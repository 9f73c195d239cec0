"""The default address of a llama-server."""

from __future__ import annotations

import socket

import pytest

from gbnf_server.backends.embeddings import ServerEmbeddings
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.system import addresses


@pytest.mark.parametrize("listens", [True, False])
def test_the_next_default_port_is_used_if_a_program_listens_there(
    monkeypatch: pytest.MonkeyPatch, listens: bool
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        if listens:
            taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(addresses, "_NEXT_PORT", port)
        expected = f"http://127.0.0.1:{port if listens else addresses.LLAMA_SERVER_PORT}"
        assert addresses.llama_server_url() == expected
        with LlamaServer() as server:
            assert server.url == expected
        assert ServerEmbeddings()._http.url == expected
        with LlamaServer("http://127.0.0.1:7") as server:
            assert server.url == "http://127.0.0.1:7"
