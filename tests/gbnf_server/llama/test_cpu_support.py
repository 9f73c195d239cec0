"""No computation in this process before it is known that it survives, and none that it does not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import ANY

import pytest

from gbnf_server.llama import cpu_probe
from gbnf_server.llama import cpu_support as cpu
from gbnf_server.llama.cpu_support import CpuSupport
from gbnf_server.llama.demo_model import model_path
from gbnf_server.system.errors import SetupError
from support.crashing_llama import crashing_environment

ALL_WELL = CpuSupport(computes=True, repacks=True)


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder without a verdict, in this process too."""
    monkeypatch.setenv("GBNF_CACHE", str(tmp_path / "cache"))
    cpu.cpu_support.cache_clear()
    yield tmp_path / "cache"
    cpu.cpu_support.cache_clear()


@pytest.fixture
def program(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Replace the probe by another program, which counts its runs in the file `runs`."""

    def put(body: str) -> None:
        file = fresh.parent / "probe.py"
        count = f"open({str(fresh.parent / 'runs')!r}, 'a').write('x')\n"
        file.write_text(f"import os, signal, sys\n{count}{body}\n")
        monkeypatch.setattr(cpu, "_PROGRAM", file)

    return put


def runs(fresh: Path) -> int:
    return len((fresh.parent / "runs").read_text())


# What is concluded from how the probe ends.

_DIES = "os.kill(os.getpid(), signal.{})"
_PLAIN, _REPACKED = "print('Q4_0 plain', flush=True)\n", "print('Q4_0 repacked', flush=True)\n"


@pytest.mark.parametrize(
    ("body", "computes", "repacks", "words", "probes"),
    [
        ("", True, True, [], 1),
        (_REPACKED + _DIES.format("SIGSEGV"), True, False, ["SIGSEGV", "repacked Q4_0"], 1),
        (_PLAIN + _DIES.format("SIGILL"), False, False, ["SIGILL", "plain Q4_0"], 1),
        (_DIES.format("SIGILL"), False, False, ["SIGILL", "libraries"], 1),
        (_REPACKED + f"sys.exit({cpu_probe.DIFFERS})", True, False, ["wrong results", "Q4_0"], 1),
        (f"sys.exit({cpu_probe.CANNOT_QUANTIZE})", True, False, ["prebuilt"], 1),
        (_PLAIN + _DIES.format("SIGKILL"), True, False, ["SIGKILL"], 2),  # from outside: not kept
        (_REPACKED + _DIES.format("SIGTERM"), True, False, ["SIGTERM"], 2),
        ("sys.exit('no space left')", True, False, ["no space left"], 2),
    ],
)
def test_a_result_of_the_probe_is_kept(
    fresh: Path,
    program: Callable[[str], None],
    body: str,
    computes: bool,
    repacks: bool,
    words: list[str],
    probes: int,
) -> None:
    program(body)
    for _ in range(2):
        found = cpu.cpu_support()
        assert (found.computes, found.repacks) == (computes, repacks)
        assert all(word in found.reason for word in words)
        cpu.cpu_support.cache_clear()  # another process
    assert runs(fresh) == probes


def test_a_verdict_belongs_to_the_libraries_and_the_cpu(
    fresh: Path, program: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program("")
    library = tmp_path / "lib" / "libllama.so"
    library.parent.mkdir()
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(library.parent))
    for content, features in [("one", "avx2"), ("two", "avx2"), ("two", "avx2 amx_tile"), ("two", "avx2")]:
        library.write_text(content)
        monkeypatch.setattr(cpu, "cpu_features", lambda told=features: told)
        assert cpu.cpu_support() == ALL_WELL
        cpu.cpu_support.cache_clear()
    assert runs(fresh) == 3


@pytest.mark.parametrize("kept", ["", "[]", '{"computes": true}', "\x00"])
def test_a_damaged_verdict_is_found_anew(fresh: Path, program: Callable[[str], None], kept: str) -> None:
    program("")
    cpu.cpu_support()
    (file,) = (fresh / "cpu").iterdir()
    file.write_text(kept)
    cpu.cpu_support.cache_clear()
    assert cpu.cpu_support() == ALL_WELL
    assert json.loads(file.read_text())["repacks"] is True


def test_a_cache_that_cannot_be_written_costs_a_probe(fresh: Path, program: Callable[[str], None]) -> None:
    program("")
    fresh.write_text("no folder")
    assert cpu.cpu_support() == ALL_WELL


@pytest.mark.parametrize("end", ["", _DIES.format("SIGSEGV")])
def test_its_weights_are_removed_however_it_ends(
    fresh: Path, program: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(fresh.parent))
    program(f"open(os.path.join(sys.argv[2], 'Q4_0.gguf'), 'w').write('weights')\n{end}")
    assert cpu.cpu_support().computes is (end == "")
    assert not [*fresh.parent.glob("gbnf-probe-*")]


# The probe itself.


def run_probe(environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", cpu_probe.__file__, str(model_path()), str(folder)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_it_computes_with_every_quantization_both_ways(tmp_path: Path) -> None:
    done = run_probe({**os.environ}, tmp_path)
    steps = done.stdout.splitlines()
    wanted = [f"{name} {kind}" for kind in ("plain", "repacked") for name in cpu_probe.QUANTIZATIONS]
    if done.returncode == 0:
        assert steps == wanted
    elif done.returncode == cpu_probe.CANNOT_QUANTIZE:
        assert cpu.cpu_support() == CpuSupport(computes=True, repacks=False, reason=ANY)
        assert steps == ["unchanged plain"]
    else:  # such a CPU is what the probe is for
        assert steps == wanted[: len(steps)]
        assert steps[-1].endswith("repacked")


def test_other_results_are_noticed() -> None:
    import numpy as np

    some = np.arange(1, 9, dtype=np.float32)
    assert cpu_probe._alike(some, some * 1.01)
    assert not cpu_probe._alike(some, some[::-1].copy())
    assert not cpu_probe._alike(some, some * np.float32("nan"))


# A build that dies, with everything that loads weights.

_LOADERS = {
    "NativeModel": "from gbnf_server import InProcess, Request\nmodel = InProcess(sys.argv[1])\n"
    "model.complete(Request([{'role': 'user', 'content': 'hello'}], grammar=None, max_tokens=2))",
    "Llama": "from llama_cpp import Llama\nfrom gbnf_server.llama import process_globals as them\n"
    "them.patch_default_model_params()\nthem.patch_default_model_params()\n"
    "Llama(sys.argv[1], n_ctx=64, verbose=False).eval([100, 101])",
    "unprotected": "from llama_cpp import Llama\n"
    "Llama(sys.argv[1], n_ctx=64, verbose=False).eval([100, 101])",
}


@pytest.fixture(scope="module")
def crashing(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], Path]:
    """An environment in which repacked weights crash, and the embedded model in a quantization that llama.cpp
    repacks on x86-64 with AVX2, and on ARM."""
    folder = tmp_path_factory.mktemp("repacked")
    try:
        model = cpu_probe._quantized(model_path(), "Q4_0", folder)
    except SetupError as error:
        pytest.skip(str(error))
    environment = dict(crashing_environment(folder))
    if run_probe(environment, folder).returncode == 0:
        pytest.skip("this CPU has no kernels for repacked weights")
    return environment, model


@pytest.mark.slow
@pytest.mark.parametrize("loader", _LOADERS)
def test_a_build_that_crashes_on_repacked_weights_is_used_without_repacking(
    crashing: tuple[dict[str, str], Path], loader: str
) -> None:
    environment, model = crashing
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{_LOADERS[loader]}", str(model)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    # without the guard the process dies, which is what makes the other two cases count
    assert done.returncode == (-signal.SIGSEGV if loader == "unprotected" else 0), done.stderr


@pytest.mark.slow
def test_a_build_that_computes_nothing_kills_the_probe_at_once(tmp_path: Path) -> None:
    done = run_probe(dict(crashing_environment(tmp_path, always=True)), tmp_path)
    assert done.returncode == -signal.SIGSEGV
    assert [step.split()[-1] for step in done.stdout.splitlines()] == ["plain"]


def test_nothing_is_probed_for_a_vocabulary(fresh: Path, program: Callable[[str], None]) -> None:
    from gbnf_server.llama.native import NativeModel

    program(_DIES.format("SIGILL"))
    NativeModel(model_path(), vocab_only=True)
    assert not (fresh.parent / "runs").exists()
    with pytest.raises(SetupError, match=r"(?s)SIGILL.*gbnf doctor"):
        NativeModel(model_path())
