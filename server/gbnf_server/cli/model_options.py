"""Options that several commands share, and the model that a command line names."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, cast

import typer

from gbnf_server.llama.api_keys import fits_header
from gbnf_server.system.model_files import SMOLLM2, check_gguf, download_model, model_files

if TYPE_CHECKING:
    from gbnf.prompts.messages import PromptStyle
    from gbnf.tool_formats import ToolFormat
    from gbnf_server.backends.base import Backend
    from gbnf_server.inspect.grammar_choice import GrammarChoice
    from gbnf_server.planner import PlannerOptions
    from gbnf_server.planner.profiles import ModelKey


BackendName: TypeAlias = Literal[
    "in-process", "llama-server", "ollama", "vllm", "sglang", "lm-studio", "openai"
]
"""Where a model runs."""

# Options that select a model.
ModelOption: TypeAlias = Annotated[
    str | None,
    "F.gguf|NAME",
    ("Model file, or smollm2, downloaded once (98 MB); with --backend, the server's name for the model."),
]
HfOption: TypeAlias = Annotated[
    str | None,
    "REPO[:QUANT]",
    "Model on Hugging Face, downloaded once: OWNER/REPOSITORY, and a quantization. Default: Q4_K_M.",
]
ApiKeyOption: TypeAlias = Annotated[
    str | None, typer.Option(envvar="LLAMA_API_KEY"), "API key for the server."
]
ThreadsOption: TypeAlias = Annotated[
    int | None, typer.Option(min=1), "CPU threads, in process. Default: see `gbnf doctor`."
]
LoraOption: TypeAlias = Annotated[
    str | None, "F.gguf|none", "LoRA adapter for the model. Default: for smollm2, the bundled one."
]
VocabOption: TypeAlias = Annotated[
    str | None, "F.gguf|NAME", "Model, or smollm2, whose vocabulary llama.cpp uses. Default: the bundled one."
]
EvidenceOption: TypeAlias = Annotated[
    Literal["all", "values", "arguments", "none"] | None,
    "Favor what the request supports, in JSON calls in process. Default: all.",
]

# What tools may do.
WorkspaceOption: TypeAlias = Annotated[Path, "DIR", "Folder that tools are confined to; created if missing."]
ApproveAllOption: TypeAlias = Annotated[
    bool, typer.Option("--yes", "-y"), "Approve every call that requires approval."
]

ConfirmBelowOption: TypeAlias = Annotated[
    float,
    typer.Option(min=0, max=1),
    "P",
    "Ask before a call of which a name, enum value, boolean or number is less probable than P.",
]

# Options of a run, and of its output.
StyleOption: TypeAlias = Annotated[
    Literal["minimal", "default", "skeleton", "placeholder", "verbose"] | None,
    "How the prompt describes the tools.",
]
LanguageOption: TypeAlias = Annotated[str, "Language of the tool descriptions."]
MaxToolsOption: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1),
    (
        "Offer the tools that fit the request best, at most this many. find_tools adds others. Default: "
        "16, or for a model of less than a billion parameters at most 8."
    ),
]
MaxTokensOption: TypeAlias = Annotated[int, typer.Option(min=1), "Maximum tokens of a call."]
MarkdownOption: TypeAlias = Annotated[bool, "Print the table as Markdown."]
VerboseOption: TypeAlias = Annotated[
    bool, typer.Option("--verbose", "-v"), "Show what tools print, and the traceback of an exception."
]
QuietOption: TypeAlias = Annotated[bool, typer.Option("--quiet", "-q"), "Show no progress."]


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a valid temperature: use a finite number of at least 0")
    return value


# Options of the sampler.
TemperatureOption: TypeAlias = Annotated[
    float, typer.Option(min=0, callback=_finite), "Sampling temperature; 0 is greedy."
]
LAST_SEED = 2**32 - 1
SeedOption: TypeAlias = Annotated[
    int, typer.Option(min=-1, max=LAST_SEED), "Seed for a temperature above 0; -1: random."
]


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How each call of the model is generated."""

    max_tokens: MaxTokensOption = 512
    temperature: TemperatureOption = 0.0
    seed: SeedOption = 0
    clamp: Annotated[
        bool, "Move out-of-range numbers to the nearest bound, in calls that no GBNF constrains."
    ] = False


@dataclass(frozen=True, slots=True)
class GrammarOptions:
    """How tools, or a JSON Schema, are compiled."""

    whitespace: Annotated[
        Literal["default", "compact", "spaced", "free"],
        "Whitespace in the JSON. Default: at most one space after , and :.",
    ] = "default"
    property_order: Annotated[
        Literal["declared", "any"],
        "Order of the properties in objects, as `property_order` of `compile_schema`.",
    ] = "any"
    max_depth: Annotated[
        int | None,
        typer.Option(min=0),
        "Depth below which values may be any JSON. Default: 4 for tools, no limit for a JSON Schema.",
    ] = None
    open_: Annotated[
        bool,
        (
            "Allow properties that the schema does not declare, as JSON Schema does. Default: only "
            "where it has additionalProperties, as in a call."
        ),
    ] = False

    def choice(self, tool_format: ToolFormat | None = None) -> GrammarChoice:
        """Return which grammar that is. `tool_format`: the syntax of calls, None for JSON."""
        from gbnf_server.inspect.grammar_choice import GrammarChoice

        return GrammarChoice(
            self.whitespace, self.property_order, self.max_depth, not self.open_, tool_format
        )


