"""The model that a command line names, on any backend, and what tells it apart."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that the others start quickly

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

import typer

if TYPE_CHECKING:
    from gbnf.prompts.messages import PromptStyle
    from gbnf_server.backends.base import Backend
    from gbnf_server.backends.llama_server import LlamaServer
    from gbnf_server.planner.profiles import ModelKey


class BackendName(StrEnum):
    """Where a model runs."""

    IN_PROCESS = "in-process"
    LLAMA_SERVER = "llama-server"
    OLLAMA = "ollama"
    VLLM = "vllm"
    VLLM_OLD = "vllm-old"
    SGLANG = "sglang"
    LM_STUDIO = "lm-studio"
    OPENAI = "openai"


class PromptStyleChoice(StrEnum):
    """How tools are shown; see docs/calls.md."""

    MINIMAL = "minimal"
    DEFAULT = "default"
    SKELETON = "skeleton"
    PLACEHOLDER = "placeholder"
    VERBOSE = "verbose"


class ReasoningChoice(StrEnum):
    """Whether the model thinks before a call; see docs/calls.md."""

    OFF = "off"
    FIELD = "field"
    FREE = "free"


# The options that name a model.
ModelOption: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="F.gguf|NAME", help="A model file, or with --backend the server's name for it."),
]
ServerOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="URL", help="A server that is running: llama-server, or --backend.")
]
BackendOption: TypeAlias = Annotated[
    BackendName | None, typer.Option(help="What the server is; in-process, or llama-server with --server.")
]
ApiKeyOption: TypeAlias = Annotated[
    str | None, typer.Option(envvar="LLAMA_API_KEY", help="What the server wants to be shown.")
]
ContextSizeOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Length of the context in tokens. When absent: in process the model's own, up to 8192; 8192 "
        "with ollama; elsewhere what the server tells. A llama-server has the one it was started with.",
    ),
]


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no temperature: give a number, 0 or above")
    return value


# The options that say how a model's tokens are chosen.
TemperatureOption: TypeAlias = Annotated[float, typer.Option(min=0, callback=_finite, help="0 is greedy.")]
LAST_SEED = 2**32 - 1
SeedOption: TypeAlias = Annotated[
    int, typer.Option(min=-1, max=LAST_SEED, help="For a temperature above 0; -1 is another each time.")
]


@dataclass(frozen=True, slots=True)
class ModelSource:
    """What the command line says. `model` is a file in process, else the server's name for it."""

    model: str | None = None
    server: str | None = None
    api_key: str | None = None
    backend: BackendName | None = None
    context: int | None = None

    @property
    def backend_name(self) -> BackendName:
        return self.backend or (BackendName.IN_PROCESS if self.server is None else BackendName.LLAMA_SERVER)

    def check(self) -> None:
        """Raises BadParameter where the options don't go together, or the key can't be sent."""
        if self.api_key and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise typer.BadParameter("--api-key goes into a header, which takes printable ASCII only")
        if self.context is not None and self.backend_name is BackendName.LLAMA_SERVER:
            raise typer.BadParameter(
                "a llama-server has the context that it was started with: leave --context out here, "
                "and give it to `gbnf server start`"
            )
        match self.backend_name:
            case BackendName.IN_PROCESS | BackendName.LLAMA_SERVER if self.backend is None:
                if self.model is not None and self.server is not None:
                    raise typer.BadParameter("give --model or --server, not both")
            case BackendName.IN_PROCESS:
                if self.server is not None:
                    raise typer.BadParameter("--server goes with another --backend")
            case BackendName.LLAMA_SERVER:
                if self.model is not None:
                    raise typer.BadParameter("a llama-server has one model: leave --model out")
            case BackendName.OLLAMA:
                if self.model is None:
                    raise typer.BadParameter("--backend ollama needs --model NAME")
            case _:
                if self.server is None:
                    raise typer.BadParameter(f"--backend {self.backend_name} needs --server URL")

    def key(self) -> ModelKey:
        """What tells the model apart; asks a llama-server."""
        from gbnf_server.planner.profiles import ModelKey

        match self.backend_name:
            case BackendName.IN_PROCESS:
                path = self.path()
                return ModelKey(path.name, path.stat().st_size if path.is_file() else None)
            case BackendName.LLAMA_SERVER:
                with self._llama_server() as server:
                    return ModelKey(server.model_name)
            case _:
                return ModelKey(self.model or f"the model at {self.server}")

    def path(self) -> Path:
        """The model's file, the embedded one where none is named."""
        from gbnf_server.demo_model import model_path

        return model_path() if self.model is None else Path(self.model)

    def open(self, style: str | None = None, *, parallel: int = 1) -> Backend:
        """The backend. `style` None: as the backend chooses. `parallel`: calls at a time, in this process."""
        shown = cast("PromptStyle | None", style)
        match self.backend_name:
            case BackendName.IN_PROCESS:
                from gbnf_server.backends.in_process import InProcess

                return InProcess(
                    self.path(),
                    context_length=self.context,
                    prompt_style=shown,
                    parallel=parallel,
                )
            case BackendName.LLAMA_SERVER:
                return self._llama_server(shown)
            case BackendName.OLLAMA:
                from gbnf_server.backends.ollama import Ollama

                assert self.model is not None
                return Ollama(
                    self.model,
                    self.server or "http://127.0.0.1:11434",
                    context_length=self.context or 8192,
                    api_key=self.api_key,
                    prompt_style=shown,
                )
            case backend_name:
                from gbnf_server.backends.openai_compatible import OpenAICompatible, ServerKind

                assert self.server is not None
                kind = "plain" if backend_name is BackendName.OPENAI else backend_name.value.replace("-", "_")
                return OpenAICompatible(
                    self.server,
                    cast("ServerKind", kind),
                    model=self.model,
                    context_length=self.context,
                    api_key=self.api_key,
                    prompt_style=shown or "full",
                )

    def facts(self, backend: Backend) -> dict[str, Any]:
        """What is known of the model behind the backend; asks a llama-server."""
        from gbnf_server.evaluation.metadata import (  # a bench's header says the same
            describe_model_file,
            describe_server_model,
        )

        match self.backend_name:
            case BackendName.IN_PROCESS:
                return describe_model_file(self.path(), backend)
            case BackendName.LLAMA_SERVER:
                return describe_server_model(self._url, self.api_key, backend)
            case _:
                return {"name": backend.name}

    @property
    def _url(self) -> str:
        return self.server or "http://127.0.0.1:8080"

    def _llama_server(self, style: PromptStyle | None = None) -> LlamaServer:
        from gbnf_server.backends.llama_server import LlamaServer

        return LlamaServer(self._url, api_key=self.api_key, prompt_style=style)


def open_backend(
    model: Path | None, server: str | None, api_key: str | None
) -> tuple[Backend, Callable[[], dict[str, Any]]]:
    """A model file or a llama-server, and what tells its model apart."""
    source = ModelSource(None if model is None else str(model), server, api_key)
    backend = source.open()
    return backend, lambda: source.facts(backend)
