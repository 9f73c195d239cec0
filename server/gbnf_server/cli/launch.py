"""`gbnf launch`: a coding agent or another client on a local model, configured for this run only."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gbnf_server.cli.default_model import model_for_other_tools
from gbnf_server.cli.model_options import RunLimits
from gbnf_server.cli.output import say, write
from gbnf_server.cli.serve import AnsweringOptions, UpstreamOptions

if TYPE_CHECKING:
    from gbnf_server.gateway.gateway import Gateway

_CONTEXT = 32768
"""Tokens, in process: the first prompts of these clients have 6,000 to 76,000 characters."""
_PRINTED_URL, _PRINTED_FOLDER = "http://127.0.0.1:PORT", Path("FOLDER")
_LONGEST_OUTPUT = 4096
_KEY = "local"  # the gateway needs none; the clients refuse to start without one


@dataclass(frozen=True, slots=True)
class _Launch:
    """What a client is started with: arguments, variables, and files by their paths in this run's folder."""

    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Client:
    """A client: how it is installed, and what it is started with (URL, tokens of the context, folder)."""

    install: str
    configure: Callable[[str, int, Path], _Launch]


def _claude(url: str, context: int, folder: Path) -> _Launch:
    del context, folder
    environment = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": _KEY,
        "ANTHROPIC_SMALL_FAST_MODEL": "local",
        "API_TIMEOUT_MS": "3600000",  # a long first prompt is read for minutes
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    return _Launch(("--model", "local"), environment)


def _codex(url: str, context: int, folder: Path) -> _Launch:
    del folder
    settings = {
        "model": "local",
        "model_provider": "gbnf",
        "model_context_window": context,
        "model_providers.gbnf.name": "gbnf",
        "model_providers.gbnf.base_url": f"{url}/v1",
        "model_providers.gbnf.wire_api": "responses",
    }
    return _Launch(
        tuple(part for key, value in settings.items() for part in ("-c", f"{key}={json.dumps(value)}"))
    )


def _opencode(url: str, context: int, folder: Path) -> _Launch:
    model = {"name": "local", "tool_call": True, "limit": {"context": context, "output": _LONGEST_OUTPUT}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "gbnf",
        "options": {"baseURL": f"{url}/v1", "apiKey": _KEY},
        "models": {"local": model},
    }
    config = {"model": "gbnf/local", "small_model": "gbnf/local", "provider": {"gbnf": provider}}
    path = folder / "opencode.json"
    return _Launch((), {"OPENCODE_CONFIG": str(path)}, {path.name: json.dumps(config, indent=2)})


def _qwen(url: str, context: int, folder: Path) -> _Launch:
    del context, folder
    return _Launch(
        ("--auth-type", "openai"),
        {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": _KEY, "OPENAI_MODEL": "local"},
    )


def _cline(url: str, context: int, folder: Path) -> _Launch:
    provider = {"provider": "openai-compatible", "apiKey": _KEY, "model": "local", "baseUrl": f"{url}/v1"}
    del context
    settings = {
        "version": 1,
        "lastUsedProvider": "openai-compatible",
        "providers": {"openai-compatible": {"settings": provider, "tokenSource": "manual"}},
    }
    return _Launch(
        ("--data-dir", str(folder)), {}, {"settings/providers.json": json.dumps(settings, indent=2)}
    )


def _pi(url: str, context: int, folder: Path) -> _Launch:
    model = {
        "id": "local", "name": "local", "reasoning": False, "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": context, "maxTokens": _LONGEST_OUTPUT,
        "compat": {"supportsDeveloperRole": False},
    }  # fmt: skip
    provider = {"baseUrl": f"{url}/v1", "apiKey": _KEY, "api": "openai-completions", "models": [model]}
    extension = f'export default (pi) => pi.registerProvider("gbnf", {json.dumps(provider, indent=2)});\n'
    path = folder / "gbnf.ts"
    return _Launch(("-e", str(path), "--provider", "gbnf", "--model", "local"), {}, {path.name: extension})


def _continue(url: str, context: int, folder: Path) -> _Launch:
    model = {
        "name": "local", "provider": "openai", "model": "local", "apiBase": f"{url}/v1", "apiKey": _KEY,
        "capabilities": ["tool_use"], "roles": ["chat"],
        "defaultCompletionOptions": {"contextLength": context, "maxTokens": _LONGEST_OUTPUT},
    }  # fmt: skip
    config = {"name": "local", "version": "1.0.0", "schema": "v1", "models": [model]}
    path = folder / "config.yaml"
    return _Launch(("--config", str(path)), {}, {path.name: json.dumps(config, indent=2)})  # JSON is YAML


def _llm(url: str, context: int, folder: Path) -> _Launch:
    del context
    model = {
        "model_id": "local", "model_name": "local", "api_base": f"{url}/v1", "api_key_name": "gbnf",
        "supports_tools": True, "supports_schema": True,
    }  # fmt: skip
    files = {
        "extra-openai-models.yaml": json.dumps([model]),
        "default_model.txt": "local",
        "keys.json": json.dumps({"gbnf": _KEY}),
    }
    return _Launch((), {"LLM_USER_PATH": str(folder)}, files)


_CLIENTS: Mapping[str, _Client] = {
    "claude": _Client("npm install -g @anthropic-ai/claude-code", _claude),
    "codex": _Client("npm install -g @openai/codex", _codex),
    "opencode": _Client("npm install -g opencode-ai", _opencode),
    "qwen": _Client("npm install -g @qwen-code/qwen-code", _qwen),
    "cline": _Client("npm install -g cline", _cline),
    "pi": _Client("npm install -g @mariozechner/pi-coding-agent", _pi),
    "cn": _Client("npm install -g @continuedev/cli", _continue),
    "llm": _Client("pip install llm", _llm),
}


def _known_client(name: str) -> str:
    if name not in _CLIENTS:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(_CLIENTS)}")
    return name


