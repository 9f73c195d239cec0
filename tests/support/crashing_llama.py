"""A llama.cpp that dies as some builds do, on any machine: the library by a preloaded one, a server by a
script.

GCC 12 drops stores that AMX code needs, so that llama.cpp gets SIGSEGV at the first matrix product with
repacked weights. The preloaded library does the same to whatever computes with weights in llama.cpp's
repacking buffers, and leaves all else alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from gbnf_server.llama.prebuilt import prebuilt_library

_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>

struct tensor { /* the head of struct ggml_tensor in ggml.h */
    int type;
    void *buffer;
    int64_t ne[4];
    size_t nb[4];
    int op;
    int32_t op_params[16];
    int32_t flags;
    struct tensor *src[10];
};

static int dies(const char *buffer) {
    return !strcmp(buffer, "CPU_REPACK") || !strcmp(buffer, "AMX") || DIES_OF_ALL;
}

int ggml_backend_sched_graph_compute_async(void *sched, void *graph) {
    void *ggml = dlopen("LIBRARY", RTLD_LAZY | RTLD_NOLOAD);
    int (*nodes)(void *) = (int (*)(void *))dlsym(ggml, "ggml_graph_n_nodes");
    struct tensor *(*node)(void *, int) = (struct tensor *(*)(void *, int))dlsym(ggml, "ggml_graph_node");
    const char *(*name)(void *) = (const char *(*)(void *))dlsym(ggml, "ggml_backend_buffer_name");
    int (*compute)(void *, void *) =
        (int (*)(void *, void *))dlsym(ggml, "ggml_backend_sched_graph_compute_async");
    for (int i = 0; i < nodes(graph); i++) {
        struct tensor *weights = node(graph, i)->src[0];
        if (weights && weights->buffer && dies(name(weights->buffer))) raise(SIGSEGV);
    }
    return compute(sched, graph);
}
"""


def crashing_environment(folder: Path, *, always: bool = False) -> Mapping[str, str]:
    """Return an environment in which llama.cpp dies of repacked weights (`always`: of any computation).

    Its cache is in `folder`. Skips where no C compiler is, or no library can be preloaded so.
    """
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs Linux and a C compiler")
    source, library = folder / "crash.c", folder / "crash.so"
    engine = str(prebuilt_library(os.environ) or "libggml-base.so.0")
    source.write_text(_SOURCE.replace("DIES_OF_ALL", str(int(always))).replace("LIBRARY", engine))
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return {**os.environ, "LD_PRELOAD": str(library), "GBNF_CACHE": str(folder / "cache")}


def crashing_server(folder: Path, real: str) -> Path:
    """Write a program that runs `real`, but is killed by SIGSEGV unless repacking is disabled."""
    script = folder / "llama-server"
    script.write_text(
        "#!/bin/sh\n"
        f'echo "$*" >> {folder}/starts\n'
        f'case " $* " in *" --no-repack "*) exec {real} "$@";; esac\n'
        "kill -SEGV $$\n"
    )
    script.chmod(0o755)
    return script
