"""What the ranks communicated: written by each rank as it happens, read by the parent at any time.

Every rank appends lines of JSON to a shared file of its own and then moves the file's committed
length, so that the record survives a crash and can be followed live. The parent turns the lines
into a `Trace`. A rank's lines are untrusted: what does not parse marks the trace as damaged.

Times are seconds of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

TRACE_BYTES = 1 << 26
_COMMITTED = struct.Struct("<Q")


@dataclass
class Operation:
    """One communication operation of one rank.

    Attributes:
        rank: the global rank that issued it.
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
    """Everything recorded during one call, all ranks together; in order within each rank."""

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


class Recorder:
    """Writes one rank's lines (in the rank)."""

    def __init__(self, descriptor: int) -> None:
        self._map = mmap.mmap(descriptor, TRACE_BYTES)
        self._end = _COMMITTED.size
        self._lock = threading.Lock()
        self._next_id = 0
        self._full = False

    def new_id(self) -> int:
        """A number for an operation, unique in this rank."""
        with self._lock:
            self._next_id += 1
            return self._next_id

    def write(self, kind: str, *fields: Any) -> None:
        """Appends one line, with the time as its second field; ignored once the file is full."""
        line = json.dumps([kind, time.monotonic(), *fields], separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if self._full:
                return
            if self._end + len(line) + 16 > TRACE_BYTES:
                self._full = True
                line = b'["full",0]\n'
            self._map[self._end : self._end + len(line)] = line
            self._end += len(line)
            _COMMITTED.pack_into(self._map, 0, self._end)


class TraceReader:
    """Follows one rank's lines (in the parent)."""

    def __init__(self, rank: int, world_size: int, descriptor: int) -> None:
        self._rank = rank
        self._world_size = world_size
        self._map = mmap.mmap(descriptor, os.fstat(descriptor).st_size, prot=mmap.PROT_READ)
        self._position = _COMMITTED.size
        self._groups: dict[int, tuple[int, ...]] = {}
        self._open: dict[int, Operation] = {}

    def read_into(self, trace: Trace) -> bool:
        """Adds everything new to `trace`; whether there was anything."""
        end = min(_COMMITTED.unpack_from(self._map)[0], len(self._map))
        if end <= self._position:
            return False
        lines = self._map[self._position : end].splitlines()
        self._position = end
        for line in lines:
            try:
                self._take(json.loads(line), trace)
            except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
                trace.damaged = True
        return True

    def skip(self) -> None:
        """Forgets what has not been read, except the groups."""
        self.read_into(Trace())
        self._open.clear()

    def _take(self, record: Sequence[Any], trace: Trace) -> None:
        match record:
            case ["issue", float(when), int(number), *rest]:
                operation = self._operation(when, number, rest)
                self._open[number] = operation
                trace.operations.append(operation)
            case ["wait", float(when), int(number)]:
                if (waiting := self._open.get(number)) and waiting.waited is None:
                    waiting.waited = when
            case ["complete", float(when), int(number)]:
                if (done := self._open.get(number)) and done.completed is None:
                    done.completed = when
            case ["drop", float(when), int(number)]:
                if dropped := self._open.pop(number, None):
                    dropped.dropped = when
            case ["group", float(), int(number), list(ranks)]:
                self._groups[number] = self._ranks(ranks)
            case ["mark" | "begin" | "end" as kind, float(when), str(label)]:
                trace.marks.append(Mark(self._rank, kind, label, when))
            case ["compute", float(when), str(label), float(seconds)]:
                trace.marks.append(Mark(self._rank, "compute", label, when, seconds))
            case ["full", _]:
                trace.truncated = True
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
            ] if nbytes >= 0:
                return Operation(
                    self._rank,
                    number,
                    name,
                    self._groups[group],
                    peer,
                    tag,
                    reduce_op,
                    dtype,
                    tuple(int(extent) for extent in shape),
                    nbytes,
                    when,
                    file,
                    line,
                )
        raise ValueError("not an operation")

    def _ranks(self, ranks: Iterable[Any]) -> tuple[int, ...]:
        group = tuple(int(rank) for rank in ranks)
        if not all(0 <= rank < self._world_size for rank in group):
            raise ValueError("a rank outside the world")
        return group
