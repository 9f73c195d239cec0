"""Packages whose names are imported on first use, so that importing them costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, names_of: Mapping[str, Sequence[str]], extra: str = ""
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package, from the names of its modules.

    `extra`: of the distribution, which a missing module is reported to be of.
    """
    module_of = {name: module for module, names in names_of.items() for name in names}

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(module_of[name]), name)
        except ModuleNotFoundError as error:
            from gbnf.extras import missing_extra  # noqa: PLC0415  # few programs lack one

            raise (missing_extra(error, extra) if extra else None) or error from error
        setattr(sys.modules[package], name, value)
        return value

    return sorted(module_of), load, lambda: sorted(module_of)
