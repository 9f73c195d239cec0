"""The public names of packages, each stated once: by the import that brings it."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType


def exported(package: Mapping[str, object]) -> list[str]:
    """Return what a package exports: its names so far, without modules and those with an underscore."""
    found = (name for name, value in package.items() if not isinstance(value, ModuleType))
    return sorted(name for name in found if not name.startswith("_"))
