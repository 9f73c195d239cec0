"""Compiled tools on disk: other processes, damage, versions, and folders that do not work."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gbnf
from gbnf import compile_pool, load_manifests
from gbnf.schema_caches import SchemaCaches, caches_in_use
from gbnf_server.system import part_cache as files
from gbnf_server.system.part_cache import DiskPartCache, compiler_version, use_disk_cache
from support.oracle import CHECKOUT

MANIFESTS = CHECKOUT / "manifests"

#: Compile the bundled tools several times, as a new process each time; print a hash and what was compiled.
COMPILE = """
import sys
from hashlib import sha256
from pathlib import Path
from gbnf import compile_pool, load_manifests
from gbnf.compiler import pool
from gbnf.schema_caches import SchemaCaches
from gbnf_server.system.part_cache import DiskPartCache

manifests, folder, max_bytes, rounds = sys.argv[1:]
compiled = []
compile_arguments = pool._compile_arguments
def counted(*given):
    compiled.append(given[0].name)
    return compile_arguments(*given)
pool._compile_arguments = counted
tools = load_manifests(Path(manifests))
for _ in range(int(rounds)):
    with SchemaCaches(DiskPartCache(Path(folder), max_bytes=int(max_bytes))).use():
        grammar = compile_pool(tools)
    print(sha256(f"{grammar}{dict(grammar.rules.productions)}{grammar.report}".encode()).hexdigest())
print(len(compiled))
"""


@pytest.fixture(autouse=True)
def _no_compiled_tools() -> Iterator[None]:
    with SchemaCaches().use():
        yield


def start(folder: Path, max_bytes: int = 2**20, rounds: int = 1, program: str = COMPILE) -> Any:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(MANIFESTS), str(folder), str(max_bytes), str(rounds)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process: Any) -> list[str]:
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return list(out.split())


def occupied(folder: Path) -> int:
    return sum(-(-path.stat().st_size // 4096) * 4096 for path in folder.iterdir() if path.is_file())


@pytest.fixture(scope="module")
def right_hash(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a process prints that finds no compiled tools."""
    return finish(start(tmp_path_factory.mktemp("unused")))[0]


@pytest.mark.slow
def test_another_process_compiles_nothing_again(tmp_path: Path, right_hash: str) -> None:
    first_hash, compiled = finish(start(tmp_path / "new" / "folder"))
    second_hash, compiled_again = finish(start(tmp_path / "new" / "folder"))
    assert first_hash == second_hash == right_hash
    assert (int(compiled), int(compiled_again)) == (len(load_manifests(MANIFESTS)), 0)


@pytest.mark.slow
def test_processes_share_a_folder_with_room_for_a_few(tmp_path: Path, right_hash: str) -> None:
    max_bytes = 64 * 2**10
    processes = [start(tmp_path, max_bytes, rounds=4) for _ in range(3)]
    found = [finish(process)[:-1] for process in processes]
    assert {each for hashes in found for each in hashes} == {right_hash}
    assert occupied(tmp_path) <= max_bytes * (1 + 4 / 8)
    assert not [path for path in tmp_path.iterdir() if "." in path.name]  # temporary files


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def _replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _replace_by_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(MANIFESTS)


def _replace_by_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        _flip, Path.unlink, _replace_by_pipe, _replace_by_link, _replace_by_loop,
    ],
    ids=["empty", "truncated", "flipped", "removed", "a pipe", "a link", "a loop"],
)  # fmt: skip
def test_a_bad_file_is_compiled_again_and_replaced(tmp_path: Path, damage: Any) -> None:
    tools = load_manifests(MANIFESTS)[:3]
    caches_in_use().parts = DiskPartCache(tmp_path)
    expected = compile_pool(tools)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(written) == len(tools)
    damage(tmp_path / max(written))
    caches_in_use().results.clear()
    caches_in_use().parts = DiskPartCache(tmp_path)
    found = compile_pool(tools)
    assert (str(found), found.report) == (str(expected), expected.report)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == written


def test_a_folder_in_place_of_a_file_is_left_alone(tmp_path: Path) -> None:
    cache = DiskPartCache(tmp_path)
    cache.put("a", b"x")
    (path,) = tmp_path.iterdir()
    path.unlink()
    path.mkdir()
    assert cache.get("a") is None
    cache.put("a", b"x")
    assert cache.get("a") is None
    assert [*tmp_path.iterdir()] == [path]


def test_another_version_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskPartCache(tmp_path)
    cache.put("a", b"old")
    monkeypatch.setattr(files, "compiler_version", lambda: b"another")
    assert cache.get("a") is None
    cache.put("a", b"new")
    monkeypatch.undo()
    assert cache.get("a") == b"old"


