"""`gbnf doctor`: what works on this machine, and how to install what does not.

Invariants: llama.cpp is loaded into this process only after a child process has loaded it without crashing;
nothing is changed except the cached result of the CPU probe.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.text import Text

from gbnf.calls import ToolCall, ToolCalls, parse_tool_calls
from gbnf.errors import ToolFormatError, clip
from gbnf.extras import install_command, is_installed
from gbnf.prompts.descriptions import declare_tool
from gbnf.prompts.messages import Message
from gbnf.protocols.readers import looks_like_call
from gbnf.tool_formats import ElementArguments, ToolFormat, detect
from gbnf.tools import Tool
from gbnf_server.backends.base import Request
from gbnf_server.cli.config import find_config_file
from gbnf_server.cli.errors import ExitCode
from gbnf_server.cli.model_options import ModelSource
from gbnf_server.cli.output import escape_line, stdout_console, write
from gbnf_server.llama.cpu_support import REINSTALL, cpu_support, run_cpu_probe
from gbnf_server.llama.prebuilt import prebuilt_library
from gbnf_server.llama.server_build import compiler, find_llama_server, server_command
from gbnf_server.llama.server_process import check_port
from gbnf_server.system.addresses import LLAMA_SERVER_PORT
from gbnf_server.system.cpu_cores import usable_cores
from gbnf_server.system.errors import GbnfServerError, ModelLoadError, SetupError
from gbnf_server.system.folders import CACHE_VARIABLE, PROFILES_VARIABLE, cache_folder, profiles_folder
from gbnf_server.system.model_files import SMOLLM2, SMOLLM2_ADAPTER, has_smollm2, smollm2_path
from gbnf_server.system.processes import describe_exit, run_program

CheckState = Literal["ok", "limited", "broken"]
"""`limited`: something optional is missing or slow; `broken`: something required does not work."""

_LIMIT_S = 60.0  # for a program that prints its version
_GIB = 2**30
_FASTER = f"Compiled, prompts take 0.7 of the time on a CPU with AVX-512: {install_command('compiled')}"
_ALL_OPTIONS = "For speed, GPUs and all options of llama-server: gbnf server install"
_WITH_GPU = f'CMAKE_ARGS="-DGGML_CUDA=on" {REINSTALL} (or GGML_VULKAN, GGML_METAL)'

_CONTEXT, _CALL_TOKENS = 1024, 64
_WEATHER = Tool.from_mapping(
    {
        "name": "get_weather",
        "description": "Get the weather of a city.",
        "args": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
)

_LOAD = """
import json
from gbnf_server.llama.bindings import llama_cpp
print(json.dumps({
    "system": llama_cpp.llama_print_system_info().decode(errors="replace"),
    "offload": bool(llama_cpp.llama_supports_gpu_offload()),
}))
"""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. `fix`: how to improve it, "" if there is nothing to do."""

    name: str
    state: CheckState
    found: str
    fix: str = ""


def doctor(
    model: Annotated[
        str | None, "F.gguf|NAME", "Also check that this model, or smollm2, loads and fits."
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535), "Port to check."] = LLAMA_SERVER_PORT,
    json_: Annotated[bool, "Print one JSON array."] = False,
) -> None:
    """Check this machine: one line per check, with a fix for what is missing.

    Exits with status 4 if something that is needed does not work.
    """
    styles = {"ok": ("✓", "green"), "limited": ("–", "yellow"), "broken": ("✗", "bold red")}
    done = []
    path = None if model is None else ModelSource(model).path()
    for check in checks(path, port=port):
        done.append(check)
        if not json_:
            line = Text.assemble(styles[check.state], f" {check.name:<15} {escape_line(check.found)}")
            if check.fix:
                line.append(f"\n  {'':<15} → {escape_line(check.fix)}", style="bold")
            stdout_console().print(line, soft_wrap=True)
    if json_:
        write(json.dumps([asdict(check) for check in done], ensure_ascii=False, indent=2))
    if any(check.state == "broken" for check in done):
        raise typer.Exit(ExitCode.ENVIRONMENT)


