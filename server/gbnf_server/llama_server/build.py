"""Build llama-server from the source that llama-cpp-python ships, into a cache folder.

No prebuilt server is downloaded: the source distribution of the installed llama-cpp-python holds llama.cpp
as a whole, so that the server and the engine in this process are of one version. Invariants:

- The cache has a finished server or none: it is built in another folder, tested, and then renamed.
- An interrupted install continues where it stopped.
- Of two installs at once, the second waits, and uses the result of the first.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from gbnf_server.errors import SetupError
from gbnf_server.llama_server.process import LlamaServerProcess, check_port, start_binary
from gbnf_server.system.folders import cache_folder
from gbnf_server.system.processes import describe_exit, kill_group

__all__ = ["InstallProgress", "LlamaServerProcess", "compiler", "find_llama_server", "install", "start"]

SERVER_VARIABLE = "GBNF_LLAMA_SERVER"

_SETTINGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",  # one file, which can be moved to its place
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
)
_SHOWN_LINES = 15  # of a log, in an error


@dataclass(frozen=True, slots=True)
class InstallProgress:
    """How far an install is: its stage, how much of that is done (0 to 1, None: unknown), what happens."""

    stage: Literal["wait", "download", "unpack", "configure", "build", "done"]
    fraction: float | None
    message: str


def find_llama_server() -> Path | None:
    """The llama-server to use: $GBNF_LLAMA_SERVER, else what `install` has built, else None.

    Raises SetupError where the variable names no program.
    """
    chosen = os.environ.get(SERVER_VARIABLE)
    if chosen:
        path = Path(chosen).expanduser().absolute()
        if not path.is_file() or not os.access(path, os.X_OK):
            raise SetupError(f"${SERVER_VARIABLE} is {chosen}, which is no program. Correct or unset it.")
        return path
    built = _binary_path(cache_folder())
    return built if built.is_file() else None


def install(*, jobs: int | None = None, progress: Callable[[InstallProgress], None] = lambda _: None) -> Path:
    """Return the path of a llama-server, built with `jobs` processes (None: one per CPU) where there is none.

    The build takes some five minutes on two cores. Raises SetupError, which says what is missing or shows
    the end of the log.
    """
    found = find_llama_server()
    if found is not None:
        progress(InstallProgress("done", 1.0, f"llama-server is there: {found}"))
        return found
    _check_tools()
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _install_lock(cache, progress):
            binary_path = _binary_path(cache)
            if not binary_path.is_file():  # another install may have just made it
                _Build(cache, progress).run(jobs or os.cpu_count() or 1, binary_path)
    except OSError as error:
        raise SetupError(f"llama-server cannot be installed in {cache}: {error}.") from error
    progress(InstallProgress("done", 1.0, f"llama-server is built: {binary_path}"))
    return binary_path


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
    """Run llama-server on loopback with a GGUF and wait until it is ready; `LlamaServerProcess` stops it.

    `port` 0 takes a free one. `context_length` is in tokens for each of the `slots` (conversations at once),
    by default what the model was trained for, up to 8192. `threads`: by default llama-server's own choice, or
    one for a small model. `api_key`: by default $LLAMA_API_KEY, else a random one, which the HTTP backends of
    this user find by the address. `timeout`: seconds for the model to load. `extra`: more arguments for
    llama-server. Raises SetupError with the log's last lines where it does not come up, ModelLoadError where
    the file is no model.
    """
    check_port(port)
    binary = find_llama_server()
    if binary is None:
        raise SetupError(
            "there is no llama-server yet. Build one with `gbnf server install`, "
            f"or name one in ${SERVER_VARIABLE}."
        )
    return start_binary(
        binary,
        Path(model),
        port=port,
        context_length=context_length,
        slots=slots,
        threads=threads,
        api_key=api_key,
        timeout=timeout,
        extra=extra,
    )


def compiler() -> str | None:
    """Return the path of the C++ compiler, None if there is none."""
    names = (os.environ.get("CXX", "").split(" ")[0], "c++", "g++", "clang++")
    return next(filter(None, map(shutil.which, filter(None, names))), None)


def _binary_path(cache: Path) -> Path:
    return cache / "llama-server" / _version() / "llama-server"


def _version() -> str:
    return version("llama-cpp-python")


def _path() -> str:
    """Where programs are looked for: the system's places, then beside this Python, where pip puts cmake."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])


