"""What an executor is: something that does gradings, and says what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
