"""`gbnf doctor`.

A line per check, a fix for what is missing, a status that says whether this machine runs.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from gbnf_server.cli import doctor
from gbnf_server.llama.cpu_support import CpuSupport
from gbnf_server.llama.demo_model import model_path
from support.command_line import Gbnf, gbnf
from support.crashing_llama import crashing_environment

__all__ = ["gbnf"]


def found(result: Any) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in json.loads(result.out)}


@pytest.mark.slow
def test_a_machine_that_runs_the_tests_is_well(gbnf: Gbnf) -> None:
    result = gbnf("doctor", "--json", "--model", model_path())
    assert result.code == 0, result.out
    checks = found(result)
    assert set(checks) == {
        *("Python", "C++ compiler", "llama.cpp", "CPU probe", "GPU offload", "llama-server", "model"),
        *("threads", "smollm2", "tool calls", "llguidance", "xgrammar", "port", "configuration"),
        *("cache folder", "profile folder"),
    }
    assert all(check["fix"] for check in checks.values() if check["state"] != "ok")


def test_the_unrelated_package_gbnf_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = lambda name: "0.0.32" if name == "gbnf" else version(name)  # noqa: E731  # patched by its name
    monkeypatch.setattr("gbnf_server.cli.doctor.version", found)
    check = next(check for check in doctor.checks() if check.name == "package gbnf")
    assert check.state == "broken"
    assert "pip uninstall -y gbnf" in check.fix


@pytest.mark.slow
def test_each_check_is_a_line_and_each_fix_another(gbnf: Gbnf) -> None:
    result = gbnf("doctor")
    checks = list(doctor.checks())
    assert len(result.out.splitlines()) == len(checks) + sum(bool(check.fix) for check in checks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verdict", "state", "code"),
    [
        (CpuSupport(computes=True, repacks=False, reason="killed by SIGSEGV"), "limited", 0),
        (CpuSupport(computes=False, repacks=False, reason="killed by SIGILL"), "broken", 4),
    ],
)
def test_the_verdict_on_the_cpu(
    gbnf: Gbnf, monkeypatch: pytest.MonkeyPatch, verdict: CpuSupport, state: str, code: int
) -> None:
    monkeypatch.setattr(doctor, "cpu_support", lambda: verdict)
    monkeypatch.setattr(doctor, "run_cpu_probe", lambda: (verdict, True))
    result = gbnf("doctor", "--json")
    check = found(result)["CPU probe"]
    assert (result.code, check["state"]) == (code, state)
    assert verdict.reason in check["found"]
    assert check["fix"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["model", "memory", "llama-server"])
def test_what_is_broken(gbnf: Gbnf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    model = model_path()
    if fault == "model":
        model = tmp_path / "broken.gguf"
        model.write_bytes(b"GGUF")
    elif fault == "memory":
        monkeypatch.setattr(doctor, "_free", lambda: 1_000_000)
    else:
        monkeypatch.setenv("GBNF_LLAMA_SERVER", "/no/such/server")
    result = gbnf("doctor", "--json", "--model", model)
    name = "llama-server" if fault == "llama-server" else "model"
    assert (result.code, found(result)[name]["state"]) == (4, "broken")


@pytest.mark.slow
def test_a_port_that_is_taken(gbnf: Gbnf) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = gbnf("doctor", "--json", "--port", taken.getsockname()[1])
    assert (result.code, found(result)["port"]["state"]) == (0, "limited")


@pytest.mark.slow
@pytest.mark.parametrize("path", ["file/profiles", "x" * 300, "x" * 300 + "/profiles"])
def test_folders_that_cannot_be_made(
    gbnf: Gbnf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GBNF_PROFILES", str(tmp_path / path))
    result = gbnf("doctor", "--json")
    assert found(result)["profile folder"]["state"] == "limited"
    assert "GBNF_PROFILES" in found(result)["profile folder"]["fix"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "words"),
    [
        ("raise RuntimeError('libgomp is missing')", "libgomp is missing"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGILL)", "SIGILL"),
    ],
)
def test_a_library_that_does_not_load(tmp_path: Path, library: str, words: str) -> None:
    (tmp_path / "llama_cpp" / "lib").mkdir(parents=True)  # a compiled one, which is preferred
    (tmp_path / "llama_cpp" / "__init__.py").write_text(library)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "GBNF_CACHE": str(tmp_path / "cache")}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gbnf_server", *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path
        )

    done = run("doctor", "--json")
    (check,) = [check for check in json.loads(done.stdout) if check["name"] == "llama.cpp"]
    assert (done.returncode, check["state"]) == (4, "broken")
    assert words in check["found"]
    if "SIG" not in words:
        elsewhere = run("run", "what time is it?")
        assert elsewhere.returncode == 4
        assert words in elsewhere.stderr
        assert "gbnf doctor" in elsewhere.stderr
        assert "Traceback" not in elsewhere.stderr


@pytest.mark.slow
def test_a_build_that_crashes_on_repacked_weights_is_reported(tmp_path: Path) -> None:
    environment = crashing_environment(tmp_path)
    command = [sys.executable, "-m", "gbnf_server", "doctor", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    (check,) = [check for check in json.loads(done.stdout) if check["name"] == "CPU probe"]
    assert done.returncode == 0
    if check["state"] != "ok":  # on a CPU without kernels for repacked weights all is well
        assert re.search("SIGSEGV|cannot quantize", check["found"])
