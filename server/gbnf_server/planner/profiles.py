"""Profiles: which way of calling is best for a model, as it was measured, kept in a TOML file for each model.

A profile belongs to a model by its name (a file's, or the one that a server uses) and, where it is a file, by
its size: one that was measured in process is found again when a llama-server serves the same file. The file's
hash is kept too, for people: reading gigabytes before each run would take too long.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Self, get_args

from gbnf.prompts.messages import PromptStyle
from gbnf_server.errors import SetupError
from gbnf_server.planner.reasoning import ReasoningMode
from gbnf_server.system.folders import profiles_folder

SETTING_TYPES: Mapping[str, type] = {
    "grammar": bool,
    "soft": bool,
    "lines": bool,
    "reasoning": str,
    "thought_tokens": int,
    "prompt_style": str,
}
"""What a profile may set: parameters of `Planner`, and the backend's prompt style."""

SETTING_CHOICES: Mapping[str, tuple[str, ...]] = {
    "reasoning": get_args(ReasoningMode),
    "prompt_style": get_args(PromptStyle),
}
"""The values of those settings that have few."""


@dataclass(frozen=True, slots=True)
class ModelKey:
    """What tells a model apart, quickly: its name, and the size of its file in bytes where that is known."""

    name: str
    size: int | None = None

    def matches(self, other: Self) -> bool:
        return self.name == other.name and (None in (self.size, other.size) or self.size == other.size)


@dataclass(frozen=True, slots=True)
class Profile:
    """The best `rung` for a model, the `settings` that make it, and on what that was found.

    `measured` are numbers and words for people: the suite, how many cases, how many of them converged.
    """

    model: ModelKey
    strategy: str
    settings: Mapping[str, Any]
    measured: Mapping[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """The profile as TOML."""
        model = {"name": self.model.name} | ({} if self.model.size is None else {"bytes": self.model.size})
        tables = {"model": model, "settings": self.settings, "measured": self.measured}
        lines = [f"rung = {_toml(self.strategy)}"]
        for name, table in tables.items():
            lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
        return "\n".join(lines) + "\n"


def save(profile: Profile, folder: Path | None = None) -> Path:
    """Write it; one of the same model is replaced. Raises SetupError."""
    folder = folder or profiles_folder()
    key = f"{profile.model.name}|{profile.model.size}"
    slug = re.sub(r"[^a-z0-9.]+", "-", profile.model.name.lower()).strip("-.")[:60] or "model"
    path = folder / f"{slug}-{sha256(key.encode()).hexdigest()[:8]}.toml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".new")
        temporary.write_text(profile.text(), "utf-8")
        temporary.replace(path)
    except OSError as error:
        raise SetupError(f"the profile {path} can't be written: {error.strerror or error}") from None
    return path


def find(model: ModelKey, folder: Path | None = None) -> tuple[Profile, Path] | None:
    """The profile of a model, and its file. Raises SetupError where one is broken."""
    folder = folder or profiles_folder()
    paths = sorted(folder.glob("*.toml")) if folder.is_dir() else []
    return next(((found, path) for path in paths if (found := load(path)).model.matches(model)), None)


def load(path: Path) -> Profile:
    """Read one. Raises SetupError, which names the location and a hint."""

    def broken(problem: str) -> SetupError:
        return SetupError(f"the profile {path}: {problem}. Correct it, delete it, or run with --no-profile.")

    try:
        value = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise broken(f"it can't be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise broken(f"invalid TOML: {error}") from None
    match value:
        case {"rung": str(strategy), "model": {"name": str(name), **more}, "settings": dict(settings)}:
            size = more.get("bytes")
        case _:
            raise broken("rung, [model] with a name, and [settings] are needed")
    if size is not None and not isinstance(size, int):
        raise broken(f"[model] bytes is {size!r}, and no whole number")
    for key, setting in settings.items():
        if key not in SETTING_TYPES or type(setting) is not SETTING_TYPES[key]:
            known = ", ".join(SETTING_TYPES)
            raise broken(f"[settings] {key} = {setting!r} is not known; there are {known}")
        if (allowed := SETTING_CHOICES.get(key)) and setting not in allowed:
            raise broken(f"[settings] {key} = {setting!r} is none of {', '.join(allowed)}")
        if key == "thought_tokens" and isinstance(setting, int) and setting < 1:
            raise broken(f"[settings] {key} = {setting!r} is below 1")
    return Profile(ModelKey(name, size), strategy, settings, value.get("measured", {}))


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    return json.dumps(value)
