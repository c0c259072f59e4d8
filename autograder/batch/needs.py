"""What a grading needs of a machine: cores, memory, GPUs, minutes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autograder.grade import BUDGET
from autograder.manifest import Problem

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
