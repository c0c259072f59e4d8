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
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

TRACE_BYTES = 1 << 26  # sparse: pages that are never written cost nothing
MOST_RECORDS = 200_000  # of one rank, in a world's life: about 50,000 operations
_LONGEST_RECORD = 1 << 14  # bytes
_NUMBER = struct.Struct("=Q")  # first in the file: where the record ends; last: what ended last
_APART = frozenset({"init_process_group", "destroy_process_group"})  # for the follower only
_encode = json.JSONEncoder(separators=(",", ":")).encode
# What happens often is not written as JSON: a byte, the operation that ended before and when; then
# when this one begins, its number, that of one like it, the thread that waits, and how many are.
_AGAIN = struct.Struct("=BQQQQQQQ")
_AGAIN_BYTE = ord("a")
_write_again = _AGAIN.pack_into
_monotonic_ns, _get_ident, _active_count = (
    time.monotonic_ns,
    threading.get_ident,
    threading.active_count,
)
_ROOM = 128  # bytes that are kept for the last record
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
        self._committed = memoryview(self._map)[: _NUMBER.size].cast("Q")
        self._last_ended = memoryview(self._map)[-_NUMBER.size :].cast("Q")
        self._position = _NUMBER.size
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._room = MOST_RECORDS
        self._ended: deque[tuple[int, int]] = deque()
        self._dropped: deque[tuple[float, int]] = deque()
        os.register_at_fork(after_in_child=functools.partial(_stop, weakref.ref(self)))

    def new_id(self) -> int:
        """A number for an operation, unique in this rank."""
        return next(self._ids)

    def write(self, kind: str, *fields: Any) -> None:
        """Appends one line, with the time as its second field; ignored once there is no room."""
        self._append(_encode([kind, time.monotonic(), *fields]))

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
        waits: bool = False,
    ) -> int:
        """Records that an operation is about to begin; its number. (See `Operation`.)

        waits: whether this thread waits for it from the beginning.
        """
        number = next(self._ids)
        waiting = f",{threading.get_ident()},{_threads()}" if waits else ""
        self._append(
            f'["issue",{time.monotonic()!r},{number},"{name}",{group},'
            f"{'null' if peer is None else peer},{'null' if tag is None else tag},"
            f"{_quoted(reduce_op)},{_quoted(dtype)},[{_joined(shape)}],"
            f"{nbytes},{_quoted(file)},{line}{waiting}]"
        )
        return number

    def again(self, earlier: int, waits: bool) -> int:
        """`issue`, of an operation that is in all like an earlier one, which has this number."""
        number = next(self._ids)
        thread = threads = 0
        if waits:
            thread, threads = _get_ident(), _active_count()
            if threads > 1:
                threads = _threads()
        with self._lock:
            ended_when, ended = self._ended.popleft() if self._ended else (0, 0)
            if self._ended or self._dropped:
                self._write_rest()
            position = self._position
            if self._room <= 1 or position + _ROOM > TRACE_BYTES:
                self._write("")
                return number
            self._room -= 1
            _write_again(
                self._map,
                position,
                _AGAIN_BYTE,
                ended_when,
                ended,
                _monotonic_ns(),
                number,
                earlier,
                thread,
                threads,
            )
            self._committed[0] = self._position = position + _AGAIN.size
        return number

    def end(self, number: int) -> None:
        """Records that an operation is complete, and its handle dropped: what it takes to publish
        that at once, and the rest with the next record, or `flush`."""
        self._ended.append((_monotonic_ns(), number))
        self._last_ended[0] = number

    def step(self, kind: str, number: int) -> None:
        """`write`, for what happens to an operation on its way."""
        self._append(f'["{kind}",{time.monotonic()!r},{number}]')

    def wait(self, number: int, for_ever: bool = True) -> None:
        """Records that this thread waits for an operation from now on.

        for_ever: whether it cannot but wait; otherwise it goes on by itself some time.
        """
        threads = _threads() + (not for_ever)
        thread = threading.get_ident()
        self._append(f'["wait",{time.monotonic()!r},{number},{thread},{threads}]')

    def drop(self, number: int) -> None:
        """Records that an operation's handle was dropped: with the next record, or `flush`.

        Finalizers call it, so it may interrupt `write` in the same thread, at any place, and must
        not touch the lock.
        """
        self._dropped.append((time.monotonic(), number))

    def flush(self) -> None:
        """Writes what `end` and `drop` have left."""
        with self._lock:
            self._write_rest()

    def _append(self, record: str) -> None:
        with self._lock:
            if self._ended or self._dropped:
                self._write_rest()
            self._write(record)

    def _write_rest(self) -> None:
        while self._ended:
            when, number = self._ended.popleft()
            self._write(f'["end",{when},{number}]')
        while self._dropped:
            moment, number = self._dropped.popleft()
            self._write(f'["drop",{moment!r},{number}]')

    def _write(self, record: str) -> None:
        if not self._room:
            return
        self._room -= 1
        line = f"{record}\n".encode()
        if not self._room or self._position + len(line) + _ROOM > TRACE_BYTES:
            self._room = 0
            line = b'["full",0]\n'
        end = self._position + len(line)
        self._map[self._position : end] = line
        self._committed[0] = self._position = end

    def stop(self) -> None:
        """Writes no more."""
        self._room = 0
        self._lock = threading.Lock()