def test_the_version_is_that_of_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "gbnf"
    shutil.copytree(Path(gbnf.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(files, "_STARTED", time.time() + 60)
    version = compiler_version.__wrapped__
    original = version()
    monkeypatch.setattr(gbnf, "__file__", str(package / "__init__.py"))
    assert version() == original
    source = package / "compiler" / "layout.py"
    status = source.stat()
    source.write_text(source.read_text().replace("spaced", "sqaced", 1))
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))  # a time that says nothing
    changed = version()
    assert changed not in (original, None)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "jsonschema-0.0.0.dist-info").mkdir()
    assert version() not in (original, changed, None)


def test_sources_that_changed_after_the_start_have_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_STARTED", 0.0)
    assert compiler_version.__wrapped__() is None
    monkeypatch.setattr(files, "compiler_version", lambda: None)
    cache = DiskPartCache(tmp_path)
    cache.put("a", b"x")
    assert cache.get("a") is None
    assert not [*tmp_path.iterdir()]


def no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "file").touch()
    return tmp_path / "file" / "cache"


def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def fail(*given: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", fail)
    return tmp_path


@pytest.mark.parametrize("prepare", [no_folder, full])
def test_a_folder_that_does_not_work_is_no_error(
    prepare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tools = load_manifests(MANIFESTS)
    expected = str(compile_pool(tools))
    caches_in_use().results.clear()
    folder = prepare(tmp_path, monkeypatch)
    caches_in_use().parts = DiskPartCache(folder)
    with caplog.at_level(logging.DEBUG, files.__name__):
        assert str(compile_pool(tools)) == expected
    said = [record for record in caplog.records if "not kept" in record.getMessage()]
    assert [record.levelno for record in said] == [logging.DEBUG]
    assert not [path for path in tmp_path.iterdir() if path.name != "file"]


@pytest.mark.slow
def test_a_write_that_fails_leaves_no_file(tmp_path: Path, right_hash: str) -> None:
    # Modules compiled under this limit would be written in part, for each later process to read.
    limited = "import resource, sys; sys.dont_write_bytecode = True\n"
    limited += "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n" + COMPILE
    found, _ = finish(start(tmp_path, program=limited))
    assert found == right_hash
    assert not [*tmp_path.iterdir()]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20_000)), max_size=60), st.integers(1, 20))
def test_the_bound_is_kept(tmp_path_factory: Any, puts: Any, blocks: int) -> None:
    folder = tmp_path_factory.mktemp("parts")
    max_bytes = blocks * 8 * 4096
    cache = DiskPartCache(folder, max_bytes=max_bytes)
    for key, size in puts:
        cache.put(str(key), b"x" * size)
        assert occupied(folder) <= max_bytes
        if size <= max_bytes // 8:
            assert cache.get(str(key)) == b"x" * size


def test_what_was_read_last_is_kept(tmp_path: Path) -> None:
    cache = DiskPartCache(tmp_path, max_bytes=32 * 4096)
    for number in range(32):
        cache.put(str(number), b"x")
    for age, path in enumerate(tmp_path.iterdir()):
        os.utime(path, (time.time() - 10_000 - age,) * 2)
    for number in (3, 17):
        assert cache.get(str(number)) == b"x"
    another = DiskPartCache(tmp_path, max_bytes=32 * 4096)
    another.put("more", b"x")
    kept = {number for number in range(32) if cache.get(str(number)) is not None}
    assert {3, 17} < kept
    assert 16 < len(kept) < 32
    assert another.get("more") == b"x"


def test_other_folders_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_bytes(b"x" * 10_000)
    for number in range(20):
        DiskPartCache(tmp_path, max_bytes=8 * 4096).put(str(number), b"x")
    assert (tmp_path / "mine" / "file").exists()
    assert occupied(tmp_path) <= 8 * 4096


def test_it_is_used_by_default_and_off_with_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GBNF_CACHE", str(tmp_path))
    use_disk_cache()  # the tests set GBNF_COMPILE_CACHE=0
    assert caches_in_use().parts is None
    monkeypatch.delenv("GBNF_COMPILE_CACHE")
    use_disk_cache()
    used = caches_in_use().parts
    assert isinstance(used, DiskPartCache)
    use_disk_cache()
    assert caches_in_use().parts is used
    compile_pool(load_manifests(MANIFESTS)[:1])
    assert len([*(tmp_path / "compiled").iterdir()]) == 1


@pytest.mark.slow
def test_the_command_line_uses_it_unless_told_otherwise(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GBNF_COMPILE_CACHE"}
    environment |= {"GBNF_CACHE": str(tmp_path / "cache"), "GBNF_CONFIG": ""}

    def compiled(*options: str) -> str:
        command = [sys.executable, "-m", "gbnf_server", *options, "compile", "--report"]
        return subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    without = compiled("--no-cache")
    assert not (tmp_path / "cache").exists()
    assert compiled() == without
    assert len([*(tmp_path / "cache" / "compiled").iterdir()]) == len(load_manifests(MANIFESTS))
