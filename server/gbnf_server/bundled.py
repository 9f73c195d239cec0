"""Where the manifests and the bench's suites that come with the package lie.

Installed, they are `gbnf_server/manifests` and `gbnf_server/suites`; in a checkout (an editable install) they
are `manifests/` and `bench/suites/` at its root, two folders above this package's.
"""

from __future__ import annotations

from pathlib import Path

from gbnf_server.errors import SetupError

_PACKAGE = Path(__file__).resolve().parent


def manifests_path() -> Path:
    """The folder of the shipped manifests. Raises SetupError where the installation lost it."""
    return _folder("manifests", "manifests", "*/manifest.toml")


def describe_frame_manifest() -> Path:
    """The manifest of `describe_frame`, a tool for requests with an image, which the folder leaves out."""
    return manifests_path() / "describe_frame" / "on_request.toml"


def suites_path() -> Path:
    """The folder of the shipped suites of the planner bench. Raises SetupError as above."""
    return _folder("suites", "bench/suites", "*.toml")


def _folder(name: str, in_checkout: str, file: str) -> Path:
    candidates = (_PACKAGE / name, _PACKAGE.parent.parent / in_checkout)
    for folder in candidates:
        if any(folder.glob(file)):
            return folder
    raise SetupError(
        f"the shipped {name} are at neither {candidates[0]} nor {candidates[1]}; "
        "install gbnf-toolkit again, or name a folder of your own"
    )
