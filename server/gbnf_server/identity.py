"""What decides a run, as short hashes: two runs of equal hashes would do the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gbnf.manifests import Executor


def digest(value: Any) -> str:
    """A short hash of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=repr).encode()).hexdigest()[:16]


def tool_identity(tool: Executor) -> Mapping[str, Any]:
    """What of a tool decides a run: its manifest, and not where it lies."""
    return {
        "name": tool.name,
        "descriptions": dict(tool.descriptions),
        "args": tool.args,
        "offer": asdict(tool.offer),
        "run": asdict(tool.run),
    }