def launch(
    client: Annotated[
        str,
        typer.Argument(metavar="|".join(_CLIENTS), callback=_known_client, help="Client to start."),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENT]...", help="Arguments of the client, after --.")
    ] = None,
    *,
    model_options: UpstreamOptions,
    print_: Annotated[
        bool, "Print the environment, the files and the command of the client, and start nothing."
    ] = False,
) -> None:
    """Start a client on a local model: the gateway, the client with its configuration, and both end together.

    The configuration is in variables, arguments and a temporary folder: the client's own files stay as they
    are, and it keeps its other settings. In process, the context has 32768 tokens unless --ctx-size says
    otherwise, since such clients send long instructions. The exit status is the client's.

    \b
    Try:
      gbnf launch claude --model Qwen3-4B-Q4_K_M.gguf
      gbnf launch codex --server http://127.0.0.1:8080 -- exec "list the files here"
      gbnf launch opencode --print
    """
    chosen = _CLIENTS[client]
    if print_:
        context_length = model_options.context_size or _CONTEXT
        write(
            _as_shell(
                client, arguments or (), chosen.configure(_PRINTED_URL, context_length, _PRINTED_FOLDER)
            )
        )
        return
    program = shutil.which(client)
    if program is None:
        raise typer.BadParameter(f"{client} is not installed: {chosen.install}", param_hint="CLIENT")
    sources = model_options.sources()
    sources[0] = model_for_other_tools(sources[0])
    if sources[0].backend_name == "in-process" and (sources[0].hf or Path(sources[0].model or "").is_file()):
        sources = [replace(source, context_size=source.context_size or _CONTEXT) for source in sources]
    with ExitStack() as stack:
        upstreams = stack.enter_context(model_options.open(sources))
        gateway = AnsweringOptions().gateway(upstreams, {}, RunLimits())
        url = stack.enter_context(_serving(gateway))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gbnf-launch-")))
        configured = chosen.configure(url, upstreams.first.backend.context_length(), folder)
        for name, text in configured.files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, "utf-8")
        say(f"model: {', '.join(gateway.models)}, at {url}")
        status = _run_client([program, *configured.arguments, *(arguments or ())], configured.environment)
    raise typer.Exit(status)


@contextmanager
def _serving(gateway: Gateway) -> Iterator[str]:
    """Serve a gateway from a thread, at any free port of this machine; yield its URL."""
    from gbnf_server.gateway.serving import GatewayServer
    from gbnf_server.web.access import Access
    from gbnf_server.web.http_server import listen, url_of

    host = "127.0.0.1"
    with listen(host, 0) as listening:
        server = GatewayServer(gateway, Access.of(host))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield url_of(host, listening)
        finally:
            server.should_exit = True  # nobody reads the answers any more
            thread.join()


def _run_client(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a client at this terminal; return its exit status, as a shell would report it.

    Ctrl-C is the client's: many end an answer by it and go on. SIGTERM is passed on to it.
    """
    with subprocess.Popen(command, env={**os.environ, **environment}) as client:  # noqa: S603  # the client
        handlers = {signal.SIGINT: lambda *_: None, signal.SIGTERM: lambda *_: client.terminate()}
        earlier = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            status = client.wait()
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)
    return 128 - status if status < 0 else status


def _as_shell(client: str, arguments: Sequence[str], configured: _Launch) -> str:
    """Return what `launch` does, as lines for a shell; the port and the folder are placeholders."""
    files = [f"# {_PRINTED_FOLDER / name}\n{text}\n" for name, text in configured.files.items()]
    variables = [f"{name}={shlex.quote(value)} \\\n" for name, value in configured.environment.items()]
    return "".join([*files, *variables, shlex.join([client, *configured.arguments, *arguments])])
