"""What a container or a job may use of a machine, in a tree of control groups that is made here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autograder import machine


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """On a machine of 64 cores and 100 GB that are free."""
    (tmp_path / "groups").mkdir()
    (tmp_path / "cgroup").write_text("0::/\n")
    (tmp_path / "meminfo").write_text("MemTotal: 200000000 kB\nMemAvailable: 100000000 kB\n")
    monkeypatch.setattr(machine, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(machine, "_OURS", tmp_path / "cgroup")
    monkeypatch.setattr(machine, "_MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    return tmp_path / "groups"


def write(folder: Path, **files: str) -> None:
    """Files of a control group; __ stands for the dot in their names."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def is_in(groups: Path, *lines: str) -> None:
    (groups.parent / "cgroup").write_text("".join(f"{line}\n" for line in lines))


def test_without_limits_it_is_the_whole_machine(groups: Path) -> None:
    assert machine.cores() == 64
    assert machine.free_memory() == 102_400_000_000
    write(groups, cpu__max="max 100000", memory__max="max", memory__current="5")
    assert machine.cores() == 64
    assert machine.free_memory() == 102_400_000_000


@pytest.mark.parametrize(
    ("granted", "cores"),
    [("200000 100000", 2), ("250000 100000", 2), ("50000 100000", 1), ("9900000 100000", 64)],
)
def test_a_container_has_the_cores_that_it_is_granted(
    groups: Path, granted: str, cores: int
) -> None:
    write(groups, cpu__max=granted)
    assert machine.cores() == cores


def test_a_container_has_what_is_left_of_its_limit_and_what_its_caches_hold(groups: Path) -> None:
    write(groups, memory__max="1000000", memory__current="400000")
    assert machine.free_memory() == 600_000
    write(groups, memory__stat="anon 300000\ninactive_file 100000\nactive_file 0")
    assert machine.free_memory() == 700_000
    write(groups, memory__current="1500000")
    assert machine.free_memory() == 0


def test_a_job_has_the_least_that_a_group_around_it_grants(groups: Path) -> None:
    is_in(groups, "0::/slurm/job_12/step_0/task")
    write(groups / "slurm", cpu__max="800000 100000", memory__max="max", memory__current="9")
    write(groups / "slurm/job_12", cpu__max="400000 100000")
    write(groups / "slurm/job_12", memory__max="1000000", memory__current="400000")
    write(groups / "slurm/job_12/step_0", cpu__max="max 100000", memory__max="max")
    write(groups / "slurm/job_13", cpu__max="100000 100000")
    assert machine.cores() == 4
    assert machine.free_memory() == 600_000


@pytest.mark.parametrize("shown", ["docker/0a1b", ""])
def test_so_it_is_with_version_1_whether_a_container_sees_its_own_name_or_not(
    groups: Path, shown: str
) -> None:
    is_in(groups, "4:memory:/docker/0a1b", "2:cpu,cpuacct:/docker/0a1b", "0::/")
    write(groups / "cpu" / shown, cpu__cfs_quota_us="300000", cpu__cfs_period_us="100000")
    memory = groups / "memory" / shown
    write(memory, memory__limit_in_bytes="1000000", memory__usage_in_bytes="400000")
    write(memory, memory__stat="inactive_file 1\ntotal_inactive_file 100000")
    assert machine.cores() == 3
    assert machine.free_memory() == 700_000
    write(groups / "cpu" / shown, cpu__cfs_quota_us="-1")
    assert machine.cores() == 64


def test_where_there_are_no_control_groups_it_is_the_whole_machine(groups: Path) -> None:
    (groups.parent / "cgroup").unlink()
    assert machine.cores() == 64
    assert machine.free_memory() == 102_400_000_000


def test_here() -> None:
    assert 1 <= machine.cores() <= (os.cpu_count() or 1)
    assert machine.free_memory() > 1 << 24
