"""Find, start and build a llama-server.

One is built from llama-cpp-python's source distribution, which contains all of llama.cpp, into a cache
folder; where there is none, `prebuilt_server` takes its place. Invariants:

- The cache has a working server or none: it is built in another folder, tested, and then renamed.
- Of the versions in `_SHA256`, only the source with that hash is built. Of others, pip compares what it
  downloads with the hash in the index.
- An interrupted install continues where it stopped: a step that is done is not repeated.
- Of two concurrent installs, the second waits, and uses the result of the first.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias

from gbnf_server.llama.server_process import LlamaServerProcess, check_port, start_binary
from gbnf_server.system.errors import SetupError
from gbnf_server.system.folders import cache_folder
from gbnf_server.system.model_files import file_sha256
from gbnf_server.system.processes import describe_exit, kill_group, pip_command

SERVER_VARIABLE = "GBNF_LLAMA_SERVER"

Gpu: TypeAlias = Literal["cuda", "vulkan", "metal"]
"""What a server computes with besides the CPU. On macOS every build uses Metal."""

_SETTINGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",  # one file, which can be moved
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
)
_GPU_COMPILERS: dict[Gpu, tuple[str, str]] = {
    "cuda": ("nvcc", "Install the CUDA toolkit: https://developer.nvidia.com/cuda-downloads"),
    "vulkan": ("glslc", "Install the Vulkan SDK. On Debian or Ubuntu: apt install libvulkan-dev glslc"),
}
"""The GPUs that need a build of their own, the preferred first: its compiler, and how to get that."""
_CUDA_FOLDER = "/usr/local/cuda/bin"  # of NVIDIA's installers, which put it on no path
_DEFAULT_VERSION = "0.3.36"
_SHA256 = {_DEFAULT_VERSION: "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"}
"""The hashes of source distributions, by version."""
_SHOWN_LINES = 15  # of a log, in an error
_GRACE_PERIOD = 0.3  # seconds for the compilers to end
_CPU_MINUTES = 10  # of the compilers together


@dataclass(frozen=True, slots=True)
class InstallProgress:
    """The progress of an install: its stage, the fraction of it that is done (None: unknown), a message."""

    stage: Literal["wait", "download", "unpack", "configure", "build", "done"]
    fraction: float | None
    message: str


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
    builds = (_binary_path(cache_folder(), gpu) for gpu in (*_GPU_COMPILERS, None))
    return next((built for built in builds if built.is_file()), None)


def server_command() -> list[str]:
    """Return the command that runs a llama-server: what `find_llama_server` finds, else the prebuilt one.

    Raises SetupError if there is none.
    """
    if (binary := find_llama_server()) is not None:
        return [str(binary)]
    if find_spec("xllamacpp") is None:
        hint = f"Run `gbnf server install`, or set ${SERVER_VARIABLE} to one of this machine"
        raise SetupError(f"there is no llama-server. {hint}.")
    return [sys.executable, "-P", str(Path(__file__).with_name("prebuilt_server.py"))]


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
    server = find_llama_server()
    if server is not None and (gpu not in _GPU_COMPILERS or server == _binary_path(cache_folder(), gpu)):
        progress(InstallProgress("done", 1.0, f"llama-server is installed: {server}"))
        return server
    if os.environ.get(SERVER_VARIABLE):
        raise SetupError(f"${SERVER_VARIABLE} names the server to use, {server}. Unset it to build another.")
    _check_tools(gpu)
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _install_lock(cache, progress):
            built = _binary_path(cache, gpu)
            if not built.is_file():  # another install may have just built it
                _Build(cache, gpu, progress).run(jobs or os.cpu_count() or 1, built)
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
    default that of the model's training, up to 8192. Of several slots, each keeps its last prompt only (see
    `--cache-ram` of llama-server). `threads`: by default `usable_cores`, or one for a small model. `api_key`:
    by default $LLAMA_API_KEY, otherwise a random one, which the HTTP backends of this user find by the
    address. `timeout`: seconds for loading the model. `extra`: more arguments for llama-server. Raises
    SetupError with the end of the log if it does not start, ModelLoadError if the file is not a model.
    """
    from gbnf_server.llama.native import NativeModel, default_threads  # noqa: PLC0415  # loads llama.cpp

    check_port(port)
    program = server_command()
    vocabulary = NativeModel(model, vocab_only=True)  # raises if the file is not a model
    length = context_length or vocabulary.default_context
    arguments = ["--model", str(model), "--alias", vocabulary.name]
    arguments += ["--host", "127.0.0.1", "--port", str(port), "--offline"]
    arguments += ["--ctx-size", str(length * slots), "--parallel", str(slots)]
    arguments += ["--threads", str(threads or default_threads(vocabulary.path))]
    # Under load, llama.cpp puts the cache of another conversation into a slot:
    # https://github.com/ggml-org/llama.cpp/issues/27148
    return start_binary([*program, *arguments], extra, api_key, timeout, keeps_prompts=slots == 1)


