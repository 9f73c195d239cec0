"""The folders of this user's files outside of workspaces."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

CACHE_VARIABLE = "GBNF_CACHE"
PROFILES_VARIABLE = "GBNF_PROFILES"


def cache_folder() -> Path:
    """Return $GBNF_CACHE, otherwise the user's cache folder. It may not exist yet."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("gbnf"))


def profiles_folder() -> Path:
    """Return $GBNF_PROFILES, otherwise `profiles` in the user's configuration folder. It may not exist."""
    chosen = os.environ.get(PROFILES_VARIABLE)
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_config_dir("gbnf")) / "profiles"