def _stop(recorder: weakref.ref[Recorder]) -> None:
    """A child that the program forks shares the file, and is not the rank."""
    if (alive := recorder()) is not None:
        alive.stop()


def _threads() -> int:
    """How many Python threads could act for the rank."""
    count = threading.active_count()
    return count if count == 1 else sum(not _only_looks_on(one) for one in threading.enumerate())


def _only_looks_on(thread: threading.Thread) -> bool:
    """Whether a thread never communicates: a progress bar's, or one that feeds a DataLoader."""
    return type(thread).__name__ == "TMonitor" or thread.name == "QueueFeederThread"


_NO_RECORD = (ValueError, TypeError, KeyError, RecursionError, OverflowError)


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
        self._position = _NUMBER.size
        self._room = MOST_RECORDS
        self._ended = False
        self._unheard = Trace()  # of between calls; once damaged or truncated, so are all to come
        self._groups: dict[int, tuple[str, tuple[int, ...]]] = {}
        self._described: dict[int, Sequence[Any]] = {}
        self._open: dict[int, Operation] = {}

    def read_into(self, trace: Trace) -> bool:
        """Adds everything new to `trace`; whether there was anything.

        The first line that is no record, or one too many, ends the reading for good: what a rank
        that scribbles on its file can cost the parent is bounded.
        """
        end = min(self.recorded, len(self._map))
        start = self._position
        while self._position < end and not self._ended:
            if not self._room:
                trace.truncated = True
                self._end()
                break
            self._room -= 1
            try:
                if self._map[self._position] == _AGAIN_BYTE:
                    record = _AGAIN.unpack_from(self._map, self._position)
                    self._position += _AGAIN.size
                    self._take_again(record[1:], trace)
                    continue
                stop = self._map.find(b"\n", self._position, self._position + _LONGEST_RECORD)
                line = self._map[self._position : stop] if stop >= 0 else b""
                self._position = stop + 1
                self._take(json.loads(line), trace)
            except (*_NO_RECORD, struct.error):
                trace.damaged = True
                self._end()
        self._take_last_ended()
        trace.damaged |= self._unheard.damaged
        trace.truncated |= self._unheard.truncated
        return self._position != start

    @property
    def recorded(self) -> int:
        """How much the rank has recorded by now, in bytes, whether it has been read or not."""
        return int(_NUMBER.unpack_from(self._map)[0])

    def _take_last_ended(self) -> None:
        """What the next record will say of the last operation that ended, in full."""
        (ended,) = _NUMBER.unpack_from(self._map, len(self._map) - _NUMBER.size)
        if (operation := self._open.get(ended)) and operation.completed is None:
            operation.completed = time.monotonic()
            self._follower.completed(operation)

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
                operation = self._operation(_time(when), number, rest[:10])
                self._described[number] = rest[:10]
                self._begin(operation, rest[10:], trace)
            case ["wait", float(when), int(number), *threads]:
                if waiting := self._open.get(number):
                    self._wait(waiting, _time(when), threads)
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
            case ["end", int(when), int(number)]:
                self._end_of(number, when)
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

    def _take_again(self, record: Sequence[int], trace: Trace) -> None:
        ended_when, ended, when, number, earlier, thread, threads = record
        self._end_of(ended, ended_when)
        operation = self._operation(_time(when / 1e9), number, self._described[earlier])
        self._begin(operation, (thread, threads) if threads else (), trace)

    def _end_of(self, number: int, when: int) -> None:
        if ended := self._open.pop(number, None):
            ended.completed = ended.dropped = _time(when / 1e9)
            self._follower.completed(ended)

    def _begin(self, operation: Operation, threads: Sequence[Any], trace: Trace) -> None:
        self._open[operation.id] = operation
        if operation.name not in _APART:
            trace.operations.append(operation)
        self._follower.issued(operation)
        if threads:
            self._wait(operation, operation.issued, threads)

    def _wait(self, operation: Operation, when: float, threads: Sequence[Any]) -> None:
        match threads:
            case [int(thread), int(count)]:
                operation.waited = when if operation.waited is None else operation.waited
                if operation.completed is None:
                    self._follower.waits(operation, thread, count)
            case _:
                raise ValueError("not a wait")

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
