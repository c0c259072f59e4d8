"""What the ranks communicated: written by each rank as it happens, read by the parent at any time.

Every rank appends lines of JSON to a shared file of its own and then moves the file's committed
length, so that the record survives a crash and can be followed live. The parent turns the lines
into a `Trace`. A rank's lines are untrusted: what does not parse marks the trace as damaged.

Times are seconds of the monotonic clock, which all processes of a machine share. The record of a
rank is bounded: what would go beyond marks the trace as truncated.
"""

from __future__ import annotations

import functools
import itertools
import json
import mmap
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

TRACE_BYTES = 1 << 26  # sparse: pages that are never written cost nothing
MOST_RECORDS = 200_000  # of one rank, in a world's life: about 50,000 operations
_LONGEST_RECORD = 1 << 14  # bytes
_COMMITTED = struct.Struct("<Q")
_APART = frozenset({"init_process_group", "destroy_process_group"})  # for the follower only
_encode = json.JSONEncoder(separators=(",", ":")).encode
_quoted = functools.cache(json.dumps)


@functools.lru_cache(1000)
def _joined(shape: tuple[int, ...]) -> str:
    return ",".join(map(str, shape))


@dataclass(slots=True)
class Operation:
    """One communication operation of one rank.

    Attributes:
        rank: the global rank that issued it.
        id: its number, unique in its rank.
        name: as in torch.distributed: "send", "recv", "all_reduce", "broadcast", "all_gather",
            "reduce_scatter", "all_to_all", "gather", "scatter", "reduce", "barrier"; or
            "new_group".
        group: the global ranks of the process group.
        peer: global rank of the partner (send, recv) or root; None where there is none, or for a
            receive from any source.
        tag: of send and recv.
        reduce_op: "SUM", "AVG", ... of a reducing operation.
        dtype, shape: of its first tensor.
        nbytes: bytes of the larger of its send and receive buffers.
        issued, waited, completed, dropped: when it was issued, when somebody began to wait for
            it, when it was seen complete, when its handle was dropped; None: never.
        file, line: the caller's own line.
        group_name: torch's name of the group, the same on all its ranks.
        variant: what tells it from others of its name, such as "monitored" (barrier).
        changed: when its buffer was seen to have been changed while it was under way; None: never.
    """

    rank: int
    id: int
    name: str
    group: tuple[int, ...]
    peer: int | None
    tag: int | None
    reduce_op: str | None
    dtype: str | None
    shape: tuple[int, ...]
    nbytes: int
    issued: float
    file: str
    line: int
    waited: float | None = None
    completed: float | None = None
    dropped: float | None = None
    group_name: str = ""
    variant: str = ""
    changed: float | None = None


@dataclass(frozen=True)
class Mark:
    """A label that the program put into the trace.

    kind is "mark" (a point), "begin" and "end" (of a span), or "compute" (declared work of
    `seconds`).
    """

    rank: int
    kind: str
    label: str
    time: float
    seconds: float = 0.0


@dataclass
class Trace:
    """Everything recorded during one call, all ranks together; in order within each rank.

    Attributes:
        operations, marks: what was recorded.
        truncated: some rank recorded more than is kept; the rest of its record is missing.
        damaged: some rank wrote something that is no record; the rest of its record is missing.
    """

    operations: list[Operation] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    truncated: bool = False
    damaged: bool = False

    def of_rank(self, rank: int) -> list[Operation]:
        """The operations that `rank` issued, in order."""
        return [operation for operation in self.operations if operation.rank == rank]

    def pending(self, rank: int) -> list[Operation]:
        """Operations of `rank` that it was waiting for when the trace ended."""
        return [
            operation
            for operation in self.of_rank(rank)
            if operation.waited is not None and operation.completed is None
        ]


def describe_operation(operation: Operation) -> str:
    """An operation in words: `recv from rank 1 (train.py:12)`."""
    words = f"{operation.variant}_{operation.name}".lstrip("_")
    if operation.peer is not None:
        relation = {"send": "to", "recv": "from"}.get(operation.name, "with root")
        words += f" {relation} rank {operation.peer}"
    elif operation.name == "recv":
        words += " from any rank"
    if operation.file:
        words += f" ({where(operation)})"
    return words


def where(operation: Operation) -> str:
    """The line that issued it: `train.py:12`."""
    return f"{Path(operation.file).name}:{operation.line}"


