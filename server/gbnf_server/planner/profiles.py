"""Profiles: the best strategy for a model and a set of tools, each in a TOML file, which `gbnf tune` writes.

A profile belongs to a model by its name (that of its file, or the one that a server uses) and the size of its
file: a profile that was measured in process is also found if a llama-server serves the same file. The hash of
the file is stored for information only: reading gigabytes before each run would take too long. A set of tools
is identified by their names, descriptions and arguments, which are what the model sees.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Self, get_args

from gbnf.compiler.layout import Whitespace
from gbnf.prompts.messages import PromptStyle
from gbnf.requests.evidence import EvidenceUse
from gbnf.tools import Tool
from gbnf_server.planner.options import CallFormat, ReasoningMode
from gbnf_server.system.errors import SetupError
from gbnf_server.system.folders import profiles_folder

SETTINGS: Mapping[str, type[int] | tuple[str, ...]] = {
    "call_format": get_args(CallFormat),
    "whitespace": get_args(Whitespace),
    "evidence": get_args(EvidenceUse),
    "reasoning": get_args(ReasoningMode),
    "reasoning_budget": int,
    "prompt_style": get_args(PromptStyle),
}
"""What a profile may set: options of the planner, and the backend's prompt style. Each with its values."""


@dataclass(frozen=True, slots=True)
class ModelKey:
    """Identifies a model: its name, and the size of its file in bytes if known."""

    name: str
    size: int | None = None

    def matches(self, other: Self) -> bool:
        """Return whether both may be the same model."""
        return self.name == other.name and (None in (self.size, other.size) or self.size == other.size)


def tools_key(tools: Iterable[Tool]) -> str:
    """Return what identifies a set of tools: a hash of what a model sees of them, in any order."""
    seen = sorted(json.dumps([tool.name, tool.descriptions, tool.model_args()]) for tool in tools)
    return sha256("\n".join(seen).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Profile:
    """The best `strategy` for a model and a set of tools (`tools_key`), and the `settings` that it sets.

    `measured` is for information: the suites, how many runs, how many of them converged.
    """

    model: ModelKey
    tools: str
    strategy: str
    settings: Mapping[str, Any]
    measured: Mapping[str, Any] = field(default_factory=dict)


def find(model: ModelKey, folder: Path | None = None) -> list[tuple[Profile, Path]]:
    """Return the profiles of a model, each for other tools. Raises SetupError if a profile is invalid."""
    folder = folder or profiles_folder()
    paths = sorted(folder.glob("*.toml")) if folder.is_dir() else []
    return [(profile, path) for path in paths if (profile := load(path)).model.matches(model)]


def load(path: Path) -> Profile:
    """Read a profile. Raises SetupError."""

    def invalid(problem: str) -> SetupError:
        return SetupError(f"the profile {path}: {problem}. Correct it, delete it, or use --no-profile.")

    try:
        value = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise invalid(f"it can't be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise invalid(f"invalid TOML: {error}") from None
    match value:
        case {"strategy": str(strategy), "model": {"name": str(name), **more}, "settings": dict(settings)}:
            size = more.get("bytes")
        case _:
            raise invalid("strategy, [model] with a name, and [settings] are required")
    if size is not None and not isinstance(size, int):
        raise invalid(f"[model] bytes is {size!r}; it must be an integer")
    for key, setting in settings.items():
        match SETTINGS.get(key):
            case None:
                raise invalid(f"[settings] {key} is unknown. Use {', '.join(SETTINGS)}")
            case tuple() as choices if setting not in choices:
                raise invalid(f"[settings] {key} = {setting!r} is none of {', '.join(choices)}")
            case type() if type(setting) is not int or setting < 1:
                raise invalid(f"[settings] {key} = {setting!r} is not an integer of at least 1")
    return Profile(
        ModelKey(name, size), str(value.get("tools", "")), strategy, settings, value.get("measured", {})
    )
