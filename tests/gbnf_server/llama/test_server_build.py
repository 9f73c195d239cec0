"""Installing llama-server: the real pipeline of tar, cmake and compiler, over a source of a few lines.

The archive lies where a finished download leaves it, so that nothing is fetched. That the real source builds
is shown by the tests that run the server which CI has installed.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gbnf_server.llama import server_build
from gbnf_server.llama.server_build import (
    Gpu,
    InstallProgress,
    find_llama_server,
    install,
    start,
)
from gbnf_server.system.errors import SetupError
from support.command_line import Gbnf, gbnf
from support.processes import commands, wait_until

__all__ = ["gbnf"]

VERSION = server_build.source_version()
CMAKE = """
cmake_minimum_required(VERSION 3.14)
project(small C)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_executable(llama-server main.c)
"""
MAIN = '#include <stdio.h>\nint main(void) { puts("version: small"); return 0; }\n'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of its own for each test."""
    monkeypatch.delenv("GBNF_LLAMA_SERVER", raising=False)
    monkeypatch.setenv("GBNF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def source(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Puts a source archive where the download leaves it; its files may be changed, its hash is not known."""
    require_compiler()
    monkeypatch.setattr(server_build, "_SHA256", {})

    def put(variant: str = VERSION, **files: str) -> Path:
        folder = cache / f"building-{variant}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"llama_cpp_python-{VERSION}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for name, text in {"CMakeLists.txt": CMAKE, "main.c": MAIN, **files}.items():
                entry = tarfile.TarInfo(f"llama_cpp_python-{VERSION}/vendor/llama.cpp/{name}")
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
        return path

    return put


def require_compiler() -> None:
    if server_build.compiler() is None:
        pytest.skip("needs a C++ compiler")


def stages() -> list[str]:
    """Install, and return the stages of the progress."""
    seen: list[InstallProgress] = []
    assert install(progress=seen.append) == find_llama_server()
    return [progress.stage for progress in seen]


@pytest.mark.slow
def test_an_install_builds_tests_and_installs_the_server(cache: Path, source: Callable[..., Path]) -> None:
    source()
    assert find_llama_server() is None
    seen: list[InstallProgress] = []
    binary = install(progress=seen.append)
    assert binary == cache / "llama-server" / VERSION / "llama-server"
    assert find_llama_server() == binary
    assert subprocess.run([binary], capture_output=True, text=True, check=True).stdout == "version: small\n"
    assert not (cache / f"building-{VERSION}").exists()
    passed = [progress.stage for progress in seen]
    assert passed == sorted(passed, key=["unpack", "configure", "build", "done"].index)
    built = [progress.fraction or 0 for progress in seen if progress.stage == "build"]
    assert built == sorted(built)
    assert built[-1] == 1.0
    assert seen[-1].fraction == 1.0


@pytest.mark.slow
def test_a_second_install_builds_nothing(source: Callable[..., Path]) -> None:
    source()
    before = install().stat().st_mtime_ns
    source().write_bytes(b"no archive")
    assert stages() == ["done"]
    assert install().stat().st_mtime_ns == before


def test_a_server_that_the_person_names_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GBNF_LLAMA_SERVER", sys.executable)
    assert install() == find_llama_server() == Path(sys.executable)
    with pytest.raises(SetupError, match="Unset it"):  # no build replaces it
        install(gpu="cuda")


@pytest.mark.parametrize("name", ["absent", "text", "."])
def test_a_named_server_that_is_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "text").write_text("no program")
    monkeypatch.setenv("GBNF_LLAMA_SERVER", str(tmp_path / name))
    for ask in (find_llama_server, install, lambda: start(tmp_path / "m.gguf")):
        with pytest.raises(SetupError, match=r"GBNF_LLAMA_SERVER is .*not a program"):
            ask()


def test_starting_without_a_server_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_build, "find_spec", lambda _name: None)
    with pytest.raises(SetupError, match="gbnf server install"):
        start(tmp_path / "m.gguf")


@pytest.mark.slow
def test_missing_tools_are_all_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(server_build, "_program_path", lambda: str(tmp_path))  # pip may have brought a cmake
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(SetupError, match=r"without cmake, make, tar, a C\+\+ compiler\. .*apt install"):
        install()


@pytest.mark.slow
def test_a_build_for_a_gpu_is_beside_the_other_and_preferred(
    cache: Path, source: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "glslc").touch(mode=0o755)
    asks = 'if(NOT GGML_VULKAN)\nmessage(FATAL_ERROR "for the CPU")\nendif()\n'
    source()
    plain = install()
    source(variant=f"{VERSION}-vulkan", **{"CMakeLists.txt": CMAKE + asks})
    built = install(gpu="vulkan")
    assert built == cache / "llama-server" / f"{VERSION}-vulkan" / "llama-server"
    assert find_llama_server() == install(gpu="vulkan") == install() == built
    assert plain.is_file()


@pytest.mark.parametrize(("gpu", "program"), [("cuda", "nvcc"), ("vulkan", "glslc")])
def test_a_compiler_for_the_gpu_is_needed(gpu: Gpu, program: str) -> None:
    if (Path("/usr/local/cuda/bin") / program).exists() or shutil.which(program):
        pytest.skip(f"{program} is here")
    with pytest.raises(SetupError, match=f"for {gpu} without {program}. Install the "):
        install(gpu=gpu)


@pytest.mark.skipif(sys.platform == "darwin", reason="Metal is for macOS")
def test_metal_is_for_macos() -> None:
    with pytest.raises(SetupError, match="Metal on macOS only"):
        install(gpu="metal")