class Recorder:
    """Writes one rank's lines (in the rank). Any thread may use it."""

    def __init__(self, descriptor: int) -> None:
        self._map = mmap.mmap(descriptor, TRACE_BYTES)
        self._end = _COMMITTED.size
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._room = MOST_RECORDS
        self._dropped: deque[tuple[float, int]] = deque()
        os.register_at_fork(after_in_child=self._stop)

    def new_id(self) -> int:
        """A number for an operation, unique in this rank."""
        return next(self._ids)

    def write(self, kind: str, *fields: Any) -> None:
        """Appends one line, with the time as its second field; ignored once there is no room."""
        line = _encode([kind, time.monotonic(), *fields]).encode() + b"\n"
        with self._lock:
            self._append_dropped()
            self._append(line)

    def issue(
        self,
        name: str,
        group: int,
        peer: int | None,
        tag: int | None,
        reduce_op: str | None,
        dtype: str | None,
        shape: tuple[int, ...],
        nbytes: int,
        file: str,
        line: int,
    ) -> int:
        """Records that an operation is about to begin; its number. (See `Operation`.)"""
        number = next(self._ids)
        text = (
            f'["issue",{time.monotonic()!r},{number},"{name}",{group},'
            f"{'null' if peer is None else peer},{'null' if tag is None else tag},"
            f"{_quoted(reduce_op)},{_quoted(dtype)},[{_joined(shape)}],"
            f"{nbytes},{_quoted(file)},{line}]\n"
        ).encode()
        with self._lock:
            self._append_dropped()
            self._append(text)
        return number

    def step(self, kind: str, number: int) -> None:
        """`write`, for what happens to an operation on its way."""
        line = f'["{kind}",{time.monotonic()!r},{number}]\n'.encode()
        with self._lock:
            self._append(line)

    def wait(self, number: int, for_ever: bool = True) -> None:
        """Records that this thread waits for an operation from now on; and how many threads could
        act for the rank."""
        thread, threads = threading.get_ident(), threading.active_count()
        if threads > 1:
            threads = sum(not _only_looks_on(one) for one in threading.enumerate())
        threads += not for_ever
        line = f'["wait",{time.monotonic()!r},{number},{thread},{threads}]\n'.encode()
        with self._lock:
            self._append_dropped()
            self._append(line)

    def drop(self, number: int) -> None:
        """Records that an operation's handle was dropped: with the next operation, or `flush`.

        Finalizers call it, so it may interrupt `write` in the same thread, at any place, and must
        not touch the lock.
        """
        self._dropped.append((time.monotonic(), number))

    def flush(self) -> None:
        """Writes what `drop` has left."""
        with self._lock:
            self._append_dropped()

    def _append_dropped(self) -> None:
        while self._dropped:
            when, number = self._dropped.popleft()
            self._append(f'["drop",{when!r},{number}]\n'.encode())

    def _append(self, line: bytes) -> None:
        if not self._room:
            return
        self._room -= 1
        if not self._room or self._end + len(line) + 16 > TRACE_BYTES:
            self._room = 0
            line = b'["full",0]\n'
        self._map[self._end : self._end + len(line)] = line
        self._end += len(line)
        _COMMITTED.pack_into(self._map, 0, self._end)

    def _stop(self) -> None:
        """A child that the program forks shares the file, and is not the rank."""
        self._room = 0
        self._lock = threading.Lock()


def _only_looks_on(thread: threading.Thread) -> bool:
    """Whether a thread never communicates: a progress bar's, or one that feeds a DataLoader."""
    return type(thread).__name__ == "TMonitor" or thread.name == "QueueFeederThread"


class Follower(Protocol):
    """Is told what a rank does as it is read; every operation, also those of calls before."""

    def issued(self, operation: Operation) -> None:
        """It is about to begin."""

    def waits(self, operation: Operation, thread: int, threads: int) -> None:
        """A thread is about to wait for it; so many Python threads live in the rank."""

    def completed(self, operation: Operation) -> None:
        """It was seen complete."""

    def left(self, operation: Operation) -> None:
        """Nobody waits for it any more, and it was not seen complete: it raised an exception."""

    def unsure(self, rank: int) -> None:
        """In this call something may act for the rank that is not recorded."""

    def lost(self, rank: int) -> None:
        """The rank's record ends, or is of no use."""