def checks(model: Path | None = None, *, port: int = LLAMA_SERVER_PORT) -> Iterator[Check]:
    """Yield the result of each check. `model`: a GGUF file to check. `port`: for llama-server."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    yield Check("Python", "ok", f"{python} on {platform.system()} {platform.machine()}")
    with suppress(PackageNotFoundError):
        problem = f"gbnf {version('gbnf')} is installed, an unrelated package of the same import name"
        fix = "pip uninstall -y gbnf && pip install --force-reinstall --no-deps gbnf-toolkit"
        yield Check("package gbnf", "broken", problem, fix)
    if is_installed("local"):
        cores = usable_cores()
        threads = f"{cores.count} for a model: {cores.reason}; 1 for a small model"
        yield Check("threads", "ok", threads)
    yield _compiler()
    llama, loaded = _llama()
    yield llama
    if loaded:
        yield _cpu()
        if loaded["offload"]:
            yield Check("GPU offload", "ok", "supported by this build")
        else:
            offload = "none: this build computes on the CPU"
            yield Check("GPU offload", "limited", offload, f"With a GPU: {_WITH_GPU}")
        yield _llama_server()
    if loaded and model is not None:
        yield from _model(model)
    elif loaded:
        yield Check("memory", "ok", f"{_free() / _GIB:.1f} GiB free")
    for name in ("llguidance", "xgrammar"):
        try:
            yield Check(name, "ok", version(name))
        except PackageNotFoundError:
            yield Check(name, "limited", "not installed; optional", f"pip install {name}")
    yield _smollm2()
    yield _port(port)
    config = find_config_file()
    yield Check("configuration", "ok", "no gbnf.toml" if config is None else str(config))
    yield _writable("cache folder", cache_folder(), CACHE_VARIABLE)
    yield _writable("profile folder", profiles_folder(), PROFILES_VARIABLE)


def _compiler() -> Check:
    if program := compiler():
        return Check("C++ compiler", "ok", f"{program}: {_version_of(program)}")
    fix = (
        "xcode-select --install"
        if sys.platform == "darwin"
        else "apt install g++ make (or your system's equivalent)"
    )
    return Check("C++ compiler", "limited", "none; required only to install llama.cpp", fix)


def _llama() -> tuple[Check, dict[str, Any] | None]:
    """Return the check, and the library's description of itself, None if it cannot be loaded."""
    name = "llama.cpp"
    if not is_installed("local"):
        missing = "the packages of the extra local are not installed; required to run models in this process"
        return Check(name, "limited", missing, install_command("run")), None
    installed, fix = "llama-cpp-python", ""
    try:
        if prebuilt_library(os.environ):
            installed, fix = f"prebuilt, xllamacpp {version('xllamacpp')}", _FASTER
        else:
            with suppress(PackageNotFoundError):
                installed += f" {version('llama-cpp-python')}"
        done = run_program([sys.executable, "-P", "-c", _LOAD], _LIMIT_S)
        if done.returncode == 0:
            info: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            return Check(name, "ok", f"{installed}; {_features(info['system'])}", fix), info
        message = (done.stderr.strip().splitlines() or ["no message"])[-1]
        reason = f"the process that loads it {describe_exit(done.returncode)}: {message}"
    except (OSError, ValueError, LookupError, SetupError, subprocess.TimeoutExpired) as error:
        reason = str(error)
    return Check(name, "broken", f"{installed}; {reason}", REINSTALL), None


def _features(system: str) -> str:
    """`CPU : AVX2 = 1 | AVX512 = 1 | REPACK = 1 |` -> `CPU features AVX2 AVX512 REPACK`."""
    parts = (part.rpartition(":")[2].split("=") for part in system.split("|"))
    return "CPU features " + " ".join(
        part[0].strip() for part in parts if len(part) == 2 and part[1].strip() == "1"
    )


def _cpu() -> Check:
    support = cpu_support()
    if not support.repacks and support.computes:
        support, _ = run_cpu_probe()  # the last probe may have failed for a temporary reason
    name = "CPU probe"
    if not support.computes:
        return Check(name, "broken", support.reason, f"Compile llama.cpp on this machine: {REINSTALL}")
    if not support.repacks:
        fix = (
            f"Compile llama.cpp on this machine: {REINSTALL}"
            if prebuilt_library(os.environ)
            else f"A newer compiler (GCC 13 or later) may help: CC=gcc-13 CXX=g++-13 {REINSTALL}"
        )
        return Check(
            name, "limited", f"{support.reason}; weights are not repacked, so some models are slower", fix
        )
    return Check(name, "ok", "computes with every quantization")


def _llama_server() -> Check:
    name = "llama-server"
    try:
        program = find_llama_server()
    except SetupError as error:
        return Check(name, "broken", str(error), "Unset the variable, or correct it.")
    if program is not None:
        return Check(name, "ok", f"{program}: {_version_of(program)}")
    try:
        server_command()
    except SetupError as error:
        return Check(name, "limited", str(error), "gbnf server install")
    return Check(name, "ok", f"prebuilt, xllamacpp {version('xllamacpp')}", _ALL_OPTIONS)


