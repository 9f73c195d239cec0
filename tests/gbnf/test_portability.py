"""`gbnf` alone imports and compiles where nothing of POSIX, llama.cpp or the other package is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.oracle import CHECKOUT

_PROGRAM = """
import sys

ABSENT = {"fcntl", "resource", "termios", "pwd", "grp", "pty", "syslog", "llama_cpp", "httpx", "numpy",
          "psutil", "gbnf_server", "hypothesis"}

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"no module named {name!r}", name=name)

for name in ABSENT & sys.modules.keys():
    del sys.modules[name]
sys.meta_path.insert(0, Absent())

import os
for name in ("fork", "memfd_create", "pidfd_open", "sched_getaffinity", "getuid", "mkfifo"):
    if hasattr(os, name):
        delattr(os, name)

from gbnf import compile_pool, compile_schema, filter_pool, load_manifests, validate_call
pool = filter_pool(load_manifests(sys.argv[1]), "what time is it?").kept
call = {"name": "get_now", "arguments": {}}
print(validate_call(call, pool), len(str(compile_pool(pool))) > 0, compile_schema({"type": "integer"}).exact)
"""


@pytest.mark.slow
def test_it_needs_nothing_of_the_system() -> None:
    command = [sys.executable, "-c", _PROGRAM, str(CHECKOUT / "manifests")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("True True\n")
