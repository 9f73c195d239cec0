"""LoRA adapters: a model with one says what a model with the sum of the weights says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gbnf import compile_pool
from gbnf.prompts.messages import Message, system_prompt
from gbnf.requests.evidence import gather_evidence
from gbnf.tools import FINAL_ANSWER, Tool
from gbnf_server.backends.base import Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.cli.model_options import ModelSource
from gbnf_server.llama.server_build import start
from gbnf_server.planner.runs.fingerprints import describe_model, identity
from gbnf_server.system.errors import ModelLoadError
from gbnf_server.system.model_files import SMOLLM2_ADAPTER
from support.models import Matrix, make_adapter, make_model, tensor_shapes
from support.server import require_llama_server
from support.smollm2 import requires_smollm2

REQUEST = Request([{"role": "user", "content": "hello"}], max_tokens=24)
RANK, ALPHA = 4, 8.0


def random_factors(seed: int) -> dict[str, tuple[Matrix, Matrix]]:
    """The factors of an adapter for each matrix of the block."""
    random = np.random.default_rng(seed)
    return {
        tensor: (
            random.normal(0, 0.4, (RANK, columns)).astype(np.float32),
            random.normal(0, 0.4, (rows, RANK)).astype(np.float32),
        )
        for tensor, (rows, columns) in tensor_shapes(8).items()
        if tensor.startswith("blk")
    }


def text_of(model: Path, lora: Path | None = None) -> str:
    with InProcess(model, threads=1, lora=lora) as backend:
        return backend.complete(REQUEST).text


@pytest.mark.parametrize("seed", range(2))
def test_an_adapter_is_added_to_the_weights(tiny_model: Path, tmp_path: Path, seed: int) -> None:
    factors = random_factors(seed)
    adapter = make_adapter(tmp_path / "adapter.gguf", factors, alpha=ALPHA)
    added = {tensor: second @ first * (ALPHA / RANK) for tensor, (first, second) in factors.items()}
    merged = make_model(tmp_path / "merged.gguf", added=added)
    said = text_of(tiny_model, adapter)
    assert said == text_of(merged)
    assert said != text_of(tiny_model)


def test_a_llama_server_says_the_same_with_it(tiny_model: Path, tmp_path: Path) -> None:
    require_llama_server()
    adapter = make_adapter(tmp_path / "adapter.gguf", random_factors(0), alpha=ALPHA)
    with (
        start(tiny_model, port=0, extra=["--lora", str(adapter)]) as running,
        LlamaServer(running.url, api_key=running.api_key) as server,
    ):
        assert server.complete(REQUEST).text == text_of(tiny_model, adapter)


def test_what_is_no_adapter_of_the_model_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"there is no LoRA adapter .*missing\.gguf"):
        InProcess(tiny_model, lora=tmp_path / "missing.gguf")
    with pytest.raises(ModelLoadError, match=r"tiny\.gguf is not a LoRA adapter for tiny\.gguf"):
        InProcess(tiny_model, lora=tiny_model)
    with pytest.raises(ModelLoadError, match=r"test_lora\.py is not a GGUF file"):
        InProcess(tiny_model, lora=Path(__file__))
    wide = {"blk.0.attn_q": (np.ones((1, 8), np.float32), np.ones((8, 1), np.float32))}
    with pytest.raises(ModelLoadError, match="shape"):
        InProcess(tiny_model, lora=make_adapter(tmp_path / "wide.gguf", wide))


def test_runs_with_and_without_it_are_told_apart(tiny_model: Path, tmp_path: Path) -> None:
    sources = [ModelSource(str(tiny_model))]
    for name in ("one", "two"):
        path = make_adapter(tmp_path / f"{name}.gguf", random_factors(len(name) + (name == "two")))
        sources.append(ModelSource(str(tiny_model), lora=str(path)))
    with InProcess(tiny_model, threads=1) as backend:
        told = {identity(describe_model(backend, source.path(), source.adapter())) for source in sources}
    assert len(told) == len({source.key() for source in sources}) == 3


BIKES: dict[tuple[str, str], dict[str, Any]] = {
    ("rent_bike", "Rent a bicycle at a station."): {
        "station": {"type": "string", "description": "Name of the station."},
        "minutes": {"type": "integer", "description": "For how long."},
    },
    ("report_damage", "Report a damaged bicycle."): {
        "bike_id": {"type": "string", "description": "Number on the frame."},
        "part": {"enum": ["tyre", "brake", "light"], "type": "string"},
    },
}
CALLED = {
    "I want a bike at Mill Lane for 45 minutes": "rent_bike",
    "the light of B-2291 is broken": "report_damage",
    "Can I have a bike from Kovalo Square for 60 minutes?": "rent_bike",
    "Can I have a bike from Kovalo Square for an hour, that is 60 minutes?": "rent_bike",
    "thanks, that was all": "final_answer",
}


@pytest.mark.slow
@requires_smollm2
def test_the_bundled_adapter_calls_tools_that_it_has_never_seen() -> None:
    """Near ties differ between CPUs, so not all names need to be right."""
    assert ModelSource("smollm2", lora="none").adapter() is None
    source = ModelSource("smollm2", threads=1)
    assert source.adapter() == SMOLLM2_ADAPTER
    tools = [
        *(
            Tool(name, about, args={"type": "object", "properties": properties, "required": [*properties]})
            for (name, about), properties in BIKES.items()
        ),
        FINAL_ANSWER,
    ]
    system: Message = {"role": "system", "content": system_prompt(tools)}
    grammar = compile_pool(tools, final_answer=False)
    right = 0
    with source.open() as backend:
        for request, name in CALLED.items():
            evidence = gather_evidence(request, tools[:-1])
            messages: list[Message] = [system, {"role": "user", "content": request}]
            asked = Request(messages, grammar, max_tokens=100, evidence=evidence)
            call = json.loads(backend.complete(asked).text)
            right += call["name"] == name
            if "Mill Lane" in request:
                assert call["arguments"] == {"station": "Mill Lane", "minutes": 45}
    assert right >= len(CALLED) - 1
