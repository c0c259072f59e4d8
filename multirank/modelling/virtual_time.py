"""Ranks that communicate, in virtual time.

A rank takes its steps one after another. Two things cost it time: compute that it declares, and
waiting for an operation that is not complete. Operations proceed on their own once issued:
`matching` says which belong together, `ports` when they start, the fabric how long they take.

So the result depends on nothing but the order of the steps within each rank.
"""

from __future__ import annotations

import contextlib
import gc
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..recording.trace import Mark, Operation
from .activity import SECOND, Activity, Compute, Request, Transfer, Work
from .fabric import Fabric
from .matching import Matching, ReplayError, describe
from .ports import Ports

_LONGEST = 1e9  # seconds of one compute


@dataclass(frozen=True, slots=True)
class RankTime:
    """How one rank spent the virtual time, in seconds.

    Attributes:
        finished: when it had taken its last step.
        compute: declared compute.
        waiting: it was blocked, because what it waited for was not complete: the communication
            that no compute hides.
        busy: at least one of its ports was in use.
    """

    rank: int
    finished: float
    compute: float
    waiting: float
    busy: float


@dataclass(frozen=True, slots=True)
class Wait:
    """The step of waiting for an operation that the same rank has issued."""

    operation: Operation


# An operation stands for issuing it. A mark of kind "compute" takes time, any other takes none.
Step: TypeAlias = Operation | Wait | Mark


class _Rank:
    """How far one rank is; times in ticks."""

    def __init__(self, number: int, program: Iterator[Step]) -> None:
        self.number = number
        self.program = program
        self.issued = 0
        self.requests: dict[int, Request] = {}  # by id() of the operation, until waited for
        self.blocked_on: Request | None = None
        self.blocked_since = 0
        self.cause: Work | None = None  # what ended when the rank last went on
        self.transfers = 0  # that use its ports now
        self.busy_since = 0
        self.finished = self.compute = self.waiting = self.busy = 0


