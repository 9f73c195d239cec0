"""`gbnf serve`: a gateway for clients of OpenAI's and Anthropic's APIs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gbnf_server.cli.default_model import choose_model, model_for_other_tools
from gbnf_server.cli.model_options import (
    ApproveAllOption,
    EvidenceOption,
    ModelOptions,
    ModelSource,
    RunLimits,
    WorkspaceOption,
)
from gbnf_server.cli.output import say, write
from gbnf_server.cli.tool_options import ToolSources
from gbnf_server.llama.api_keys import fits_header
from gbnf_server.system.addresses import is_loopback
from gbnf_server.system.errors import BackendError, BackendUnreachableError, ServerResponseError

if TYPE_CHECKING:
    from gbnf_server.backends.base import Backend
    from gbnf_server.backends.upstreams import Upstream, Upstreams
    from gbnf_server.gateway.gateway import Answers, Gateway
    from gbnf_server.planner import PlannerOptions
    from gbnf_server.web.access import Access

_BATCHING = 64  # places on a server that batches requests
_OF_AGENT = {"manifests": "--manifests", "tools": "--tools", "mcp": "--mcp", "yes": "--yes"}


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Where the server listens, and who may send requests."""

    host: Annotated[str, "Address to listen on."] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535), "TCP port; 0: any free port."] = 8000
    api_key: Annotated[
        list[str] | None,
        typer.Option(envvar="GBNF_API_KEYS"),
        "API key that clients must send; repeatable. Required for a --host other than this machine.",
    ] = None
    api_key_file: Annotated[Path | None, "FILE", "File of API keys, one on each line."] = None
    allowed_host: Annotated[
        list[str] | None, "NAME", "Name under which clients reach the server; repeatable."
    ] = None
    cors: Annotated[
        list[str] | None, "ORIGIN", "Origin of web pages that may send requests; *: any; repeatable."
    ] = None

    def access(self) -> Access:
        """Return who may send requests.

        Raises BadParameter for the API keys, also if there are none where other machines can ask.
        """
        from gbnf_server.web.access import Access

        keys = list(self.api_key or ())
        if (file := self.api_key_file) is not None:
            try:
                keys += file.read_text("utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "it is not UTF-8"
                raise typer.BadParameter(
                    f"{file} cannot be read: {reason}", param_hint="--api-key-file"
                ) from None
        keys = [key.strip() for key in keys if key.strip()]
        problem, option = "", "--api-key"
        if not all(map(fits_header, keys)):
            problem = "a key must be printable ASCII: it is sent in a header"
        elif not keys and (self.api_key or file is not None):
            problem, option = "there is no key in it", "--api-key-file" if file else option
        elif not keys and not is_loopback(self.host):
            problem, option = f"{self.host} is reachable from other machines: give --api-key", "--host"
        if problem:
            raise typer.BadParameter(problem, param_hint=option)
        return Access.of(self.host, keys, self.allowed_host or (), self.cors or ())


@dataclass(frozen=True, slots=True)
class UpstreamOptions(ModelOptions):
    """The model, in this process or on servers, and how many answers it makes at a time."""

    server: Annotated[list[str] | None, "URL", "Running server of the model: see --backend; repeatable."] = (
        None
    )
    server_api_key: Annotated[str | None, typer.Option(envvar="LLAMA_API_KEY"), "API key for --server."] = (
        None
    )
    parallel: Annotated[
        int | None,
        typer.Option(min=1),
        (
            "Answers at a time, on each server. Default: in process 1, the slots of a llama-server, "
            f"otherwise {_BATCHING}."
        ),
    ] = None
    deterministic: Annotated[
        bool,
        (
            "Give a request the same answer whatever else is served, at temperature 0 or with a seed. "
            "In process; slower: evaluates one answer at a time and reuses no cached prompt."
        ),
    ] = False

    def sources(self) -> list[ModelSource]:
        """Return the model, or the model on each server. Raises BadParameter and ModelLoadError."""
        options = {option.name: getattr(self, option.name) for option in fields(ModelOptions)}
        base = ModelSource(**options, api_key=self.server_api_key)
        sources = [replace(base, server=url) for url in self.server or ()] or [base]
        for source in sources:
            source.check()
            if self.deterministic and source.backend_name != "in-process":
                raise typer.BadParameter("it is for a model in process", param_hint="--deterministic")
        return sources

    @contextmanager
    def open(self, sources: Sequence[ModelSource]) -> Iterator[Upstreams]:
        """Open the backends of all sources. Raises BackendError if none answers."""
        from gbnf_server.backends.upstreams import Upstream, Upstreams

        faults: list[BackendError] = []
        opened: list[Upstream] = []
        with ExitStack() as stack:
            for source in sources:
                opening = source.open(parallel=self.parallel or 1, deterministic=self.deterministic)
                backend = stack.enter_context(opening)
                upstream = Upstream(backend, self.parallel or _BATCHING)
                opened.append(upstream)
                try:
                    upstream.places = self.parallel or _places(source, backend)
                except BackendError as error:
                    upstream.healthy = False
                    faults.append(error)
            if len(faults) == len(sources):
                raise faults[0]
            yield Upstreams(opened)


@dataclass(frozen=True, slots=True)
class AnsweringOptions:
    """How requests are answered, and what of them is kept."""

    retry: Annotated[int, typer.Option(min=0), "Times to ask a server again that ignored the grammar."] = 0
    no_repeat: Annotated[
        int | None,
        typer.Option(min=1),
        "N",
        "Exclude calls that failed N times with the same arguments. Default: x_gbnf reports them.",
    ] = None
    share_cache: Annotated[
        bool, "Share the prompt cache between API keys: faster, but a key can find out others' prompts."
    ] = False
    verbatim: Annotated[
        bool,
        (
            "Keep Claude Code's billing header in its prompts, which differs in each request, so that "
            "nothing of them is found in a cache."
        ),
    ] = False
    store: Annotated[
        str,
        "FILE|URL",
        (
            "Where responses of /v1/responses are kept, for several gateways: a file for SQLite, or a "
            "postgresql:// URL. Default: in memory."
        ),
    ] = ""
    log_requests: Annotated[bool, "Log the texts of requests and answers."] = False
    call_format: Annotated[
        Literal["native", "json", "text"] | None,
        (
            "How the model writes calls: as its chat template does (default if that has tools) or as "
            "JSON, both constrained by a grammar, or as text tool calls in any common syntax."
        ),
    ] = None
    evidence: EvidenceOption = None

    def gateway(self, upstreams: Upstreams, agents: Mapping[str, Answers], limits: RunLimits) -> Gateway:
        """Return the gateway to servers; requests to a model of `agents` are answered by that."""
        from gbnf_server.gateway.engine import Engine
        from gbnf_server.gateway.gateway import Gateway

        return Gateway(
            Engine(
                retries=self.retry,
                no_repeat=self.no_repeat,
                evidence=self.evidence or "all",
                call_format=self.call_format,
                hints=not limits.no_hints,
                max_depth=limits.max_depth,
            ),
            upstreams,
            model=_model_name(upstreams.first.backend),
            agents=agents,
            verbatim=self.verbatim,
            store=self.store,
            log_contents=self.log_requests,
            shares_cache=self.share_cache,
        )


def serve(
    context: typer.Context,
    *,
    model_options: UpstreamOptions,
    clients: ClientOptions,
    answering: AnsweringOptions,
    agent: Annotated[bool, "Offer the model `planner`, which runs tools of this machine."] = False,
    tools: ToolSources,
    workspace: WorkspaceOption = Path("gbnf-workspace"),
    yes: ApproveAllOption = False,
    limits: RunLimits,
) -> None:
    """Serve a model to clients of the OpenAI and Anthropic APIs, with calls that a grammar constrains.

    Print the URL when ready. Each call names a tool of its request and fits its schema; the answer's field
    x_gbnf says what is enforced. Log one line of JSON per request to stderr. At SIGTERM or Ctrl-C, finish
    the running answers. With --agent, a client that asks for the model `planner` gets the answer of a run
    over the tools of --manifests, --tools and --mcp; those that require approval are refused without --yes.

    \b
    Try:
      gbnf serve --model Qwen3-4B-Q4_K_M.gguf
      gbnf serve --server http://127.0.0.1:8080
      gbnf serve --backend vllm --server http://gpu-1:8000 --server http://gpu-2:8000
      gbnf serve --host 0.0.0.0 --api-key-file keys.txt
      gbnf serve --agent --manifests my-tools/ --mcp "npx -y @modelcontextprotocol/server-memory"
    """
    access = clients.access()
    if not agent:
        _refuse_options_of_agent(context)
    sources = model_options.sources()
    from gbnf_server.gateway.proxying import PassThrough
    from gbnf_server.gateway.serving import GatewayServer, end_process_after
    from gbnf_server.web.http_server import listen, url_of
    from gbnf_server.web.logs import log_to_stderr

    with ExitStack() as stack:
        if agent:
            sources[0], agents = stack.enter_context(
                _open_agent(sources[0], tools, limits.planner_options(), workspace, approve_all=yes)
            )
        else:
            sources[0], agents = model_for_other_tools(sources[0]), {}
        upstreams = stack.enter_context(model_options.open(sources))
        gateway = answering.gateway(upstreams, agents, limits)
        passed = None
        if sources[0].backend_name == "llama-server":
            passed = PassThrough(lambda: upstreams.first.backend.url, sources[0].api_key)  # type: ignore[attr-defined]  # a LlamaServer has it
        serving = GatewayServer(gateway, access, passed, end_process_after)
        listening = stack.enter_context(listen(clients.host, clients.port))
        url = url_of(clients.host, listening)
        write(url)
        api_key = "the API key" if access.keys else "any"
        say(
            f"model: {', '.join(gateway.models)}; {_enforcement(upstreams)}\n"
            f'try: OpenAI(base_url="{url}/v1", api_key="{api_key}"), or ANTHROPIC_BASE_URL={url}\n'
            "ready; press Ctrl-C to stop"
        )
        log_to_stderr()
        serving.run(sockets=[listening])
        say("stopped")


def _refuse_options_of_agent(context: typer.Context) -> None:
    """Raise BadParameter for an option of the command line that is for --agent."""
    for name, option in _OF_AGENT.items():
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter("it is for --agent: other requests bring their tools", param_hint=option)


def _places(source: ModelSource, backend: Backend) -> int:
    """Return how many answers a backend makes at a time; asks a server. Raises BackendError."""
    if source.backend_name in {"in-process", "llama-server"}:
        return backend.info().slots
    try:
        backend.context_length()
    except (BackendUnreachableError, ServerResponseError):
        raise
    except BackendError:
        pass  # it answers, and does not report its context
    return _BATCHING


def _model_name(backend: Backend) -> str:
    from gbnf_server.backends.openai_compatible import OpenAICompatible

    return (
        backend.model_name() if isinstance(backend, OpenAICompatible) else backend.info().name or backend.name
    )


def _enforcement(upstreams: Upstreams) -> str:
    """Return what the answers are constrained by, in a sentence for the person who starts the server."""
    match upstreams.dialect:
        case "gbnf":
            return "calls and JSON are constrained by a grammar, and verified"
        case "json_schema":
            return "calls and JSON are constrained by a JSON Schema, and verified"
        case "none":
            return "this server takes no grammar: calls are validated, but not constrained"


@contextmanager
def _open_agent(
    source: ModelSource, tools: ToolSources, options: PlannerOptions, workspace: Path, *, approve_all: bool
) -> Iterator[tuple[ModelSource, dict[str, Answers]]]:
    """Return the model for the tools, and the planner as a model, while its MCP servers run."""
    from gbnf_server.executors import AbsentPerson, Context, Workspace
    from gbnf_server.gateway.agent import MODEL_NAME, PlannerAgent

    with tools.open() as loaded:
        source, pool, _ = choose_model(source, loaded)
        context = Context(Workspace(workspace), person=AbsentPerson(approve_all=approve_all))
        yield source, {MODEL_NAME: PlannerAgent(pool, options, context)}
