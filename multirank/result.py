"""What came of running a function on every rank."""

from __future__ import annotations

import enum
import signal as signals
from dataclasses import dataclass, field
from typing import Any

from .proving.verdict import Verdict, wrap
from .recording.trace import Trace, describe_operation


class Ending(enum.StrEnum):
    """How one rank's call ended."""

    FINISHED = "finished"
    RAISED = "raised"
    DIED = "died"
    TIMED_OUT = "timed out"
    STOPPED = "stopped"


@dataclass(frozen=True)
class RaisedException:
    """An exception that a rank raised, as text (never the object)."""

    type: str
    message: str
    traceback: str


@dataclass
class RankRun:
    """One rank's part of a `Run`.

    Attributes:
        ending: how it ended; None while it runs. "stopped" means that it was ended because a peer
            had failed.
        result: what the function returned (None unless finished).
        log: what it printed, standard output and error in order, its middle cut out if too long.
        exception: when it raised.
        exit_code: when its process died: the code that it left with, or minus the signal's number.
        stack: where its threads were, when it timed out or crashed.
        note: why it died, when the process was ended by us or said something that is no answer.
    """

    rank: int
    ending: Ending | None = None
    result: Any = None
    log: str = ""
    exception: RaisedException | None = None
    exit_code: int | None = None
    stack: str = ""
    note: str = ""

    @property
    def signal(self) -> str | None:
        """Name of the signal that ended the process, such as "SIGSEGV"; else None."""
        if self.exit_code is None or self.exit_code >= 0:
            return None
        try:
            return signals.Signals(-self.exit_code).name
        except ValueError:
            return f"signal {-self.exit_code}"


@dataclass
class Run:
    """One call of a function on every rank of a world.

    Attributes:
        world_size: number of ranks.
        ranks: one entry for each, in order.
        trace: what they communicated.
        seconds: from the moment the call was sent until the last rank's end, by the parent's clock.
        timeout: the deadline that the call had, in seconds.
        verdict: why it was ended, when its ranks could never have gone on or did not agree.
        warnings: what it did that may go wrong another time.
    """

    world_size: int
    ranks: list[RankRun]
    trace: Trace = field(default_factory=Trace)
    seconds: float = 0.0
    timeout: float = 0.0
    verdict: Verdict | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every rank finished, and nothing was wrong with how they communicated."""
        return self.verdict is None and all(rank.ending is Ending.FINISHED for rank in self.ranks)

    @property
    def results(self) -> list[Any]:
        """What each rank returned, in order of rank."""
        return [rank.result for rank in self.ranks]

    @property
    def story(self) -> str:
        """What happened, for the person who wrote the function."""
        if self.ok:
            told = [f"all {self.world_size} ranks finished"]
        elif self.verdict is not None:
            told = [self.verdict.story]
        else:
            told = [paragraph for rank in self._by_guilt() for paragraph in self._tell(rank)]
        return "\n".join([*told, *(wrap(f"Warning: {warning}") for warning in self.warnings)])

    def check(self) -> Run:
        """Returns self when every rank finished.

        Raises:
            RanksFailed: with the story.
        """
        if not self.ok:
            raise RanksFailed(self)
        return self

    def _by_guilt(self) -> list[RankRun]:
        order = [Ending.DIED, Ending.RAISED, Ending.TIMED_OUT, Ending.STOPPED]
        return sorted(
            (rank for rank in self.ranks if rank.ending in order),
            key=lambda rank: (order.index(rank.ending or Ending.STOPPED), rank.rank),
        )

    def _tell(self, rank: RankRun) -> list[str]:
        name = f"rank {rank.rank} of {self.world_size}"
        doing = self._doing(rank.rank)
        stack = [f"  it was here:\n{_indent(rank.stack)}"] if rank.stack else []
        log = [f"  it had printed:\n{_indent(rank.log)}"] if rank.log.strip() else []
        if rank.ending is Ending.RAISED and rank.exception is not None:
            if (twin := self._same_exception_before(rank)) is not None:
                return [f"{name} raised {rank.exception.type}, as rank {twin} did"]
            return [f"{name} raised:\n{_indent(rank.exception.traceback)}", *log]
        if rank.ending is Ending.DIED:
            return [f"{name} {_how_it_died(rank)}{doing}", *stack, *log]
        if rank.ending is Ending.TIMED_OUT:
            return [f"{name} had not finished after {self.timeout:g} s{doing}", *stack, *log]
        return [f"{name} was stopped, because a peer had failed{doing}"]

    def _doing(self, rank: int) -> str:
        pending = self.trace.pending(rank)
        return f"; it was waiting in {describe_operation(pending[-1])}" if pending else ""

    def _same_exception_before(self, rank: RankRun) -> int | None:
        for other in self.ranks[: rank.rank]:
            if other.exception is not None and rank.exception is not None:
                same = other.exception.traceback == rank.exception.traceback
                if same and other.ending is Ending.RAISED:
                    return other.rank
        return None


class RanksFailed(RuntimeError):
    """Some rank did not finish; `run` tells all, and the text is its story."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.story)
        self.run = run


def _how_it_died(rank: RankRun) -> str:
    if rank.note:
        return rank.note
    if rank.signal:
        return f"died of {rank.signal}"
    return f"left with exit code {rank.exit_code} before it had answered"


def _indent(text: str) -> str:
    return "\n".join("    " + line for line in text.rstrip().splitlines())
