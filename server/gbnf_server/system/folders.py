"""Folders outside of workspaces: this user's, of macOS or of XDG's specification, and the bundled ones.

The bundled manifests and suites are `gbnf_server/manifests` and `gbnf_server/suites` in an installation, and
`manifests/` and `bench/suites/` at the root of a checkout (an editable install).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gbnf_server.system.errors import SetupError

CACHE_VARIABLE = "GBNF_CACHE"
PROFILES_VARIABLE = "GBNF_PROFILES"
_PACKAGE = Path(__file__).resolve().parents[1]


def cache_folder() -> Path:
    """Return $GBNF_CACHE, otherwise the user's cache folder. It may not exist yet."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).expanduser() if chosen else _user_folder("XDG_CACHE_HOME", ".cache", "Caches")


def profiles_folder() -> Path:
    """Return $GBNF_PROFILES, otherwise `profiles` in the user's configuration folder. It may not exist."""
    chosen = os.environ.get(PROFILES_VARIABLE)
    return Path(chosen).expanduser() if chosen else config_folder() / "profiles"


def config_folder() -> Path:
    """Return the user's configuration folder. It may not exist."""
    return _user_folder("XDG_CONFIG_HOME", ".config", "Application Support")


def _user_folder(variable: str, default: str, on_macos: str) -> Path:
    chosen = os.environ.get(variable, "").strip()
    if chosen:
        return Path(chosen).expanduser() / "gbnf"
    return Path.home() / (Path("Library") / on_macos if sys.platform == "darwin" else default) / "gbnf"


def manifests_path() -> Path:
    """Return the folder of the bundled manifests. Raises SetupError if it is missing."""
    return bundled_folder("manifests", "manifests", "*/manifest.toml")


def describe_frame_manifest() -> Path:
    """Return the manifest of `describe_frame`, which is loaded only for requests with an image."""
    return manifests_path() / "describe_frame" / "on_request.toml"


def bundled_folder(name: str, in_checkout: str, file: str) -> Path:
    """Return a folder of the installation or of a checkout. `file`: a pattern of what is in it.

    Raises SetupError if it is missing.
    """
    candidates = (_PACKAGE / name, _PACKAGE.parent.parent / in_checkout)
    for folder in candidates:
        if any(folder.glob(file)):
            return folder
    raise SetupError(
        f"the bundled {name} are missing from {candidates[0]} and {candidates[1]}. "
        "Reinstall gbnf-toolkit, or give a folder of your own."
    )
