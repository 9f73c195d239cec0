"""The metadata of a stored bench: versions, machine, model, settings."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from gbnf_bench.runner import RunOptions
from gbnf_server.planner.fingerprints import versions


def about(
    label: str, model: Mapping[str, Any], options: RunOptions, made_at: datetime | None = None
) -> dict[str, Any]:
    """Return the header of a stored bench, as JSON.

    `made_at`: the time of its latest run; by default now.
    """
    return {
        "label": label,
        "made_at": (made_at or datetime.now(UTC)).isoformat(timespec="seconds"),
        "versions": versions(),
        "machine": {"system": sys.platform, "architecture": platform.machine()},
        "model": dict(model),
        "options": asdict(options),
    }