def compiler() -> str | None:
    """Return the path of the C++ compiler, None if there is none."""
    names = (os.environ.get("CXX", "").split(" ")[0], "c++", "g++", "clang++")
    return next(filter(None, map(shutil.which, filter(None, names))), None)


def _check_tools(gpu: Gpu | None) -> None:
    if gpu == "metal" and sys.platform != "darwin":
        raise SetupError("llama-server uses Metal on macOS only. For other GPUs, use --cuda or --vulkan.")
    if gpu in _GPU_COMPILERS:
        program, hint = _GPU_COMPILERS[gpu]
        if not shutil.which(program, path=_program_path()):
            raise SetupError(f"llama-server cannot be built for {gpu} without {program}. {hint}.")
    missing = [tool for tool in ("cmake", "make", "tar") if not shutil.which(tool, path=_program_path())]
    if shutil.which("ninja", path=_program_path()) and "make" in missing:
        missing.remove("make")
    if compiler() is None:
        missing.append("a C++ compiler")
    if pip_command()[0] != sys.executable and shutil.which("uv") is None:
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


def _binary_path(cache: Path, gpu: Gpu | None) -> Path:
    """Return where the server of a build is."""
    return cache / "llama-server" / _variant(gpu) / "llama-server"


def _variant(gpu: Gpu | None) -> str:
    return f"{source_version()}-{gpu}" if gpu in _GPU_COMPILERS else source_version()


def _check_hash(archive: Path) -> None:
    """Raise SetupError for a source of a known version with another hash."""
    digest = file_sha256(archive)
    if digest != (expected := _SHA256.get(source_version(), digest)):
        raise SetupError(
            f"the SHA-256 of {archive.name} is {digest}, not {expected}. Install again to download it again."
        )


def source_version() -> str:
    """Return the version of llama-cpp-python whose source is built: the installed one, or the known one."""
    try:
        return version("llama-cpp-python")
    except PackageNotFoundError:  # the prebuilt one is installed
        return _DEFAULT_VERSION


def _program_path() -> str:
    """Return the search path for programs: the system's, this Python's, for pip's cmake, and CUDA's."""
    folders = [os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)]
    return os.pathsep.join([*folders, _CUDA_FOLDER])


