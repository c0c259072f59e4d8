"""What a grading needs of a machine: cores, memory, GPUs, minutes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autograder.grade import BUDGET
from autograder.manifest import Problem

GPUS = 4  # that a grading on them gets: the ranks of most checks
MEMORY = 4 << 30  # bytes; 8 ranks at 64 MiB, and the grader, stay within
_FIXED, _PER_PROBLEM = 60.0, 45.0  # seconds, of a budget for some problems alone
_START = 60.0  # seconds for imports on a cold file system, and for the reports
_MOST_RANKS, _FEW_RANKS = 8, 4
_UP_TO_8_RANKS = frozenset({"collectives", "bandwidth"})


class TooFewGPUs(ValueError):
    """This machine cannot do a single grading."""


@dataclass(frozen=True)
class Needs:
    """Of one grading.

    ranks: that run at once at most. gpus: one for each rank there, or 0. budget: seconds for the
    checks. memory: bytes.
    """

    ranks: int
    gpus: int
    budget: float
    memory: int = MEMORY

    @property
    def cpus(self) -> int:
        """Two ranks to a core: most of the time they wait for each other."""
        return max(1, self.ranks // 2)

    @property
    def minutes(self) -> int:
        """Until a job is ended from outside: more than a grading takes, and waits for turns."""
        return int(-(-(2 * self.budget + _START) // 60))


def needs_of(problems: Sequence[Problem], *, gpus: int) -> Needs:
    """What grading these problems takes.

    gpus: how many a grading gets; 0 where it is not graded on them.
    """
    eight = any(problem.module in _UP_TO_8_RANKS for problem in problems)
    budget = min(BUDGET, _FIXED + _PER_PROBLEM * len(problems))
    return Needs(_MOST_RANKS if eight else _FEW_RANKS, gpus, budget)


@dataclass(frozen=True)
class Slot:
    """A place for one grading at a time on this machine, with GPUs of its own."""

    number: int
    gpus: tuple[str, ...] = ()


def slots(needs: Needs, *, cores: int, memory: int, gpus: Sequence[str], most: int) -> list[Slot]:
    """As many as fit: a core and the memory for each, and its GPUs; one at least.

    most: as many at most; 0: as fit.

    Raises TooFewGPUs where one grading needs more.
    """
    count = max(1, min(cores, memory // needs.memory))
    if needs.gpus:
        if len(gpus) < needs.gpus:
            raise TooFewGPUs(f"A grading needs {needs.gpus} GPUs; this machine has {len(gpus)}.")
        count = min(count, len(gpus) // needs.gpus)
    count = min(count, most) if most else count
    return [
        Slot(number, tuple(gpus[number * needs.gpus : (number + 1) * needs.gpus]))
        for number in range(count)
    ]


def cores_here() -> int:
    """The cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_here() -> int:
    """Bytes that are free, within the limit of the container or job that we are in."""
    free = [_limit(path) for path in _LIMITS]
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path("/proc/meminfo").read_text()
        free.append(int(text.split("MemAvailable:")[1].split()[0]) * 1024)
    known = [one for one in free if one is not None]
    return min(known) if known else MEMORY * cores_here()


_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def _limit(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return None
