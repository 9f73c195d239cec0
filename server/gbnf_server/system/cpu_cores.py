"""The CPU cores that this process may use: a model computes with one thread on each.

llama.cpp's threads wait for each other several hundred times a token, so that one without a core of its own
holds up all others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class UsableCores:
    """How many cores this process may use, at least 1, and what limits them, for a person."""

    count: int
    reason: str


def usable_cores(root: Path = _ROOT) -> UsableCores:
    """Return the physical cores that affinity and CPU quota allow. `root`: of /proc and /sys."""
    import psutil  # noqa: PLC0415  # `gbnf doctor` gets along without it

    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    siblings = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    cores = len({_read(root / siblings.format(cpu)) or str(cpu) for cpu in cpus})
    cores = min(cores, psutil.cpu_count(logical=False) or cores)
    # the smallest of the process's cgroups and their parents, in CPUs
    quota = min((quota for folder in _cgroups(root) for quota in _quotas(folder)), default=None)
    if quota is not None and quota < cores:
        return UsableCores(max(1, int(quota)), f"the cgroup's quota is {quota:g} CPUs")
    return UsableCores(cores, f"physical cores among the {len(cpus)} CPUs that this process may use")


def _cgroups(root: Path) -> Iterator[Path]:
    """Yield the folders of the cgroups with CPU quotas. Inside a container, some of them do not exist."""
    mounts = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        inside = PurePosixPath(path.lstrip("/"))
        folders = [PurePosixPath()] if ".." in inside.parts else [inside, *inside.parents]
        for mount in (controllers, "cpu") if controllers else ("", "unified"):
            yield from (mounts / mount / folder for folder in folders)


def _quotas(folder: Path) -> Iterator[float]:
    """Yield the quotas in a cgroup: `cpu.max` of version 2, or the two files of version 1."""
    version_2 = _read(folder / "cpu.max")
    version_1 = f"{_read(folder / 'cpu.cfs_quota_us')} {_read(folder / 'cpu.cfs_period_us')}"
    for text in (version_2, version_1):
        with suppress(ValueError):  # "max 100000": no quota; no such file
            quota, period = map(int, text.split())
            if quota > 0 and period > 0:
                yield quota / period


def _read(path: Path) -> str:
    """Return the text of a file without its line break, "" if it cannot be read."""
    try:
        return path.read_text("ascii", errors="replace").strip()
    except OSError:
        return ""
