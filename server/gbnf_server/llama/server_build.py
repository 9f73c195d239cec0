"""Build llama-server from llama-cpp-python's source distribution, into a cache folder.

No prebuilt server is downloaded: the source distribution of the installed llama-cpp-python contains all of
llama.cpp, so that the server and the engine in this process have the same version. Invariants:

- An interrupted install continues where it stopped.
- Of two concurrent installs, the second waits, and uses the result of the first.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gbnf_server.llama.build_steps import (
    GPU_BUILDS,
    Build,
    Gpu,
    InstallProgress,
    binary_path,
    program_path,
)
from gbnf_server.llama.server_process import LlamaServerProcess, check_port, start_binary
from gbnf_server.system.errors import SetupError
from gbnf_server.system.folders import cache_folder

__all__ = ["Gpu", "InstallProgress", "compiler", "find_llama_server", "install", "start"]

SERVER_VARIABLE = "GBNF_LLAMA_SERVER"

_GPU_COMPILERS: dict[Gpu, tuple[str, str]] = {
    "cuda": ("nvcc", "Install the CUDA toolkit: https://developer.nvidia.com/cuda-downloads"),
    "vulkan": ("glslc", "Install the Vulkan SDK. On Debian or Ubuntu: apt install libvulkan-dev glslc"),
}
"""The program that each build needs, and how to get it."""


def find_llama_server() -> Path | None:
    """Return the llama-server to use: $GBNF_LLAMA_SERVER, otherwise what `install` has built, otherwise None.

    A build for a GPU is preferred to one without. Raises SetupError if the variable is not the path of a
    program.
    """
    chosen = os.environ.get(SERVER_VARIABLE)
    if chosen:
        path = Path(chosen).expanduser().absolute()
        if not path.is_file() or not os.access(path, os.X_OK):
            raise SetupError(f"${SERVER_VARIABLE} is {chosen}, which is not a program. Correct or unset it.")
        return path
    builds = (binary_path(cache_folder(), gpu) for gpu in (*GPU_BUILDS, None))
    return next((built for built in builds if built.is_file()), None)


def install(
    *,
    gpu: Gpu | None = None,
    jobs: int | None = None,
    progress: Callable[[InstallProgress], None] = lambda _: None,
) -> Path:
    """Build llama-server with `jobs` processes (None: one per CPU), unless there is one; return its path.

    `gpu`: build one that computes on such a GPU, unless there is one of this kind. The build takes about five
    minutes on two cores; for CUDA, longer. Raises SetupError with what is missing, or with the end of the
    log.
    """
    found = find_llama_server()
    if found is not None and (gpu not in GPU_BUILDS or found == binary_path(cache_folder(), gpu)):
        progress(InstallProgress("done", 1.0, f"llama-server is installed: {found}"))
        return found
    if os.environ.get(SERVER_VARIABLE):
        raise SetupError(f"${SERVER_VARIABLE} names the server to use, {found}. Unset it to build another.")
    _check_tools(gpu)
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _install_lock(cache, progress):
            built = binary_path(cache, gpu)
            if not built.is_file():  # another install may have just built it
                Build(cache, gpu, progress).run(jobs or os.cpu_count() or 1, built)
    except OSError as error:
        raise SetupError(f"llama-server cannot be installed in {cache}: {error}.") from error
    progress(InstallProgress("done", 1.0, f"llama-server is built: {built}"))
    return built


def start(
    model: Path | str,
    *,
    port: int = 0,
    context_length: int | None = None,
    slots: int = 1,
    threads: int | None = None,
    api_key: str | None = None,
    timeout: float = 300.0,
    extra: Sequence[str] = (),
) -> LlamaServerProcess:
    """Run llama-server on loopback with a GGUF file, and wait until it is ready.

    `port` 0 picks a free one. `context_length` is in tokens for each of the `slots` (concurrent calls), by
    default that of the model's training, up to 8192. `threads`: by default `usable_cores`, or one for a small
    model. `api_key`: by default $LLAMA_API_KEY, otherwise a random one, which the HTTP backends
    of this user find by the address. `timeout`: seconds for loading the model. `extra`: more arguments for
    llama-server. Raises SetupError with the end of the log if it does not start, ModelLoadError if the file
    is not a model.
    """
    from gbnf_server.llama.native import NativeModel, default_threads  # noqa: PLC0415 - loads llama.cpp

    check_port(port)
    binary = find_llama_server()
    if binary is None:
        raise SetupError(
            "llama-server is not installed. Build it with `gbnf server install`, "
            f"or set ${SERVER_VARIABLE} to its path."
        )
    vocabulary = NativeModel(model, vocab_only=True)  # raises if the file is not a model
    length = context_length or vocabulary.default_context
    arguments = ["--model", str(model), "--alias", vocabulary.name]
    arguments += ["--host", "127.0.0.1", "--port", str(port), "--offline"]
    arguments += ["--ctx-size", str(length * slots), "--parallel", str(slots)]
    arguments += ["--threads", str(threads or default_threads(vocabulary.path))]
    return start_binary([str(binary), *arguments], extra, api_key, timeout)


def compiler() -> str | None:
    """Return the path of the C++ compiler, None if there is none."""
    names = (os.environ.get("CXX", "").split(" ")[0], "c++", "g++", "clang++")
    return next(filter(None, map(shutil.which, filter(None, names))), None)


def _check_tools(gpu: Gpu | None) -> None:
    if gpu == "metal" and sys.platform != "darwin":
        raise SetupError("llama-server uses Metal on macOS only. For other GPUs, use --cuda or --vulkan.")
    if gpu is not None and gpu in _GPU_COMPILERS:
        program, hint = _GPU_COMPILERS[gpu]
        if not shutil.which(program, path=program_path()):
            raise SetupError(f"llama-server cannot be built for {gpu} without {program}. {hint}.")
    missing = [tool for tool in ("cmake", "make") if not shutil.which(tool, path=program_path())]
    if shutil.which("ninja", path=program_path()) and "make" in missing:
        missing.remove("make")
    if compiler() is None:
        missing.append("a C++ compiler")
    if subprocess.run(
        [sys.executable, "-m", "pip", "--version"], capture_output=True, check=False
    ).returncode:
        missing.append("pip")
    if missing:
        raise SetupError(
            f"llama-server cannot be built without {', '.join(missing)}. On Debian or Ubuntu: "
            f"apt install cmake g++ make python3-pip. Or set ${SERVER_VARIABLE} to an existing one."
        )


@contextmanager
def _install_lock(cache: Path, progress: Callable[[InstallProgress], None]) -> Iterator[None]:
    """Lock the cache; the system releases the lock if this process is killed."""
    with (cache / "install.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(InstallProgress("wait", None, "waiting for another install"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
