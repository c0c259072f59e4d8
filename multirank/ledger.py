"""What every rank of a world has begun and waits for, and whether a waiting rank can be served.

The ledger follows the traces of all ranks from the first operation on. It numbers operations within
their channel (the collectives of a group; the messages from one rank to another with one tag), and
so knows each one's partners: the k-th receive takes the k-th send. From that it answers two
questions. Do partners agree (else: `mismatch`)? Who can never go on (`doomed`)?

`doomed` is a proof over a snapshot: a rank is doomed when each operation that it waits for needs
somebody who has not begun his part and never will, being over or doomed himself. Where the ledger
cannot tell, it says nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from .trace import Operation

_SAME_SIZE = frozenset({"all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter"})
_ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
_Link = tuple[str, int, int, int | None]  # group, from, to, tag


@dataclass(frozen=True)
class Need:
    """What an operation still needs.

    ranks: who has not begun his part. quantifier: whether all of them must, or any one will do.
    why: in words, after "rank 0 waits in recv from rank 1: ".
    """

    ranks: tuple[int, ...]
    quantifier: Literal["all", "any", "never"]
    why: str


@dataclass(frozen=True)
class Stuck:
    """A doomed rank: an operation that it waits for, and what that needs."""

    operation: Operation
    need: Need


@dataclass(frozen=True)
class Mismatch:
    """Two operations that ought to be partners and do not fit: `what` differs."""

    what: str
    first: Operation
    second: Operation


class Ledger:
    """The state of one world. Ranks' records are fed in as they are read, in each rank's order."""

    def __init__(self, world_size: int) -> None:
        self.mismatch: Mismatch | None = None
        self._world_size = world_size
        self._sequence: dict[tuple[int, int], int] = {}
        self._sends: dict[_Link, list[Operation]] = defaultdict(list)
        self._recvs: dict[_Link, list[Operation]] = defaultdict(list)
        self._any_recvs: dict[tuple[str, int, int | None], list[Operation]] = defaultdict(list)
        self._collectives: dict[str, dict[int, list[Operation]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._waiting: dict[int, dict[int, tuple[Operation, int]]] = defaultdict(dict)
        self._over: dict[int, str] = {}

    # ------------------------------------------------------------ what happens

    def issued(self, operation: Operation) -> None:
        """A rank is about to begin an operation."""
        channel = self._channel(operation)
        self._sequence[operation.rank, operation.id] = len(channel)
        channel.append(operation)
        if self.mismatch is None:
            self.mismatch = self._disagreement(operation)

    def waits(self, operation: Operation, threads: int) -> None:
        """A rank is about to wait for an operation; so many Python threads live in it."""
        self._waiting[operation.rank][operation.id] = (operation, threads)

    def completed(self, operation: Operation) -> None:
        """An operation was seen complete."""
        self._waiting[operation.rank].pop(operation.id, None)

    def over(self, rank: int, how: str) -> None:
        """A rank begins nothing more in this call; `how` in words, such as "has finished"."""
        self._over[rank] = how

    def begin_call(self) -> None:
        """A new call: every rank may go on."""
        self._over.clear()
        self._waiting.clear()

    # ------------------------------------------------------------ what follows

    def doomed(self) -> list[Stuck]:
        """The ranks that can never go on, each with the operations that hold it."""
        stuck = {
            rank: found
            for rank in range(self._world_size)
            if rank not in self._over and (found := self._stuck(rank))
        }
        running = {r for r in range(self._world_size) if r not in stuck and r not in self._over}
        while True:
            freed = {
                rank
                for rank, found in stuck.items()
                if rank not in running and any(_may_come(one.need, running) for one in found)
            }
            if not freed:
                break
            running |= freed
        return [one for rank, found in stuck.items() if rank not in running for one in found]

    def _stuck(self, rank: int) -> list[Stuck]:
        """The operations that hold a rank; none if one of them may be served, or cannot be told."""
        waiting = list(self._waiting[rank].values())
        if not waiting or waiting[-1][1] > len(waiting):  # another thread of it may still run
            return []
        needs = [(operation, self._need(operation)) for operation, _ in waiting]
        if any(need is None for _, need in needs):
            return []
        return [Stuck(operation, need) for operation, need in needs if need is not None]

    def _need(self, operation: Operation) -> Need | None:
        """What the operation still needs; None where nothing, or where that cannot be told."""
        if operation.name == "send":
            return self._need_of_send(operation)
        if operation.name == "recv":
            if operation.peer is None:
                return self._need_of_any_recv(operation)
            return self._need_of_recv(operation)
        return self._need_of_collective(operation)

    def _need_of_send(self, send: Operation) -> Need | None:
        assert send.peer is not None
        partners = self._recvs[_link(send)]
        if len(partners) > self._place(send):
            return None
        if self._any_recvs[send.group_name, send.peer, send.tag]:
            return None  # may be the one that takes it
        return Need((send.peer,), "all", self._absence(send.peer, "received", send))

    def _need_of_recv(self, recv: Operation) -> Need | None:
        assert recv.peer is not None
        if self._any_recvs[recv.group_name, recv.rank, recv.tag]:
            return None  # it may have taken this one's message, or another's
        partners = self._sends[_link(recv)]
        if len(partners) > self._place(recv):
            send = partners[self._place(recv)]
            if send.dropped is not None and send.completed is None:
                line = f"{_short(send.file)}:{send.line}"
                why = (
                    f"rank {send.rank} sent it with isend ({line}), but dropped the handle without "
                    "wait(), and that takes the message back"
                )
                return Need((send.rank,), "never", why)
            return None
        return Need((recv.peer,), "all", self._absence(recv.peer, "sent", recv))

    def _need_of_any_recv(self, recv: Operation) -> Need | None:
        to_me = [
            (link, sends)
            for link, sends in self._sends.items()
            if link[0] == recv.group_name and link[2] == recv.rank and link[3] == recv.tag
        ]
        named = sum(len(self._recvs[link]) for link, _ in to_me)
        if sum(len(sends) for _, sends in to_me) - named > self._place(recv):
            return None
        others = tuple(rank for rank in recv.group if rank != recv.rank)
        return Need(others, "any", "no rank has sent it, and none is left that could")

    def _need_of_collective(self, operation: Operation) -> Need | None:
        entered = self._collectives[_group(operation)]
        place = self._place(operation)
        missing = [rank for rank in operation.group if len(entered[rank]) <= place]
        if operation.name in _ROOTED and operation.rank != operation.peer:
            if operation.peer in missing:
                missing = [operation.peer]
            elif operation.name in ("gather", "scatter"):
                return None  # only the root is needed, and it is there
        if not missing:
            return None
        absences = (self._absence(rank, "entered", operation) for rank in missing)
        return Need(tuple(missing), "all", "; ".join(absences))

    def _absence(self, rank: int, verb: str, operation: Operation) -> str:
        """Why a rank has not done its part, in words."""
        part = f"rank {rank} has not {verb} it"
        if how := self._over.get(rank):
            return f"rank {rank} {how} and never {verb} it"
        if operation.name in ("send", "recv") and (other := self._other_tag(operation)) is not None:
            return f"{part}; it uses tag {other}, this asks for tag {operation.tag}"
        waiting = list(self._waiting[rank].values())
        return f"{part}; it waits, too" if waiting else part

    def _other_tag(self, operation: Operation) -> int | None:
        """The tag of an untaken message between the same two ranks, if there is one."""
        group, source, target, tag = _link(operation)
        mine, theirs = self._sends, self._recvs
        if operation.name == "recv":
            mine, theirs = theirs, mine
        for link, operations in theirs.items():
            same_ends = link[:3] == (group, source, target) and link[3] != tag
            if same_ends and len(operations) > len(mine.get(link, ())):
                return link[3]
        return None

    # ------------------------------------------------------------ bookkeeping

    def _channel(self, operation: Operation) -> list[Operation]:
        if operation.name == "send":
            return self._sends[_link(operation)]
        if operation.name == "recv":
            if operation.peer is None:
                return self._any_recvs[operation.group_name, operation.rank, operation.tag]
            return self._recvs[_link(operation)]
        return self._collectives[_group(operation)][operation.rank]

    def _place(self, operation: Operation) -> int:
        return self._sequence[operation.rank, operation.id]

    def _disagreement(self, operation: Operation) -> Mismatch | None:
        """Whether the operation fits those partners of its that have begun."""
        for partner in self._partners(operation):
            first, second = sorted((partner, operation), key=lambda one: one.rank)
            if what := _difference(first, second):
                return Mismatch(what, first, second)
        return None

    def _partners(self, operation: Operation) -> Iterable[Operation]:
        place = self._place(operation)
        if operation.name in ("send", "recv"):
            if operation.peer is None or self._may_go_to_any(operation):
                return []
            others = self._recvs if operation.name == "send" else self._sends
            return others[_link(operation)][place : place + 1]
        entered = self._collectives[_group(operation)]
        return [
            calls[place]
            for rank, calls in entered.items()
            if rank != operation.rank and len(calls) > place
        ]

    def _may_go_to_any(self, operation: Operation) -> bool:
        group, _, target, tag = _link(operation)
        return bool(self._any_recvs[group, target, tag])


def _may_come(need: Need, running: set[int]) -> bool:
    if need.quantifier == "never":
        return False
    arrived = (rank in running for rank in need.ranks)
    return all(arrived) if need.quantifier == "all" else any(arrived)


def _link(operation: Operation) -> _Link:
    """Group, sender, receiver and tag of a message."""
    assert operation.peer is not None
    ends = (operation.rank, operation.peer)
    source, target = ends if operation.name == "send" else ends[::-1]
    return operation.group_name, source, target, operation.tag


def _group(operation: Operation) -> str:
    """Where an operation of a whole group is counted: making a group, under its own name."""
    making = operation.name.startswith("new_group")
    return f"{operation.name} {operation.group_name}" if making else operation.group_name


def _difference(first: Operation, second: Operation) -> str:
    """In what two partners differ, in words; empty when they fit."""
    if first.name in ("send", "recv"):
        if first.dtype != second.dtype:
            return "dtype"
        return "" if first.nbytes == second.nbytes else "size"
    if first.name != second.name:
        return "operation"
    if first.group != second.group:
        return "group"
    if first.name in _ROOTED and first.peer != second.peer:
        return "root"
    if first.reduce_op != second.reduce_op:
        return "reduce operation"
    if first.dtype != second.dtype:
        return "dtype"
    if first.name in _SAME_SIZE and first.nbytes != second.nbytes:
        return "size"
    return ""


def _short(file: str) -> str:
    return file.rpartition("/")[2]