def _model(path: Path) -> Iterator[Check]:
    """Check that the model can be loaded, and fits into memory; find how its template writes tool calls."""
    from gbnf_server.llama.native import NativeModel  # loads llama.cpp

    try:
        model = NativeModel(path, vocab_only=True)
        needed = model.memory_estimate()
    except GbnfServerError as error:
        yield Check("model", "broken", str(error), "Use a complete GGUF file of a language model.")
        return
    memory = (
        f"{model.name} needs about {needed / _GIB:.1f} GiB with a context of {model.default_context} tokens; "
        f"{_free() / _GIB:.1f} GiB free"
    )
    if needed > _free():
        fix = "Use a smaller quantization or --ctx-size, or end other programs."
        yield Check("model", "broken", memory, fix)
    else:
        yield Check("model", "ok", memory)
    template = model.metadata.get("tokenizer.chat_template", "")
    try:
        written = detect(template, bos_token=model.begin_text, eos_token=model.end_text)
    except ToolFormatError as error:
        fix = "Nothing: calls are requested and constrained as JSON."
        yield Check("tool calls", "limited", f"none in the chat template: {error}", fix)
    else:
        yield Check("tool calls", "ok", _describe_format(written))
        if needed <= _free():
            yield from _written_calls(path)


def _written_calls(path: Path) -> Iterator[Check]:
    """Ask a small model for a call without a grammar, to see in which syntax it writes one."""
    from gbnf_server.backends.in_process import InProcess  # loads llama.cpp

    with InProcess(path, context_length=_CONTEXT) as backend:
        model = backend.info().traits
        if model.tool_format is None or not model.is_small(native=True):
            return  # a large one takes long to load, and writes what its template has
        tools = (declare_tool(_WEATHER),)
        question: Message = {"role": "user", "content": "What is the weather in Paris?"}
        text = backend.complete(Request((question,), tools=tools, max_tokens=_CALL_TOKENS)).text
    if model.tool_format.marker.strip() in text:
        yield Check("written calls", "ok", "in the format of its chat template")
    elif looks_like_call(text) or isinstance(parse_tool_calls(text, (_WEATHER,)), ToolCalls):
        written = f"in the text, not in the format of its chat template: {clip(text, 100)!r}"
        fix = "Nothing: they are read as calls here. Other programs show them as text."
        yield Check("written calls", "limited", written, fix)
    else:
        fix = "gbnf run --call-format json, or gbnf tune"
        yield Check(
            "written calls", "limited", f"none for a question about the weather: {clip(text, 100)!r}", fix
        )


def _describe_format(tool_format: ToolFormat) -> str:
    """Return how a call is written, with an example, and what else is known, in one line."""
    arguments = tool_format.arguments
    if isinstance(arguments, ElementArguments):
        written = "one element per argument"
    else:
        written = "arguments as JSON in a string" if arguments.quoted else "arguments as JSON"
    example = tool_format.render([ToolCall("call00001", "create_file", {"path": "notes.md", "count": 2})])
    facts = [written, "several calls" if tool_format.separator is not None else "one call at a time"]
    if tool_format.reasoning is not None:
        facts.append(f"reasoning up to {tool_format.reasoning.end.strip()}")
    return f"{', '.join([*facts, *tool_format.notes])}; for example {example}"


def _smollm2() -> Check:
    if not has_smollm2():
        missing = "not on this machine; optional: a small real model for tools of your own (98 MB)"
        return Check(SMOLLM2, "limited", missing, f"gbnf doctor --model {SMOLLM2}")
    try:
        return Check(SMOLLM2, "ok", f"{smollm2_path()}, with {SMOLLM2_ADAPTER.name}: --model {SMOLLM2}")
    except ModelLoadError as error:
        problem, _, fix = str(error).rpartition(". ")
        return Check(SMOLLM2, "broken", problem, fix)


def _port(port: int) -> Check:
    try:
        check_port(port)
    except SetupError as error:
        return Check("port", "limited", str(error), "gbnf server start --port 0")
    return Check("port", "ok", f"{port} is free for gbnf server start")


def _writable(name: str, folder: Path, variable: str) -> Check:
    """Check that files can be created in the folder, which may not exist yet."""
    try:
        existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
        with tempfile.TemporaryDirectory(dir=existing):
            pass
    except OSError as error:
        problem = f"{folder} is not writable: {error.strerror or error}"
        return Check(name, "limited", problem, f"Set ${variable} to another folder.")
    return Check(name, "ok", str(folder))


def _free() -> int:
    """Return the available memory in bytes."""
    import psutil  # optional

    return int(psutil.virtual_memory().available)


def _version_of(program: Path | str) -> str:
    """Return the first line that a program prints for `--version`."""
    try:
        done = run_program([str(program), "--version"], _LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode:
        return describe_exit(done.returncode)
    return next(iter((done.stdout.strip() or done.stderr.strip()).splitlines()), "no version")
