"""The steps of a build of llama-server: download the source, unpack it, configure, compile.

Invariants:

- The cache has a working server or none: it is built in another folder, tested, and then renamed.
- Of the versions in `_SHA256`, only the source with that hash is built. Of others, pip compares what it
  downloads with the hash in the index.
- A step that is done is not repeated by a later build.
"""

from __future__ import annotations

import hashlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal, TypeAlias

from gbnf_server.system.errors import SetupError
from gbnf_server.system.processes import describe_exit, kill_group

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
GPU_BUILDS: tuple[Gpu, ...] = ("cuda", "vulkan")
"""The kinds of GPU that need a build of their own, in the order in which one is preferred."""
_GPU_SETTINGS: dict[Gpu, tuple[str, ...]] = {
    "cuda": ("-DGGML_CUDA=ON",),
    "vulkan": ("-DGGML_VULKAN=ON",),
    "metal": ("-DGGML_METAL=ON",),
}
_CUDA_FOLDER = "/usr/local/cuda/bin"  # of NVIDIA's installers, which put it on no path
_SHA256 = {"0.3.36": "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"}
"""The hashes of source distributions, by version."""
_SHOWN_LINES = 15  # of a log, in an error
_GRACE_PERIOD = 0.3  # seconds for the compilers to end


@dataclass(frozen=True, slots=True)
class InstallProgress:
    """The progress of an install: its stage, the fraction of it that is done (None: unknown), a message."""

    stage: Literal["wait", "download", "unpack", "configure", "build", "done"]
    fraction: float | None
    message: str


def binary_path(cache: Path, gpu: Gpu | None) -> Path:
    """Return where the server of a build is."""
    return cache / "llama-server" / _variant(gpu) / "llama-server"


def _variant(gpu: Gpu | None) -> str:
    return f"{_version()}-{gpu}" if gpu in GPU_BUILDS else _version()


def _check_hash(archive: Path) -> None:
    """Raise SetupError for a source of a known version with another hash."""
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != (known := _SHA256.get(_version(), found)):
        raise SetupError(
            f"the SHA-256 of {archive.name} is {found}, not {known}. Install again to download it again."
        )


def _version() -> str:
    return version("llama-cpp-python")


def program_path() -> str:
    """Return the search path for programs: the system's, this Python's, for pip's cmake, and CUDA's."""
    folders = [os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)]
    return os.pathsep.join([*folders, _CUDA_FOLDER])


class Build:
    """One build, in `<cache>/building-<version>`, which is kept until it succeeds."""

    def __init__(self, cache: Path, gpu: Gpu | None, progress: Callable[[InstallProgress], None]) -> None:
        self._progress = progress
        self._settings = (*_SETTINGS, *(_GPU_SETTINGS[gpu] if gpu else ()))
        self._folder = cache / f"building-{_variant(gpu)}"
        self._log = self._folder / "build.log"

    def run(self, jobs: int, binary_path: Path) -> None:
        """Run all steps that are not done yet."""
        self._folder.mkdir(exist_ok=True)
        source = self._unpack(self._download())
        build = self._folder / "build"
        self._progress(InstallProgress("configure", None, "cmake checks this machine"))
        self._call(
            "configure",
            ["cmake", "-S", str(source / "vendor" / "llama.cpp"), "-B", str(build), *self._settings],
        )
        self._call(
            "build", ["cmake", "--build", str(build), "--target", "llama-server", "--parallel", str(jobs)]
        )
        binary = build / "bin" / "llama-server"
        self._call("build", [str(binary), "--version"])  # a server that does not run is not installed
        binary_path.parent.mkdir(parents=True, exist_ok=True)
        binary.replace(binary_path)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _download(self) -> Path:
        """Download the source distribution of the installed llama-cpp-python with pip."""
        wanted = f"llama_cpp_python-{_version()}.tar.gz"
        archive = self._folder / wanted
        if not archive.is_file():
            self._progress(InstallProgress("download", None, f"pip downloads {wanted}"))
            downloaded = self._folder / "downloaded"
            pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
            source_only = ["--no-binary", "llama-cpp-python", "--dest", str(downloaded)]
            self._call("download", [*pip, *source_only, f"llama-cpp-python=={_version()}"])
            found = next(iter(downloaded.glob("*.tar.gz")), None)
            if found is None:
                raise SetupError(f"pip found no source of llama-cpp-python {_version()}. See {self._log}.")
            found.replace(archive)
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
            process = subprocess.Popen(  # noqa: S603 - the commands are those of this class
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                env={**os.environ, "PATH": program_path()},
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
        while (left := end - time.monotonic()) > 0 and select.select([pipe], [], [], left)[0]:
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