class Simulation:
    """Lets all ranks take their steps: `run` it once, then read what came of it.

    The operations that it is given are its own: it sets their times (issued, waited, completed).

    Args:
        fabric: what messages and collectives cost.
        programs: each rank's steps.
        record: whether to keep the activities and the marks.
    """

    def __init__(
        self, fabric: Fabric, programs: Sequence[Iterator[Step]], record: bool = False
    ) -> None:
        self.marks: list[Mark] = []
        self._fabric = fabric
        self._record = record
        self._ranks = [_Rank(number, program) for number, program in enumerate(programs)]
        self._matching = Matching(len(programs))
        self._ports = Ports(len(programs))
        self._now = 0
        self._seconds = 0.0  # the same, for operations and marks
        # A heap; the second number orders what ends together.
        self._ends: list[tuple[int, int, Transfer | Compute]] = []
        self._begun = 0
        self._last: Work | None = None  # to end
        self._activities: list[Activity] = []
        self._message_durations: dict[int, int] = {}

    def run(self) -> None:
        """Runs all ranks to their ends.

        Raises:
            ReplayError: a deadlock, an operation without a counterpart, or a senseless step.
        """
        able = self._ranks
        while True:
            for rank in able:
                self._advance(rank)
            for transfer in self._ports.start(self._now):
                self._begin_transfer(transfer)
            if not self._ends:
                break
            able = self._pass_time()
        self._matching.check_complete(rank.blocked_on for rank in self._ranks if rank.blocked_on)

    @property
    def makespan(self) -> float:
        """When every rank had finished and every transfer had ended, in seconds."""
        return self._seconds

    def rank_times(self) -> tuple[RankTime, ...]:
        """How each rank spent its time."""
        return tuple(
            RankTime(
                rank.number,
                rank.finished / SECOND,
                rank.compute / SECOND,
                rank.waiting / SECOND,
                rank.busy / SECOND,
            )
            for rank in self._ranks
        )

    def activities(self) -> tuple[Activity, ...]:
        """All that took time, in the order of their starts; empty unless recorded."""
        return tuple(self._activities)

    def critical_path(self) -> tuple[Activity, ...]:
        """From time 0 to the makespan, each let start by the end of the one before."""
        path = []
        work = self._last
        while work is not None:
            path.append(work.activity)
            work = work.cause
        return tuple(reversed(path))

    # --- What ranks do ---

    def _advance(self, rank: _Rank) -> None:
        """Lets a rank take steps until it has to wait, or computes, or has finished."""
        for step in rank.program:
            if isinstance(step, Operation):
                self._issue(rank, step)
            elif isinstance(step, Wait):
                if self._blocks(rank, step.operation):
                    return
            elif self._computes(rank, step):
                return
        rank.finished = self._now

    def _issue(self, rank: _Rank, operation: Operation) -> None:
        rank.issued += 1
        request = Request(operation, rank.number, rank.issued, self._now, rank.cause)
        rank.requests[id(operation)] = request
        operation.issued = self._seconds
        if operation.name.startswith("new_group"):
            self._complete(request)
        elif together := self._matching.add(request):
            self._ports.offer(self._transfer(together))

    def _blocks(self, rank: _Rank, operation: Operation) -> bool:
        """Begins to wait; whether there is anything to wait for."""
        request = rank.requests.pop(id(operation), None)
        if request is None:
            raise ReplayError(f"{describe(operation)}: waited for twice, or before it is issued")
        operation.waited = self._seconds
        if request.done:
            return False
        rank.blocked_on, rank.blocked_since = request, self._now
        return True

    def _computes(self, rank: _Rank, mark: Mark) -> bool:
        """Takes a mark; whether it takes time."""
        if self._record:
            self.marks.append(replace(mark, time=self._seconds))
        if mark.kind != "compute":
            return False
        if not 0 <= mark.seconds <= _LONGEST:
            raise ReplayError(
                f"rank {rank.number} declares {mark.seconds} s of compute ({mark.label!r}); it "
                f"must be from 0 to {_LONGEST:g} s"
            )
        duration = round(mark.seconds * SECOND)
        if duration == 0:
            return False
        rank.compute += duration
        self._begin(Compute(mark, self._now, duration, rank.cause))
        return True

    # --- What messages and collectives do ---

    def _transfer(self, together: Sequence[Request]) -> Transfer:
        name = together[0].operation.name
        if name != "send":
            nbytes = max(request.operation.nbytes for request in together)
            seconds = self._fabric.collective(name, len(together), nbytes)
            return Transfer(name, together, nbytes, round(seconds * SECOND))
        nbytes = together[0].operation.nbytes
        duration = self._message_durations.get(nbytes)
        if duration is None:
            duration = round(self._fabric.message(nbytes) * SECOND)
            self._message_durations[nbytes] = duration
        return Transfer("message", together, nbytes, duration)

    def _begin_transfer(self, transfer: Transfer) -> None:
        for request in transfer.requests:
            rank = self._ranks[request.rank]
            if rank.transfers == 0:
                rank.busy_since = self._now
            rank.transfers += 1
        self._begin(transfer)

    def _end_transfer(self, transfer: Transfer) -> Iterator[_Rank]:
        """Ends a transfer; the ranks that waited for it."""
        self._ports.release(transfer)
        for request in transfer.requests:
            rank = self._ranks[request.rank]
            rank.transfers -= 1
            if rank.transfers == 0:
                rank.busy += self._now - rank.busy_since
            self._complete(request)
            if rank.blocked_on is request:
                rank.blocked_on = None
                rank.waiting += self._now - rank.blocked_since
                yield rank

    def _complete(self, request: Request) -> None:
        request.done = True
        request.operation.completed = self._seconds

    # --- How time passes ---

    def _begin(self, begun: Transfer | Compute) -> None:
        self._begun += 1
        heapq.heappush(self._ends, (begun.work.end, self._begun, begun))
        if self._record:
            self._activities.append(begun.work.activity)

    def _pass_time(self) -> list[_Rank]:
        """Goes to when the next work ends, and ends it; the ranks that can go on, in order."""
        self._now, _, first = self._ends[0]
        self._last = first.work
        self._seconds = self._now / SECOND
        able = []
        while self._ends and self._ends[0][0] == self._now:
            ended = heapq.heappop(self._ends)[2]
            if isinstance(ended, Transfer):
                freed = list(self._end_transfer(ended))
            else:
                freed = [self._ranks[ended.rank]]
            for rank in freed:
                rank.cause = ended.work
            able += freed
        return sorted(able, key=lambda rank: rank.number)


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Pauses the garbage collector, which would take as long as a large simulation does.

    A simulation makes many objects that live on, and hardly a cycle among them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
