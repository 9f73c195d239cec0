"""Write profiles, which `gbnf_server.planner.profiles` reads."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

from gbnf_server.planner.profiles import Profile
from gbnf_server.system.errors import SetupError
from gbnf_server.system.folders import profiles_folder


def save(profile: Profile, folder: Path | None = None) -> Path:
    """Write the profile, and return its path; replace one of the same model and tools. Raises SetupError."""
    folder = folder or profiles_folder()
    key = f"{profile.model.name}|{profile.model.size}|{profile.tools}"
    slug = re.sub(r"[^a-z0-9.]+", "-", profile.model.name.lower()).strip("-.")[:60] or "model"
    path = folder / f"{slug}-{sha256(key.encode()).hexdigest()[:8]}.toml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".new")
        temporary.write_text(profile_text(profile), "utf-8")
        temporary.replace(path)
    except OSError as error:
        raise SetupError(f"the profile {path} can't be written: {error.strerror or error}") from None
    return path


def profile_text(profile: Profile) -> str:
    """Return the profile as TOML."""
    model = {"name": profile.model.name} | (
        {} if profile.model.size is None else {"bytes": profile.model.size}
    )
    tables = {"model": model, "settings": profile.settings, "measured": profile.measured}
    lines = [f"strategy = {_toml(profile.strategy)}", f"tools = {_toml(profile.tools)}"]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    return json.dumps(value)
