"""What this machine has for us, or as much of it as the container or job that we are in may use."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# Ranks of most checks: with fewer GPUs, a grading on them would say little.
ENOUGH_GPUS = 4

_GROUPS = Path("/sys/fs/cgroup")
_OURS = Path("/proc/self/cgroup")
_MEMORY = Path("/proc/meminfo")
# Files of a control group; version 2, version 1.
_QUOTA_AND_PERIOD = (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
_LIMIT_AND_USED = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def cores() -> int:
    """Cores that this process may keep busy all the time; one at least."""
    seen = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    pairs = _pairs("cpu", _QUOTA_AND_PERIOD)
    granted = [quota // period for _, quota, period in pairs if quota > 0]  # version 1 says -1
    return max(1, min([seen, *granted]))


def free_memory() -> int:
    """Bytes that are left.

    Raises OSError or ValueError where the system does not say.
    """
    [free] = re.findall(r"^MemAvailable: +(\d+) kB$", _MEMORY.read_text(), re.MULTILINE)
    pairs = _pairs("memory", _LIMIT_AND_USED)
    left = [limit - used + _given_back(group) for group, limit, used in pairs]
    return max(0, min([int(free) * 1024, *left]))


def _given_back(group: Path) -> int:
    """Bytes of files that are kept in memory until somebody needs it, and count as used."""
    with contextlib.suppress(OSError):
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        # Of version 1 the first is the one with the groups inside; version 2 has the second alone.
        return int(stat.get("total_inactive_file") or stat.get("inactive_file") or 0)
    return 0


def _pairs(controller: str, files: tuple[tuple[str, ...], ...]) -> Iterator[tuple[Path, int, int]]:
    """The two numbers in those files of each control group that we are in, where there are any."""
    for group in _groups(controller):
        for names in files:
            paths = [group / name for name in names]
            try:
                first, second = map(int, " ".join(map(Path.read_text, paths)).split())
            except (OSError, ValueError):  # there is no such file, or it says "max"
                continue
            yield group, first, second


def _groups(controller: str) -> Iterator[Path]:
    """The folder of our control group, and of those around it, if we see them.

    A container may see its own as the outermost one, by whatever name it has outside.
    """
    try:
        lines = _OURS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = _GROUPS / controller if controllers else _GROUPS
        names = path.strip("/").split("/")
        for depth in range(len(names) + 1):
            yield top.joinpath(*names[:depth])
