"""The code that determines a run: of its tools, and of the packages that it decodes with."""

from __future__ import annotations

import hashlib
import inspect
import platform
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gbnf.tools import Tool

_PACKAGES = ("gbnf-toolkit", "llama-cpp-python", "jsonschema", "numpy")


def code_identity(tool: Tool) -> Mapping[str, str]:
    """Return the names and hashes of the Python files that execute a tool.

    They are the file of its function, otherwise those beside its manifest.
    """
    if tool.function is not None:
        files = _source_files(tool.function)
    elif tool.path is not None:
        files = sorted(tool.path.parent.glob("*.py"))
    else:
        files = []
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()}


def _source_files(function: Callable[..., Any]) -> list[Path]:
    """Return the file that defines a function, or the class of a callable object, if there is one."""
    named = inspect.unwrap(function)
    try:
        file = inspect.getsourcefile(named if hasattr(named, "__code__") else type(named))
    except (TypeError, OSError):  # built in, or typed at a prompt
        return []
    return [] if file is None else [Path(file)]


def versions() -> dict[str, str]:
    """Return the versions of Python, of this toolkit, and of the packages that it decodes with."""
    return {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
