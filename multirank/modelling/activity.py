"""What takes virtual time (messages, collectives, declared compute), and what let it begin.

`Activity` is what a caller sees. The rest is for the simulation, which counts time in ticks, whole
attoseconds: sums are exact, and what ends together in the model ends together here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..recording.trace import Mark, Operation

SECOND = 10**18  # ticks


@dataclass(frozen=True, slots=True)
class Activity:
    """Something that took time: a message, a collective, or declared compute.

    Attributes:
        name: "message", "compute", or the collective's.
        ranks: who took part: sender and receiver; the members; or the rank that computed.
        nbytes: of a message what its sender sent; of a collective as in `Operation`, the largest.
        start, end: seconds of virtual time.
        rank, file, line: the operation that was issued last and so let it start: the receive, of a
            message that its receiver was late for. Of compute the rank, and no line.
        label: of declared compute.
    """

    name: str
    ranks: tuple[int, ...]
    nbytes: int
    start: float
    end: float
    rank: int
    file: str = ""
    line: int = 0
    label: str = ""


class Work:
    """An activity that has begun, its end in ticks, and the work whose end let it begin."""

    __slots__ = ("activity", "cause", "end")

    def __init__(self, activity: Activity, end: int, cause: Work | None) -> None:
        self.activity = activity
        self.end = end
        self.cause = cause


class Request:
    """An operation that a rank has issued, as its `number`-th."""

    __slots__ = ("cause", "done", "issued", "number", "operation", "rank")

    def __init__(
        self, operation: Operation, rank: int, number: int, issued: int, cause: Work | None
    ) -> None:
        self.operation = operation
        self.rank = rank
        self.number = number
        self.issued = issued
        self.cause = cause  # what let the rank come to this point
        self.done = False


class Transfer:
    """A message or a collective, all of whose requests are issued.

    Attributes:
        requests: of sender and receiver, or of the members in order.
        ready: when the last of them was issued.
        key: what has a lower one goes first.
        work: once it has begun.
    """

    __slots__ = ("decided_by", "duration", "key", "name", "nbytes", "ready", "requests", "work")

    work: Work

    def __init__(self, name: str, requests: Sequence[Request], nbytes: int, duration: int) -> None:
        self.name = name
        self.requests = requests
        self.nbytes = nbytes
        self.duration = duration
        self.decided_by = max(requests, key=lambda request: request.issued)
        self.ready = self.decided_by.issued
        self.key = (self.ready, requests[0].rank, requests[0].number)

    def begin(self, now: int, cause: Work | None) -> None:
        """Sets `work`."""
        end = now + self.duration
        decided = self.decided_by.operation
        activity = Activity(
            self.name,
            tuple([request.rank for request in self.requests]),
            self.nbytes,
            now / SECOND,
            end / SECOND,
            decided.rank,
            decided.file,
            decided.line,
        )
        self.work = Work(activity, end, cause)


class Compute:
    """Declared compute of one rank, which begins now."""

    __slots__ = ("rank", "work")

    def __init__(self, mark: Mark, now: int, duration: int, cause: Work | None) -> None:
        self.rank = mark.rank
        times = (now / SECOND, (now + duration) / SECOND)
        activity = Activity("compute", (mark.rank,), 0, *times, mark.rank, label=mark.label)
        self.work = Work(activity, now + duration, cause)