class TraceReader:
    """Follows one rank's lines (in the parent), and tells `follower` of them."""

    def __init__(self, rank: int, world_size: int, descriptor: int, follower: Follower) -> None:
        self._follower = follower
        self._rank = rank
        self._world_size = world_size
        self._map = mmap.mmap(descriptor, os.fstat(descriptor).st_size, prot=mmap.PROT_READ)
        self._position = _COMMITTED.size
        self._room = MOST_RECORDS
        self._ended = False
        self._unheard = Trace()  # of between calls; once damaged or truncated, so are all to come
        self._groups: dict[int, tuple[str, tuple[int, ...]]] = {}
        self._open: dict[int, Operation] = {}

    def read_into(self, trace: Trace) -> bool:
        """Adds everything new to `trace`; whether there was anything.

        The first line that is no record, or one too many, ends the reading for good: what a rank
        that scribbles on its file can cost the parent is bounded.
        """
        end = min(_COMMITTED.unpack_from(self._map)[0], len(self._map))
        start = self._position
        while self._position < end and not self._ended:
            if not self._room:
                trace.truncated = True
                self._end()
                break
            stop = self._map.find(b"\n", self._position, self._position + _LONGEST_RECORD)
            line = self._map[self._position : stop] if stop >= 0 else b""
            self._position = stop + 1
            self._room -= 1
            try:
                self._take(json.loads(line), trace)
            except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
                trace.damaged = True
                self._end()
        trace.damaged |= self._unheard.damaged
        trace.truncated |= self._unheard.truncated
        return self._position != start

    @property
    def recorded(self) -> int:
        """How much the rank has recorded by now, in bytes, whether it has been read or not."""
        return int(_COMMITTED.unpack_from(self._map)[0])

    def _end(self) -> None:
        """Nothing more is read."""
        self._ended = True
        self._follower.lost(self._rank)

    def skip(self) -> None:
        """Keeps what has not been read out of the next call's trace, but not how it ended."""
        self.read_into(self._unheard)

    def _take(self, record: Sequence[Any], trace: Trace) -> None:
        match record:
            case ["issue", float(when), int(number), *rest]:
                operation = self._operation(_time(when), number, rest)
                self._open[number] = operation
                if operation.name not in _APART:
                    trace.operations.append(operation)
                self._follower.issued(operation)
            case ["wait", float(when), int(number), int(thread), int(threads)]:
                if waiting := self._open.get(number):
                    waiting.waited = _time(when) if waiting.waited is None else waiting.waited
                    if waiting.completed is None:
                        self._follower.waits(waiting, thread, threads)
            case ["complete", float(when), int(number)]:
                if (done := self._open.get(number)) and done.completed is None:
                    done.completed = _time(when)
                    self._follower.completed(done)
            case ["leave", float(), int(number)]:
                if left := self._open.get(number):
                    self._follower.left(left)
            case ["change", float(when), int(number)]:
                if changed := self._open.get(number):
                    changed.changed = _time(when)
            case ["drop", float(when), int(number)]:
                if dropped := self._open.pop(number, None):
                    dropped.dropped = _time(when)
            case ["unsure", float()]:
                self._follower.unsure(self._rank)
            case ["lost", float()]:
                self._follower.lost(self._rank)
            case ["group", float(), int(number), str(name), list(ranks)]:
                self._groups[number] = (name, self._ranks(ranks))
            case ["mark" | "begin" | "end" as kind, float(when), str(label)]:
                trace.marks.append(Mark(self._rank, kind, label, _time(when)))
            case ["compute", float(when), str(label), float(seconds)]:
                mark = Mark(self._rank, "compute", label, _time(when), _time(seconds))
                trace.marks.append(mark)
            case ["full", _]:
                trace.truncated = True
                self._end()
            case _:
                raise ValueError("not a record")

    def _operation(self, when: float, number: int, rest: Sequence[Any]) -> Operation:
        match rest:
            case [
                str(name),
                int(group),
                int() | None as peer,
                int() | None as tag,
                str() | None as reduce_op,
                str() | None as dtype,
                list(shape),
                int(nbytes),
                str(file),
                int(line),
            ] if 0 <= nbytes < 1 << 63 and (peer is None or 0 <= peer < self._world_size):
                if name == "send" and peer is None:
                    raise ValueError("a message to nobody")
                group_name, group_ranks = self._groups[group]
                variant = "monitored" if name == "monitored_barrier" else ""
                return Operation(
                    self._rank,
                    number,
                    "barrier" if variant else name,
                    group_ranks,
                    peer,
                    tag,
                    reduce_op,
                    dtype,
                    tuple(_extent(extent) for extent in shape),
                    nbytes,
                    when,
                    file,
                    line,
                    group_name=group_name,
                    variant=variant,
                )
        raise ValueError("not an operation")

    def _ranks(self, ranks: Iterable[Any]) -> tuple[int, ...]:
        group = tuple(_extent(rank) for rank in ranks)
        if not all(rank < self._world_size for rank in group):
            raise ValueError("a rank outside the world")
        return group


def _time(seconds: float) -> float:
    if not 0 <= seconds < 1e12:
        raise ValueError("not a time")
    return seconds


def _extent(number: Any) -> int:
    if type(number) is not int or not 0 <= number < 1 << 63:
        raise ValueError("not an extent")
    return number
