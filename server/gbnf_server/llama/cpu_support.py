"""Check that this build of llama.cpp works on this CPU, before this process uses it.

When it loads a model, llama.cpp repacks weights for the CPU's widest instructions. Some builds crash then:
compiled by GCC 12, they get SIGSEGV at the first matrix product on CPUs with Intel AMX
(ggml-org/llama.cpp#20824). A build for another CPU may crash with SIGILL. So a child process tries first
(`cpu_probe`), and this process avoids what crashed there. Invariants:

- Weights are loaded in this process only after the probe: with `model_params`.
- A result is saved in the cache folder, under a hash of llama.cpp's libraries and the CPU's features. If the
  probe failed for another reason (a full disk, no memory), it is not saved, and weights are not repacked.

Repacking is disabled as a whole, rather than AMX alone by recompiling: that works for the library that pip
compiled, for our llama-server and for any other. It does not affect results; on a CPU with AVX-512, prompts
of Q4_0 models are evaluated at less than half the speed, those of Q8_0 and Q4_K at the same or a higher one.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gbnf_server.llama.demo_model import model_path
from gbnf_server.llama.prebuilt import prebuilt_library
from gbnf_server.system.errors import SetupError
from gbnf_server.system.folders import cache_folder
from gbnf_server.system.processes import CRASH_SIGNALS, run_program, signal_name

REINSTALL = "pip install --force-reinstall --no-binary llama-cpp-python llama-cpp-python"
"""The command that compiles llama.cpp on this machine."""

_PROGRAM = Path(__file__).with_name("cpu_probe.py")
_DIFFERS, _CANNOT_QUANTIZE = 9, 10  # exit statuses of `cpu_probe`, which is not imported: it loads llama.cpp
_LIMIT_S = 300.0  # the probe takes about three seconds of one core
_LIBRARIES = ("*.so", "*.dylib", "*.dll")

_log = logging.getLogger("gbnf_server.llama.bindings")


@dataclass(frozen=True, slots=True)
class CpuSupport:
    """What works on this CPU, and the reason why the rest does not ("" if all does)."""

    computes: bool
    repacks: bool
    reason: str = ""


@cache
def cpu_support() -> CpuSupport:
    """Return what works on this CPU; runs the probe unless its result is in the cache folder."""
    saved = cache_folder() / "cpu" / f"{_identity()}.json"
    with suppress(OSError, ValueError, TypeError):
        return CpuSupport(**json.loads(saved.read_text("utf-8")))
    support, is_final = run_cpu_probe()
    if is_final:
        with suppress(OSError):  # without a writable cache folder, each process runs the probe
            saved.parent.mkdir(parents=True, exist_ok=True)
            temporary = saved.with_suffix(f".{os.getpid()}")
            temporary.write_text(json.dumps(asdict(support)), "utf-8")
            temporary.replace(saved)
    return support


def run_cpu_probe() -> tuple[CpuSupport, bool]:
    """Run the probe. Return its result, and whether another run would give the same."""
    try:
        # created here, because a child that crashes cannot remove it
        with tempfile.TemporaryDirectory(prefix="gbnf-probe-") as folder:
            done = run_program([sys.executable, "-P", str(_PROGRAM), str(model_path()), folder], _LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return CpuSupport(
            computes=True, repacks=False, reason=f"the CPU probe did not finish: {error}"
        ), False
    steps = done.stdout.split("\n")[:-1]
    quantization, _, kind = steps[-1].partition(" ") if steps else ("", "", "plain")
    what = f"{kind} {quantization} weights" if quantization else "its libraries"
    _log.info("CPU probe: status %d after %r", done.returncode, what)
    match done.returncode:
        case 0:
            return CpuSupport(computes=True, repacks=True), True
        case int(status) if status < 0:
            reason = f"llama.cpp is killed by {signal_name(-status)} when it computes with {what}"
            crashed = -status in CRASH_SIGNALS
            computes = kind == "repacked" or not crashed
            return CpuSupport(computes=computes, repacks=False, reason=reason), crashed
        case status if status == _DIFFERS:
            return CpuSupport(computes=True, repacks=False, reason=f"{what} give wrong results"), True
        case status if status == _CANNOT_QUANTIZE:
            reason = "the prebuilt llama.cpp cannot quantize, so repacked weights cannot be tested"
            return CpuSupport(computes=True, repacks=False, reason=reason), True
        case status:
            message = (done.stderr.strip().splitlines() or ["no message"])[-1]
            reason = f"the CPU probe failed with status {status}: {message[:300]}"
            return CpuSupport(computes=True, repacks=False, reason=reason), False


def model_params() -> Any:
    """Return llama.cpp's default model parameters, adapted to this CPU.

    Raises SetupError if nothing does.
    """
    # `gbnf doctor` uses this module even if llama.cpp cannot be loaded
    from gbnf_server.llama.bindings import llama_cpp  # noqa: PLC0415  # it loads the library

    params = llama_cpp.llama_model_default_params()
    support = cpu_support()
    if not support.computes:
        raise SetupError(
            f"this build of llama.cpp does not run on this CPU: {support.reason}. Compile it here with "
            f"`{REINSTALL}`; see `gbnf doctor`."
        )
    if not support.repacks:
        _log.info("weights are not repacked: %s", support.reason)
        params.use_extra_bufts = False
    return params


def library_folder() -> Path | None:
    """Return where llama-cpp-python loads llama.cpp's libraries from; None if it is not installed."""
    chosen = os.environ.get("LLAMA_CPP_LIB_PATH")
    if chosen:
        return Path(chosen)
    spec = find_spec("llama_cpp")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "lib"


def cpu_features() -> str:
    """Return the CPU's features: on Linux the flags of the first core, elsewhere its name."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in {"flags", "Features"}:  # x86, ARM
                return value.strip()
    if sys.platform == "darwin":
        with suppress(OSError, subprocess.SubprocessError):
            return run_program(["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"], 10).stdout.strip()
    return platform.processor()


def _identity() -> str:
    """Return a hash of llama.cpp's libraries, the CPU, and the probe itself."""
    identity = sha256(f"{platform.machine()} {cpu_features()}\n".encode())
    identity.update(_PROGRAM.read_bytes())
    prebuilt: Path | None = None
    with suppress(SetupError):
        prebuilt = prebuilt_library(os.environ)
    if prebuilt is not None:
        state = prebuilt.stat()  # reading its 100 MB would take a tenth of a second in each process
        identity.update(f"{prebuilt} {state.st_size} {state.st_mtime_ns}\n".encode())
    elif folder := library_folder():
        for file in sorted(file for pattern in _LIBRARIES for file in folder.glob(pattern)):
            identity.update(file.name.encode() + b"\0" + sha256(file.read_bytes()).digest())
    return identity.hexdigest()[:32]
