"""Where a command's tools come from: options that several commands share."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that the others start quickly

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gbnf.tools import Tool


@dataclass(frozen=True, slots=True)
class ToolSources:
    """The tools that a command line names; without any, the bundled ones."""

    manifests: Sequence[Path] = ()

    @contextmanager
    def open(self) -> Iterator[tuple[Tool, ...]]:
        """Load the tools, for use inside the block."""
        from gbnf import load_manifests
        from gbnf_server.bundled import manifests_path

        yield load_manifests(self.manifests or manifests_path())
