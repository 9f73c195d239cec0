"""Keeps llama.cpp's chat templates, and its test of how they are read, from llama-cpp-python's source.

python tests/support/llama_source.py
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

KEPT = ("models/templates/", "tests/test-chat.cpp")


def kept_source() -> Path:
    """Return the folder of what is kept of the source that is built. It may not exist."""
    from gbnf_server.llama.server_build import source_version
    from gbnf_server.system.folders import cache_folder

    return cache_folder() / "llama-server" / f"{source_version()}-source"


def keep(archive: Path, target: Path) -> None:
    """Keep the files of an archive, all of them or none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent) as folder, tarfile.open(archive) as files:
        for member in files:
            name = member.name.partition("/vendor/llama.cpp/")[2]
            if member.isfile() and name.startswith(KEPT) and ".." not in name:
                path = Path(folder, "kept", name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(files.extractfile(member).read())  # type: ignore[union-attr]  # it is a file
        Path(folder, "kept").replace(target)


if __name__ == "__main__" and not kept_source().is_dir():
    with TemporaryDirectory() as downloads:
        wanted = f"llama-cpp-python=={kept_source().name.removesuffix('-source')}"
        options = ["--no-deps", "--no-binary", "llama-cpp-python", "--dest", downloads]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, wanted], check=True)
        keep(next(Path(downloads).glob("*.tar.gz")), kept_source())