class _Build:
    """One build, in `<cache>/building-<version>`, which is kept until it succeeds."""

    def __init__(self, cache: Path, gpu: Gpu | None, progress: Callable[[InstallProgress], None]) -> None:
        self._progress = progress
        self._settings = (*_SETTINGS, *([f"-DGGML_{gpu.upper()}=ON"] if gpu else ()))
        self._folder = cache / f"building-{_variant(gpu)}"
        self._log = self._folder / "build.log"

    def run(self, jobs: int, target: Path) -> None:
        """Run all steps that are not done yet."""
        self._folder.mkdir(exist_ok=True)
        source = self._unpack(self._download())
        build = self._folder / "build"
        minutes = max(round(_CPU_MINUTES / min(jobs, os.cpu_count() or 1)), 1)
        lasts = f"the build takes about {minutes} min, for a GPU longer"
        self._progress(InstallProgress("configure", None, f"cmake checks this machine; {lasts}"))
        self._call(
            "configure",
            ["cmake", "-S", str(source / "vendor" / "llama.cpp"), "-B", str(build), *self._settings],
        )
        self._call(
            "build", ["cmake", "--build", str(build), "--target", "llama-server", "--parallel", str(jobs)]
        )
        binary = build / "bin" / "llama-server"
        self._call("build", [str(binary), "--version"])  # a server that does not run is not installed
        target.parent.mkdir(parents=True, exist_ok=True)
        binary.replace(target)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _download(self) -> Path:
        """Download the source distribution of the installed llama-cpp-python with pip."""
        wanted = f"llama_cpp_python-{source_version()}.tar.gz"
        archive = self._folder / wanted
        if not archive.is_file():
            self._progress(InstallProgress("download", None, f"pip downloads {wanted}"))
            downloaded = self._folder / "downloaded"
            pip = [*pip_command(), "download", "--disable-pip-version-check", "--no-deps"]
            source_only = ["--no-binary", "llama-cpp-python", "--dest", str(downloaded)]
            self._call("download", [*pip, *source_only, f"llama-cpp-python=={source_version()}"])
            source = next(iter(downloaded.glob("*.tar.gz")), None)
            if source is None:
                raise SetupError(
                    f"pip found no source of llama-cpp-python {source_version()}. See {self._log}."
                )
            source.replace(archive)
        return archive

    def _unpack(self, archive: Path) -> Path:
        source = self._folder / "source"
        if not source.is_dir():
            self._progress(InstallProgress("unpack", None, archive.name))
            unpacked = self._folder / "unpacking"
            shutil.rmtree(unpacked, ignore_errors=True)
            unpacked.mkdir()
            try:
                _check_hash(archive)
                self._call("unpack", ["tar", "-xzf", str(archive), "-C", str(unpacked)])
            except SetupError:
                archive.unlink()  # it is damaged: another install downloads it again
                raise
            (unpacked / archive.name.removesuffix(".tar.gz")).replace(source)
        return source

    def _call(
        self, stage: Literal["download", "unpack", "configure", "build"], command: Sequence[str]
    ) -> None:
        """Run a program, with its output in the log and cmake's percentages in the progress.

        Raises SetupError with the end of the log. An interrupt also ends the program and its children.
        """
        tail: deque[str] = deque(maxlen=_SHOWN_LINES)
        with self._log.open("a") as log:
            log.write(f"$ {' '.join(command)}\n")
            process = subprocess.Popen(  # noqa: S603  # the commands are those of this class
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                env={**os.environ, "PATH": _program_path()},
            )
            assert process.stdout is not None
            with process.stdout:
                try:
                    for line in process.stdout:
                        log.write(line)
                        tail.append(line.rstrip())
                        step = _step(line) if stage == "build" else None
                        if step is not None:
                            self._progress(step)
                    status = process.wait()
                except BaseException:
                    _end(process)
                    raise
        if status:
            shown = "\n".join(f"    {line}" for line in tail)
            raise SetupError(
                f"'{' '.join(command[:3])} …' {describe_exit(status)}. "
                f"The log is {self._log}; its end:\n{shown}\n"
                "Fix the error and install again: finished steps are not repeated."
            )


def _end(process: subprocess.Popen[str]) -> None:
    """End a program and its children within half a second.

    The compilers get time to delete the files that they are writing, which an install that continues would
    take for complete: cmake, which leads their group, ends before them. A process that ends closes the pipe.
    """
    assert process.stdout is not None
    pipe, end = process.stdout.fileno(), time.monotonic() + _GRACE_PERIOD
    try:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        while (seconds_left := end - time.monotonic()) > 0 and select.select([pipe], [], [], seconds_left)[0]:
            if not os.read(pipe, 1 << 16):
                break
    finally:  # also after a second Ctrl-C
        kill_group(process, grace_period=0.0)


def _step(line: str) -> InstallProgress | None:
    """Return the progress in a line of make (`[ 45%] Building x.o`) or ninja (`[45/100] Building x.o`)."""
    match = re.match(r"\[ *(\d+)(%|/(\d+))\] (.*)", line)
    if match is None:
        return None
    done, percent, steps, built = match.groups()
    return InstallProgress("build", int(done) / (100 if percent == "%" else int(steps)), built)