@dataclass(frozen=True, slots=True)
class RunLimits:
    """When a run ends, and its language."""

    language: Annotated[str, "Language of the tool descriptions; auto: that of the request."] = "auto"
    max_steps: Annotated[int, typer.Option(min=1), "Maximum steps of a run, including the answer."] = 12
    max_seconds: Annotated[float, typer.Option(min=0), "Maximum seconds of a run; 0 for no limit."] = 300
    max_depth: Annotated[int, typer.Option(min=0), "Depth below which arguments may be any JSON."] = 4
    no_hints: Annotated[bool, "Treat a small model like a large one: show all, end nothing."] = False

    def planner_options(self, sampling: SamplingOptions | None = None, **fields: Any) -> PlannerOptions:
        """Return the options of a planner: these, those of `sampling`, and `fields`."""
        from gbnf_server.cli.config import configured_providers
        from gbnf_server.planner import PlannerOptions

        options = {**asdict(self), **asdict(sampling or SamplingOptions()), **fields}
        for name in [name for name in options if name.startswith("no_")]:
            options[name.removeprefix("no_")] = not options.pop(name)
        required, terminal = (tuple(options.pop(name, None) or ()) for name in ("require", "terminal"))
        options["max_seconds"] = options["max_seconds"] or None
        providers = configured_providers()
        return PlannerOptions(**options, required=required, terminal=terminal, providers=providers)


@dataclass(frozen=True, slots=True)
class PlanningOptions(RunLimits):
    """When a run ends, and what it needs."""

    require: Annotated[
        list[str] | None,
        "TOOL",
        "Tool that must succeed before a run may be answered; repeatable. '*': any tool.",
    ] = None
    terminal: Annotated[
        list[str] | None, "TOOL", "Tool that ends a run: its result is the answer; repeatable."
    ] = None
    no_compact: Annotated[bool, "Never shorten old results and steps to fit the model's context."] = False
    confirm_below: ConfirmBelowOption = 0.0


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """What `gbnf run` prints: the answer, or JSON, at the end or while it is generated; what it records.

    `hints`: whether to say which options of `gbnf run` would help a run without an answer.
    """

    json: Annotated[bool, "Print the run and its events as one JSON object."] = False
    stream: Annotated[bool, "Print the answer as it is generated; with --json, each event on a line."] = False
    record: Annotated[
        Path | None,
        "FILE",
        "Write the run, its events and every call of the model to a file, for `gbnf inspect --run`.",
    ] = None
    quiet: QuietOption = False
    verbose: VerboseOption = False
    hints: bool = True


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """A model, wherever it runs. `gpu_layers` and `threads` apply in process only."""

    model: ModelOption = None
    hf: HfOption = None
    backend: Annotated[
        BackendName | None, "Kind of server. Default: in-process; with --server, llama-server."
    ] = None
    context_size: Annotated[
        int | None,
        typer.Option("--ctx-size", min=1),
        (
            "Context size in tokens. Default: in process that of the model, at most 8192; with ollama "
            "8192; otherwise what the server reports. Not for llama-server, which sets it when it starts."
        ),
    ] = None
    gpu_layers: Annotated[
        int | None,
        typer.Option(min=0),
        "Layers on the GPU, in process. Default: all, if llama-cpp-python was built for one.",
    ] = None
    threads: ThreadsOption = None
    lora: LoraOption = None