@pytest.mark.slow
def test_a_failed_build_resumes_where_it_stopped(cache: Path, source: Callable[..., Path]) -> None:
    source(**{"main.c": "#error not yet\n"})
    with pytest.raises(SetupError, match="not yet") as failed:
        install()
    assert str(cache / f"building-{VERSION}" / "build.log") in str(failed.value)
    assert find_llama_server() is None
    (cache / f"building-{VERSION}" / "source" / "vendor" / "llama.cpp" / "main.c").write_text(MAIN)
    assert "unpack" not in stages()


@pytest.mark.slow
def test_a_server_that_cannot_run_is_not_installed(source: Callable[..., Path]) -> None:
    source(**{"main.c": "int main(void) { return 3; }\n"})
    with pytest.raises(SetupError, match="status 3"):
        install()
    assert find_llama_server() is None


@pytest.mark.slow
@pytest.mark.parametrize(("size", "said"), [(None, "the SHA-256 of"), (100, "tar -xzf")])
def test_a_wrong_archive_is_thrown_away(
    source: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, size: int | None, said: str
) -> None:
    path = source()
    path.write_bytes(path.read_bytes()[:size])
    if size is None:
        monkeypatch.setattr(server_build, "_SHA256", {VERSION: "0" * 64})
    with pytest.raises(SetupError, match=said):
        install()
    assert not path.exists()
    assert find_llama_server() is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind", "target"),
    [
        ("../../../../../../outside", tarfile.REGTYPE, ""),
        ("/outside", tarfile.REGTYPE, ""),
        ("link", tarfile.SYMTYPE, "../../../../.."),
        ("link", tarfile.LNKTYPE, "../../../../../outside"),
    ],
)
def test_files_and_links_stay_in_the_folder_of_the_archive(
    tmp_path: Path, source: Callable[..., Path], name: str, kind: bytes, target: str
) -> None:
    (tmp_path / "outside").write_text("mine")
    name = name.replace("/outside", f"{tmp_path}/outside") if name.startswith("/") else name
    with tarfile.open(source(), "w:gz") as archive:
        for path, of_kind in ((name, kind), (f"{name}/outside" if target else name, tarfile.REGTYPE)):
            member = tarfile.TarInfo(path if path.startswith("/") else f"llama_cpp_python-{VERSION}/{path}")
            member.type, member.linkname, member.size = (
                of_kind,
                target,
                0 if of_kind != tarfile.REGTYPE else 5,
            )
            archive.addfile(member, io.BytesIO(b"other"))
    with pytest.raises((SetupError, OSError)):
        install()
    assert (tmp_path / "outside").read_text() == "mine"


@pytest.mark.slow
def test_an_interrupted_compiler_deletes_what_it_was_writing_and_is_gone(
    cache: Path, source: Callable[..., Path], tmp_path: Path
) -> None:
    partial, compiler = tmp_path / "partial.o", tmp_path / "compiler"
    compiler.write_text(
        f"#!/bin/sh\ntrap 'sleep 0.1; rm {partial}; exit 1' TERM\ntouch {partial}\n"
        "while :; do sleep 0.02; done\n"
    )
    compiler.chmod(0o755)
    slow = f'add_custom_target(slow COMMAND {compiler} COMMENT "compiling")\n'
    source(**{"CMakeLists.txt": f"{CMAKE}{slow}add_dependencies(llama-server slow)\n"})

    def interrupt(progress: InstallProgress) -> None:
        if progress.stage == "build":
            wait_until(partial.exists)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        install(progress=interrupt)
    assert not partial.exists()
    assert find_llama_server() is None
    wait_until(lambda: not any(str(compiler) in command for command in commands()))


@pytest.mark.slow
def test_the_progress_is_told_without_a_terminal_too(gbnf: Gbnf, source: Callable[..., Path]) -> None:
    source()
    result = gbnf("server", "install")
    shown = [line.partition(":")[0] for line in result.err.splitlines()]
    assert list(dict.fromkeys(shown)) == ["unpack", "configure", "build", "done"]
    assert re.search(r"^build: 100 %, \d+ s, ", result.err, re.MULTILINE)
    assert Path(result.out.strip()) == find_llama_server()


@pytest.mark.slow
def test_a_second_install_waits_for_the_first(cache: Path, source: Callable[..., Path]) -> None:
    source()
    waiting = threading.Event()
    found: list[Path] = []

    def second() -> None:
        found.append(install(progress=lambda progress: waiting.set() if progress.stage == "wait" else None))

    thread = threading.Thread(target=second)
    with server_build._install_lock(cache, lambda _: None):
        thread.start()
        assert waiting.wait(60)
        assert find_llama_server() is None
    thread.join()
    assert found == [find_llama_server()]


@pytest.mark.slow
def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_compiler()
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("GBNF_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(SetupError, match="cannot be installed in"):
        install()


@pytest.mark.parametrize(
    ("line", "fraction", "message"),
    [
        ("[ 45%] Building C object x.o\n", 0.45, "Building C object x.o"),
        ("[100%] Built target llama-server\n", 1.0, "Built target llama-server"),
        ("[50/200] Linking CXX executable y\n", 0.25, "Linking CXX executable y"),
        ("make[2]: nothing to be done\n", None, ""),
    ],
)
def test_progress_of_make_and_ninja(line: str, fraction: float | None, message: str) -> None:
    found = server_build._step(line)
    assert (found and found.fraction, found.message if found else "") == (fraction, message)
