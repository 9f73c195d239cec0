"""The cores that a process may use, by affinity and by the CPU quota of its cgroups."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.system.cpu_cores import usable_cores


def make_machine(root: Path, files: dict[str, str], cpus: int, *, per_core: int = 1) -> None:
    """Write the files of a machine with `cpus` CPUs, `per_core` of which share a core, and of its cgroups."""
    topology = {
        f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": f"core {cpu // per_core}\n"
        for cpu in range(cpus)
    }
    for name, text in (topology | files).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.fixture
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(psutil, "cpu_count", lambda **_: 8)


V1 = "3:cpu,cpuacct:/docker/1\n2:cpuset:/docker/1\n0::/\n"


@pytest.mark.parametrize(
    ("cgroup", "files", "count", "words"),
    [
        (None, {}, 8, "physical cores"),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 8, "physical cores"),
        ("0::/a/b\n", {"a/b/cpu.max": "350000 100000"}, 3, "3.5 CPUs"),
        # a parent's quota applies, too
        ("0::/a/b\n", {"a/cpu.max": "400000 100000", "a/b/cpu.max": "600000 100000"}, 4, "4 CPUs"),
        ("0::/\n", {"cpu.max": "50000 100000"}, 1, "0.5 CPUs"),
        # more than there are
        ("0::/\n", {"cpu.max": "1600000 100000"}, 8, "physical cores"),
        # the cgroup of a container is mounted as the root
        ("0::/../../other\n", {"cpu.max": "300000 100000"}, 3, "3 CPUs"),
        (
            V1,
            {"cpu,cpuacct/cpu.cfs_quota_us": "500000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"},
            5,
            "5 CPUs",
        ),
        (
            V1,
            {"cpu/docker/1/cpu.cfs_quota_us": "-1\n", "cpu/docker/1/cpu.cfs_period_us": "100000\n"},
            8,
            "physical cores",
        ),
        ("nonsense\n0::/\n", {"cpu.max": "a b"}, 8, "physical cores"),
    ],
)
def test_the_quota_of_a_cgroup_limits_the_threads(
    eight_cpus: None, tmp_path: Path, cgroup: str | None, files: dict[str, str], count: int, words: str
) -> None:
    quotas = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    make_machine(tmp_path, quotas | ({"proc/self/cgroup": cgroup} if cgroup else {}), 8)
    found = usable_cores(tmp_path)
    assert (found.count, words in found.reason) == (count, True), found


def test_two_cpus_of_one_core_are_one(eight_cpus: None, tmp_path: Path) -> None:
    make_machine(tmp_path, {}, 8, per_core=2)
    assert usable_cores(tmp_path).count == 4


def test_affinity_limits_the_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_machine(tmp_path, {}, 8, per_core=2)
    monkeypatch.setattr(psutil, "cpu_count", lambda **_: 8)
    for cpus, count in ({0, 1}, 1), ({1, 2}, 2), ({5}, 1):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cpus=cpus: cpus, raising=False)
        assert usable_cores(tmp_path).count == count


@given(st.text(), st.text())
def test_no_content_of_the_files_is_an_error(
    tmp_path_factory: pytest.TempPathFactory, cgroup: str, quota: str
) -> None:
    root = tmp_path_factory.mktemp("root")
    make_machine(
        root, {"proc/self/cgroup": f"0::/\n{cgroup}", "sys/fs/cgroup/cpu.max": quota}, os.cpu_count() or 1
    )
    assert usable_cores(root).count >= 1


def test_this_machine_has_a_core() -> None:
    assert 1 <= usable_cores().count <= (os.cpu_count() or 1)