@dataclass(frozen=True, slots=True)
class ModelSource(ModelOptions):
    """A model, as options name it: `model` is a file or "smollm2" in process, else the server's name for it.

    `hf`: a model on Hugging Face.
    """

    server: Annotated[str | None, "URL", "Running server: a llama-server, or see --backend."] = None
    api_key: ApiKeyOption = None

    @property
    def backend_name(self) -> BackendName:
        """The backend that the options imply."""
        return self.backend or ("in-process" if self.server is None else "llama-server")

    @property
    def is_demo_model(self) -> bool:
        """Whether no option names a model, so that it is the bundled one."""
        return self.backend_name == "in-process" and self.model is None and self.hf is None

    def check(self) -> None:
        """Raise BadParameter if the options conflict, or the key can't be sent; ModelLoadError for a file."""
        if self.api_key and not fits_header(self.api_key):
            raise typer.BadParameter("--api-key must be printable ASCII: it is sent in a header")
        if self.context_size is not None and self.backend_name == "llama-server":
            raise typer.BadParameter(
                "--ctx-size does not apply to a running llama-server: use it with `gbnf server start`"
            )
        if self.hf is not None and (self.model is not None or self.backend_name != "in-process"):
            raise typer.BadParameter("--hf names a model in process: use it without --model and --server")
        if self.backend_name != "in-process":
            options = {"--gpu-layers": self.gpu_layers, "--threads": self.threads, "--lora": self.lora}
            for option, value in options.items():
                if value not in (None, "none"):
                    prefix = "-- " if option == "--gpu-layers" else ""
                    raise typer.BadParameter(
                        f"{option} applies to a model in process. A llama-server gets it when it starts: "
                        f"gbnf server start {prefix}{option} {value}"
                    )
        has_model, has_server = self.model is not None, self.server is not None
        wrong, problem = {
            None: (has_model and has_server, "use --model or --server, not both"),
            "in-process": (has_server, "--server does not apply to --backend in-process"),
            "llama-server": (has_model, "--model does not apply to a llama-server: it serves one model"),
            "ollama": (not has_model, "--backend ollama requires --model NAME"),
        }.get(self.backend, (not has_server, f"--backend {self.backend} requires --server URL"))
        if wrong:
            raise typer.BadParameter(problem)
        if self.backend_name == "in-process" and self.hf is None:
            if self.model is not None:
                check_gguf(self.path())
            if (adapter := self.adapter()) is not None:
                check_gguf(adapter, "LoRA adapter")

    def key(self) -> ModelKey:
        """Return the key of the model's profile; queries a llama-server."""
        from gbnf_server.planner.profiles import ModelKey

        match self.backend_name:
            case "in-process":
                path, adapter = self.path(), self.adapter()
                parts = [path] if adapter is None else [path, adapter]
                size = sum(part.stat().st_size for part in parts) if all(map(Path.is_file, parts)) else None
                return ModelKey("+".join(part.name for part in parts), size)
            case "llama-server":
                with self.open() as server:
                    return ModelKey(server.info().name)
            case _:
                return ModelKey(self.model or f"the model at {self.server}")

    def path(self) -> Path:
        """Return the model's file; the bundled model by default. Downloads one from Hugging Face once.

        Raises ModelLoadError.
        """
        from gbnf_server.llama.demo_model import model_path

        if self.hf is not None:
            return download_model(self.hf)
        return model_path() if self.model is None else model_files(self.model).path

    def adapter(self) -> Path | None:
        """Return the file of the model's adapter in process, None for the model alone."""
        if self.lora is not None:
            return None if self.lora == "none" else Path(self.lora)
        return None if self.model is None else model_files(self.model).adapter

    def absolute(self) -> ModelSource:
        """Return the source with absolute paths, for processes with other working directories."""
        if self.backend_name != "in-process":
            return self
        model, lora = (
            name if name in (None, "none", SMOLLM2) else str(Path(name).absolute())
            for name in (self.model, self.lora)
        )
        return replace(self, model=model, lora=lora)

    def open(
        self, style: PromptStyle | None = None, *, parallel: int = 1, deterministic: bool = False
    ) -> Backend:
        """Open the backend. `style`: None for its default.

        In process, `parallel` is the number of concurrent calls; `deterministic`: see `InProcess`.
        """
        match self.backend_name:
            case "in-process":
                from gbnf_server.backends.in_process import InProcess

                return InProcess(
                    self.path(),
                    context_length=self.context_size,
                    prompt_style=style,
                    parallel=parallel,
                    deterministic=deterministic,
                    gpu_layers=self.gpu_layers,
                    threads=self.threads,
                    lora=self.adapter(),
                    name=None if self.model is None else model_files(self.model).name,
                )
            case "llama-server":
                from gbnf_server.backends.llama_server import LlamaServer

                return LlamaServer(self.server, api_key=self.api_key, prompt_style=style)
            case "ollama":
                from gbnf_server.backends.ollama import Ollama

                assert self.model is not None
                return Ollama(
                    self.model,
                    self.server or "http://127.0.0.1:11434",
                    context_length=self.context_size or 8192,
                    api_key=self.api_key,
                    prompt_style=style,
                )
            case backend_name:
                from gbnf_server.backends.openai_compatible import OpenAICompatible, ServerKind

                assert self.server is not None
                kind = "plain" if backend_name == "openai" else backend_name.replace("-", "_")
                return OpenAICompatible(
                    self.server,
                    cast("ServerKind", kind),
                    model=self.model,
                    context_length=self.context_size,
                    api_key=self.api_key,
                    prompt_style=style or "full",
                )

    def facts(self, backend: Backend) -> dict[str, Any]:
        """Return what is known of the backend's model, as JSON; queries a llama-server."""
        from gbnf_server.planner.runs.fingerprints import describe_model

        match self.backend_name:
            case "in-process":
                return describe_model(backend, self.path(), self.adapter())
            case "llama-server":
                return describe_model(backend)
            case _:
                return {"name": backend.name}
