"""The folders of this user's files outside of workspaces: those of macOS, or of XDG's specification."""

from __future__ import annotations

import os
import sys
from pathlib import Path

CACHE_VARIABLE = "GBNF_CACHE"
PROFILES_VARIABLE = "GBNF_PROFILES"


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
