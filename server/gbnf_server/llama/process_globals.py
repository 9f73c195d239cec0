"""All changes to the state of the whole process, which other code that uses llama.cpp in it sees too.

function                    what breaks without it
initialize_engine           llama.cpp would be used uninitialized, would log to the terminal, and the reason
                            why a model cannot be loaded would be missing from ModelLoadError
capture_stderr              llama.cpp prints syntax errors of a grammar to `stderr` instead of its log: they
                            would appear on the terminal and be missing from GrammarRefusedError
patch_default_model_params  `llama_cpp.Llama` would repack weights where that crashes (`cpu_support`); this
                            package itself does not use `Llama`, but its benchmarks, training and tests do
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from gbnf_server.llama.bindings import llama_cpp
from gbnf_server.llama.cpu_support import model_params

_log = logging.getLogger("gbnf_server.llama.bindings")
_GGML_LOG_LEVEL_ERROR = 4  # ggml.h, enum ggml_log_level
_captured: ContextVar[list[str] | None] = ContextVar("captured", default=None)
_stderr_lock = threading.Lock()


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]  # llama_cpp ships no types
def _forward_log(level: int, text: bytes, _user_data: ctypes.c_void_p) -> None:
    message = text.decode(errors="replace")
    captured = _captured.get()
    if captured is not None and level >= _GGML_LOG_LEVEL_ERROR:
        captured.append(message)
    if message.strip():
        _log.debug("%s", message.rstrip())


@cache
def initialize_engine() -> None:
    """Initialize llama.cpp, once per process, and send its log to `gbnf_server.llama.bindings`."""
    llama_cpp.llama_backend_init()
    llama_cpp.llama_log_set(_forward_log, ctypes.c_void_p(0))


@contextmanager
def capture_log_errors() -> Iterator[list[str]]:
    """Collect the errors that llama.cpp logs in this thread."""
    messages: list[str] = []
    token = _captured.set(messages)
    try:
        yield messages
    finally:
        _captured.reset(token)


@contextmanager
def capture_stderr() -> Iterator[list[str]]:
    """Collect what C code prints to `stderr` in any thread, as one string.

    The C library's variable `stderr` points to a temporary file meanwhile; file descriptor 2, which Python
    and child processes use, does not change. Only glibc and macOS allow that: elsewhere nothing is captured.
    """
    printed: list[str] = []
    with _stderr_lock:
        if (capture := _stderr_capture()) is None:
            yield printed
            return
        variable, stream, flush, fd = capture
        before, variable.value = variable.value, stream
        try:
            yield printed
        finally:
            variable.value = before
            flush(stream)
            printed.append(os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace"))
            os.ftruncate(fd, 0)


@cache
def _stderr_capture() -> tuple[ctypes.c_void_p, int, Callable[[int], int], int] | None:
    """Return the C variable, the stream to point it to, `fflush`, and the stream's file descriptor."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version") and sys.platform != "darwin":
        return None
    variable = ctypes.c_void_p.in_dll(libc, "__stderrp" if sys.platform == "darwin" else "stderr")
    libc.fflush.argtypes = [ctypes.c_void_p]
    libc.fdopen.argtypes, libc.fdopen.restype = [ctypes.c_int, ctypes.c_char_p], ctypes.c_void_p
    with tempfile.TemporaryFile() as file:
        fd = os.dup(file.fileno())
    return variable, libc.fdopen(fd, b"a"), libc.fflush, fd  # never closed: another thread may still print


def patch_default_model_params() -> None:
    """Make `llama_cpp.Llama` load models with `model_params`; it has no argument for that. Idempotent."""
    defaults: Any = llama_cpp.llama_cpp  # where `Llama` looks it up; `model_params` uses the package's name
    defaults.llama_model_default_params = model_params
