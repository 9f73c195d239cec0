"""Paths of the bundled manifests and suites.

In an installation they are `gbnf_server/manifests` and `gbnf_server/suites`; in a checkout (an editable
install) `manifests/` and `bench/suites/` at its root.
"""

from __future__ import annotations

from pathlib import Path

from gbnf_server.system.errors import SetupError

_PACKAGE = Path(__file__).resolve().parents[1]


def manifests_path() -> Path:
    """Return the folder of the bundled manifests. Raises SetupError if it is missing."""
    return _folder("manifests", "manifests", "*/manifest.toml")


def describe_frame_manifest() -> Path:
    """Return the manifest of `describe_frame`, which is loaded only for requests with an image."""
    return manifests_path() / "describe_frame" / "on_request.toml"


def suites_path() -> Path:
    """Return the folder of the bundled suites. Raises SetupError if it is missing."""
    return _folder("suites", "bench/suites", "*.toml")


def _folder(name: str, in_checkout: str, file: str) -> Path:
    candidates = (_PACKAGE / name, _PACKAGE.parent.parent / in_checkout)
    for folder in candidates:
        if any(folder.glob(file)):
            return folder
    raise SetupError(
        f"the bundled {name} are missing from {candidates[0]} and {candidates[1]}. "
        "Reinstall gbnf-toolkit, or give a folder of your own."
    )
