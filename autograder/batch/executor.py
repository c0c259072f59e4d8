"""What an executor is: something that does gradings, and says what became of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from autograder.batch.store import Place


@dataclass(frozen=True)
class Ended:
    """A grading that an executor no longer has.

    died: why it could not be brought to an end, and where; empty when the worker wrote its state.
    elsewhere: another batch is at it.
    """

    place: Place
    died: str = ""
    elsewhere: bool = False


class CannotGradeHere(RuntimeError):
    """This machine cannot grade as it was asked to; the message says why."""


class NoSlurm(RuntimeError):
    """Slurm cannot be used here, or refuses what it is asked for; the message says why."""


@dataclass(frozen=True)
class SlurmOptions:
    """How jobs are submitted.

    command: what starts Python, such as "apptainer exec --bind {out} grader.sif python"; {out}
    stands for the batch's folder. extra: further options of sbatch, by name.
    """

    partition: str = ""
    command: str = ""
    at_once: int = 0
    extra: Mapping[str, str] = field(default_factory=dict)


class Executor(Protocol):
    """Does gradings, as many at once as it can."""

    def submit(self, places: Sequence[Place]) -> None:
        """Has them done, some time."""

    def wait(self, seconds: float) -> list[Ended]:
        """What has ended, after at most so many seconds."""

    def running(self) -> list[Place]:
        """What is being done now."""

    def close(self) -> None:
        """Ends whatever is being done or waits; what had begun waits again."""
