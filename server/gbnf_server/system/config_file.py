"""Find the configuration file of the command line.

Invariant: a file of another user is never used, since it names programs to run.
"""

from __future__ import annotations

import os
from pathlib import Path

from gbnf_server.system.errors import InputError, SetupError
from gbnf_server.system.folders import config_folder

CONFIG_VARIABLE = "GBNF_CONFIG"
FILE_NAME = "gbnf.toml"


def find_config_file(folder: Path | None = None) -> Path | None:
    """Return the configuration file, None if there is none.

    It is $GBNF_CONFIG (empty: no file), otherwise the first `gbnf.toml` in `folder` (default: the current
    one) and the folders above it, otherwise the one in the user's configuration folder. Raises InputError if
    the variable names no file, SetupError for a file of another user.
    """
    chosen = os.environ.get(CONFIG_VARIABLE)
    if chosen is not None:
        if chosen and not Path(chosen).is_file():
            raise InputError(f"${CONFIG_VARIABLE} is {chosen}, which is not a file. Correct or unset it.")
        return Path(chosen).absolute() if chosen else None
    start = (folder or Path.cwd()).absolute()
    candidates = [place / FILE_NAME for place in (start, *start.parents)]
    candidates.append(config_folder() / FILE_NAME)
    found = next((path for path in candidates if path.is_file()), None)
    if found is not None and found.stat().st_uid not in {os.getuid(), 0}:
        raise SetupError(
            f"{found} belongs to another user, and may name programs to run. Remove it, or ignore it with "
            f"{CONFIG_VARIABLE}= in the environment."
        )
    return found
