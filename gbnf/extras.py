"""The optional packages, and the extras of this distribution that install them."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from gbnf.errors import GbnfError

PACKAGES: Mapping[str, str] = {
    "anyio": "mcp",
    "docstring_parser": "functions",
    "httpcore": "client",
    "httpx": "client",
    "httpx2": "mcp",
    "huggingface_hub": "local",
    "icalendar": "run",
    "llama_cpp": "local",
    "lsprotocol": "lsp",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "numpy": "local",
    "prometheus_client": "serve",
    "psutil": "local",
    "psycopg": "postgres",
    "pydantic": "functions",
    "pydantic_core": "functions",
    "pygls": "lsp",
    "railroad": "inspect",
    "ray": "ray",
    "recurring_ical_events": "run",
    "starlette": "serve",
    "uvicorn": "serve",
}
"""The packages that are imported without being required, and for each the smallest extra that has it."""

_CPU_MINUTES = 8
"""Of the compiler: docs/reference/machines.md."""

_INCLUDED: Mapping[str, frozenset[str]] = {
    "inspect": frozenset({"client", "functions", "serve"}),
    "local": frozenset({"client"}),
    "mcp": frozenset({"functions", "serve"}),
    "run": frozenset({"client", "functions", "local"}),
    "serve": frozenset({"client", "functions"}),
}
"""For an extra, those whose packages a command that needs it gets with it."""


class MissingExtraError(GbnfError, ImportError):
    """A package of an extra is not installed. The message has the command that installs it."""


def missing_extra(error: ImportError, wanted: str | None = None) -> MissingExtraError | None:
    """Return the error for an optional package that cannot be found; None if it is not one of `PACKAGES`.

    `wanted`: the extra of what was called.
    """
    package = (error.name or "").partition(".")[0]
    extra = PACKAGES.get(package)
    if extra is None or not isinstance(error, ModuleNotFoundError):
        return None
    if wanted is not None:
        extra = wanted if extra in {wanted, *_INCLUDED.get(wanted, ())} else f"{wanted},{extra}"
    hint = ""
    is_prebuilt = sys.platform == "linux" and platform.machine() == "x86_64"
    if not ({"run", "local"}.isdisjoint(extra.split(",")) or is_installed("local") or is_prebuilt):
        minutes = max(round(_CPU_MINUTES / (os.cpu_count() or 1)), 1)
        hint = f"\nThis compiles llama.cpp, in about {minutes} min."
    return MissingExtraError(f"{package} is not installed. Install it: {install_command(extra)}{hint}")


def is_installed(extra: str) -> bool:
    """Return whether the packages of an extra are installed, without importing them."""
    packages = [package for package, name in PACKAGES.items() if name == extra]
    if find_spec("xllamacpp"):  # where it is installed instead
        packages = [package for package in packages if package != "llama_cpp"]
    return all(find_spec(package) is not None for package in packages)


def install_command(extra: str) -> str:
    """Return the command that installs an extra for this Python."""
    path = shutil.which("pip")
    is_own = path is not None and Path(path).parent == Path(sys.executable).parent
    pip = "pip" if is_own else f"{shlex.quote(sys.executable)} -m pip"
    return f"{pip} install 'gbnf-toolkit[{extra}]'"
