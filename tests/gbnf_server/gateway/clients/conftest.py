"""Gateways as processes, one for each kind of backend. The clients must not send telemetry."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from gbnf_server.llama import server_build as build
from gbnf_server.llama.demo_model import model_path
from support.clients import gateway_process
from support.models import make_model
from support.server import require_llama_server
from support.tool_templates import JSON_IN_TAGS

# before the packages are imported: some read them then
os.environ |= {
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_MODE": "PRODUCTION",  # otherwise it reads .env files
    "LITELLM_TELEMETRY": "False",
}


@pytest.fixture(scope="session")
def gateway_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway with the demonstration model in its process, whose calls are JSON."""
    with gateway_process(tmp_path_factory.mktemp("gateway"), "--model", str(model_path())) as url:
        yield url


@pytest.fixture(scope="session")
def llama_gateway_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway in front of a llama-server with the demonstration model."""
    require_llama_server()
    with (
        build.start(model_path(), threads=1) as server,
        gateway_process(tmp_path_factory.mktemp("gateway"), "--server", server.url) as url,
    ):
        yield url


@pytest.fixture(params=["gateway_url", "llama_gateway_url"], ids=["in process", "llama-server"])
def url(request: pytest.FixtureRequest) -> str:
    """Each of the gateways with the demonstration model."""
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def native_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway with random weights, and calls in the form of the model's chat template."""
    folder = tmp_path_factory.mktemp("gateway")
    model = make_model(folder / "tiny.gguf", template=JSON_IN_TAGS, context=2048)
    with gateway_process(folder, "--model", str(model)) as url:
        yield url