def _check_tools() -> None:
    missing = [tool for tool in ("cmake", "make") if not shutil.which(tool, path=_path())]
    if shutil.which("ninja", path=_path()) and "make" in missing:
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
            f"apt install cmake g++ make python3-pip. Or name a finished one in ${SERVER_VARIABLE}."
        )


@contextmanager
def _install_lock(cache: Path, progress: Callable[[InstallProgress], None]) -> Iterator[None]:
    """Hold the cache's lock; the system lets go of it if this process dies."""
    with (cache / "install.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(InstallProgress("wait", None, "another install is under way"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _Build:
    """One build, in `<cache>/building-<version>`, which stays until it succeeds."""

    def __init__(self, cache: Path, progress: Callable[[InstallProgress], None]) -> None:
        self._progress = progress
        self._folder = cache / f"building-{_version()}"
        self._log = self._folder / "build.log"

    def run(self, jobs: int, binary_path: Path) -> None:
        self._folder.mkdir(exist_ok=True)
        source = self._unpack(self._download())
        build = self._folder / "build"
        self._progress(InstallProgress("configure", None, "cmake looks at this machine"))
        self._call(
            "configure", ["cmake", "-S", str(source / "vendor" / "llama.cpp"), "-B", str(build), *_SETTINGS]
        )
        self._call(
            "build", ["cmake", "--build", str(build), "--target", "llama-server", "--parallel", str(jobs)]
        )
        binary = build / "bin" / "llama-server"
        self._call("build", [str(binary), "--version"])  # a server that cannot run never gets to its place
        binary_path.parent.mkdir(parents=True, exist_ok=True)
        binary.replace(binary_path)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _download(self) -> Path:
        """The source distribution of the installed llama-cpp-python, by pip."""
        wanted = f"llama_cpp_python-{_version()}.tar.gz"
        archive = self._folder / wanted
        if not archive.is_file():
            self._progress(InstallProgress("download", None, f"pip fetches {wanted}"))
            arriving = self._folder / "arriving"
            pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
            source_only = ["--no-binary", "llama-cpp-python", "--dest", str(arriving)]
            self._call("download", [*pip, *source_only, f"llama-cpp-python=={_version()}"])
            found = next(iter(arriving.glob("*.tar.gz")), None)
            if found is None:
                raise SetupError(f"pip brought no source of llama-cpp-python {_version()}. See {self._log}.")
            found.replace(archive)
        return archive

    def _unpack(self, archive: Path) -> Path:
        source = self._folder / "source"
        if not source.is_dir():
            self._progress(InstallProgress("unpack", None, archive.name))
            arriving = self._folder / "unpacking"
            shutil.rmtree(arriving, ignore_errors=True)
            try:
                with tarfile.open(archive) as files:
                    files.extractall(arriving, filter="data")
            except tarfile.TarError as error:
                archive.unlink()
                raise SetupError(
                    f"{archive.name} is damaged ({error}). Install again to fetch it anew."
                ) from error
            (arriving / archive.name.removesuffix(".tar.gz")).replace(source)
        return source

    def _call(self, stage: Literal["download", "configure", "build"], command: Sequence[str]) -> None:
        """Run a program to its end, its output into the log and cmake's percentages into the progress.

        Raises SetupError with the log's end. Whatever interrupts this ends the program and its children too.
        """
        tail: deque[str] = deque(maxlen=_SHOWN_LINES)
        with self._log.open("a") as log:
            log.write(f"$ {' '.join(command)}\n")
            process = subprocess.Popen(  # noqa: S603 - the commands are those of this class
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                env={**os.environ, "PATH": _path()},
            )
            try:
                assert process.stdout is not None
                with process.stdout:
                    for line in process.stdout:
                        log.write(line)
                        tail.append(line.rstrip())
                        step = _step(line) if stage == "build" else None
                        if step is not None:
                            self._progress(step)
                status = process.wait()
            except BaseException:
                kill_group(process)
                raise
        if status:
            shown = "\n".join(f"    {line}" for line in tail)
            raise SetupError(
                f"'{' '.join(command[:3])} …' {describe_exit(status)}. "
                f"The log is {self._log}; its end:\n{shown}\n"
                "Fix that and install again: finished steps are not repeated."
            )


def _step(line: str) -> InstallProgress | None:
    """The progress in a line of make's (`[ 45%] Building x.o`) or ninja's (`[45/100] Building x.o`)."""
    match = re.match(r"\[ *(\d+)(%|/(\d+))\] (.*)", line)
    if match is None:
        return None
    done, percent, steps, built = match.groups()
    return InstallProgress("build", int(done) / (100 if percent == "%" else int(steps)), built)
