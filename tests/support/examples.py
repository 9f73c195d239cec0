"""The programs in `examples/`, run as their docstrings say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(name: str, folder: Path, *arguments: object, **environment: str) -> str:
    """Run an example in a folder with arguments and more variables; return what it prints."""
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    variables = os.environ | {"NO_PROXY": "127.0.0.1"} | environment
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
