"""A real PostgreSQL in a folder of the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _command(name: str) -> str | None:
    places = [str(path) for path in Path("/usr/lib/postgresql").glob("*/bin")]
    return shutil.which(name, path=os.pathsep.join([*places, os.environ.get("PATH", "")]))


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """Run a server, which is reached by a socket in the folder, and give its URL. Skip without PostgreSQL."""
    initdb, pg_ctl = _command("initdb"), _command("pg_ctl")
    if initdb is None or pg_ctl is None:
        pytest.skip("no PostgreSQL")
    user = None
    if os.geteuid() == 0:  # it refuses to run as root
        user = "postgres"
        shutil.chown(folder, user)
        for parent in folder.parents:
            if parent.stat().st_uid == 0 and parent != Path(parent.anchor):
                parent.chmod(parent.stat().st_mode | 0o011)

    def run(*command: str) -> None:
        subprocess.run(
            command, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )

    data = str(folder / "data")
    run(initdb, "--pgdata", data, "--username", "gbnf", "--auth", "trust", "--no-sync")
    options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
    run(pg_ctl, "start", "--pgdata", data, "--wait", "--log", str(folder / "log"), "--options", options)
    try:
        yield f"postgresql://gbnf@/postgres?host={folder}"
    finally:
        run(pg_ctl, "stop", "--pgdata", data, "--mode", "immediate")


def restart(url: str) -> None:
    """Restart the server: all connections break."""
    folder = Path(url.partition("host=")[2])
    pg_ctl = _command("pg_ctl")
    assert pg_ctl is not None
    user = "postgres" if os.geteuid() == 0 else None
    command = [pg_ctl, "restart", "--pgdata", str(folder / "data"), "--mode", "immediate", "--wait"]
    subprocess.run(command, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL)
