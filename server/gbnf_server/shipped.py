"""Where the manifests that come with the package lie.

Installed, they are `gbnf_server/manifests`; in a checkout (an editable install) they are `manifests/` at its
root, two folders above this package's.
"""

from __future__ import annotations

from pathlib import Path

from gbnf_server.errors import SetupError

_PACKAGE = Path(__file__).resolve().parent


def manifests_path() -> Path:
    """The folder of the shipped manifests. Raises SetupError where the installation lost it."""
    candidates = (_PACKAGE / "manifests", _PACKAGE.parent.parent / "manifests")
    for folder in candidates:
        if any(folder.glob("*/manifest.toml")):
            return folder
    raise SetupError(
        f"the shipped manifests are at neither {candidates[0]} nor {candidates[1]}; "
        "install gbnf-toolkit again, or name a folder of your own"
    )
