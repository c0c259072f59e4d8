"""What every rank of a world has begun and waits for, and whether a waiting rank can be served.

The ledger follows the traces of all ranks from the first operation on. It numbers operations within
their channel (the collectives of a group; the messages from one rank to another with one tag), and
so knows each one's partners: the k-th receive takes the k-th send. From that it answers two
questions. Do partners agree (else: `mismatch`)? Who can never go on (`doomed`)?

`doomed` is a proof over a snapshot: a rank is doomed when each operation that it waits for needs
somebody who has not begun his part and never will, being over or doomed himself. Because a rank
writes down what it is about to do before it does it, nobody has begun what is not written. Where
the ledger cannot tell, it says nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ..recording.trace import Operation, where
from .agreement import Mismatch, difference
from .dependence import indispensable

_Link = tuple[str, int, int, int | None]  # group, from, to, tag


@dataclass(frozen=True)
class Absent:
    """A rank that has not begun its part of an operation.

    Attributes:
        rank: who.
        state: what it does instead: it "runs" or "waits"; or why it will never come: in words,
            such as "finished".
        gone: whether it will never come.
        elsewhere: the operation with another tag, or in another group, that may have been meant.
    """

    rank: int
    state: str
    gone: bool
    elsewhere: Operation | None = None


@dataclass(frozen=True)
class Need:
    """What an operation still needs.

    Attributes:
        absent: who has not begun his part; nobody where the message was withdrawn.
        any_will_do: whether one of them is enough.
        dropped: an operation whose dropped handle is to blame: the isend that was withdrawn, or the
            irecv that has taken the message.
    """

    absent: tuple[Absent, ...]
    any_will_do: bool = False
    dropped: Operation | None = None

    @property
    def withdrawn(self) -> bool:
        """Whether the message was there and is not any more."""
        return self.dropped is not None and not self.absent

    def may_be_met(self, running: set[int]) -> bool:
        """Whether those who are absent may still come, if only `running` ranks go on."""
        if self.withdrawn:
            return False
        coming = [one.rank in running and not one.gone for one in self.absent]
        return any(coming) if self.any_will_do else all(coming)


@dataclass(frozen=True)
class Stuck:
    """A doomed rank: an operation that it waits for, and what that needs."""

    operation: Operation
    need: Need


@dataclass(frozen=True)
class _Wait:
    operation: Operation
    thread: int


class Ledger:
    """The state of one world. Ranks' records are fed in as they are read, in each rank's order."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._place: dict[tuple[int, int], int] = {}
        self._sends: dict[_Link, list[Operation]] = defaultdict(list)
        self._recvs: dict[_Link, list[Operation]] = defaultdict(list)
        self._any_recvs: dict[tuple[str, int, int | None], list[Operation]] = defaultdict(list)
        self._collectives: dict[str, dict[int, list[Operation]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._waiting: list[dict[int, _Wait]] = [{} for _ in range(world_size)]
        self._threads = [0] * world_size  # when the rank last began to wait
        self._left: list[Operation] = []
        self._over: dict[int, str] = {}
        self._unsure: set[int] = set()
        self._lost: set[int] = set()
        self._destroyed: dict[tuple[int, str], Operation] = {}
        self._misfit: tuple[str, Operation] | None = None

    # ------------------------------------------------------------ what happens

    def issued(self, operation: Operation) -> None:
        """A rank is about to begin an operation."""
        if operation.rank in self._lost:
            return
        if operation.name == "destroy_process_group":
            self._destroyed[operation.rank, operation.group_name] = operation
            return
        channel = self._channel(operation)
        self._place[operation.rank, operation.id] = len(channel)
        channel.append(operation)
        if self._misfit is None:
            for partner in self._partners(operation):
                if what := difference(partner, operation):
                    self._misfit = what, operation
                    break

    def waits(self, operation: Operation, thread: int, threads: int) -> None:
        """A thread is about to wait for an operation; so many Python threads live in the rank."""
        self._waiting[operation.rank][operation.id] = _Wait(operation, thread)
        self._threads[operation.rank] = threads

    def completed(self, operation: Operation) -> None:
        """An operation was seen complete."""
        self._waiting[operation.rank].pop(operation.id, None)

    def left(self, operation: Operation) -> None:
        """An operation has raised an exception; its rank goes on."""
        self._waiting[operation.rank].pop(operation.id, None)
        self._left.append(operation)

    def unsure(self, rank: int) -> None:
        """In this call something may act for the rank that the ledger does not see."""
        self._unsure.add(rank)

    def lost(self, rank: int) -> None:
        """From now on it is not known what the rank does."""
        self._lost.add(rank)

    def over(self, rank: int, how: str) -> None:
        """A rank begins nothing more in this call; `how` in words, such as "finished"."""
        self._over[rank] = how

    def begin_call(self) -> None:
        """A new call: every rank may go on."""
        self._over.clear()
        self._unsure.clear()
        self._left.clear()
        for waiting in self._waiting:
            waiting.clear()

    # ------------------------------------------------------------ what follows

    @property
    def mismatch(self) -> Mismatch | None:
        """The first operation that did not fit its partners, with them."""
        if self._misfit is None:
            return None
        what, operation = self._misfit
        together = sorted((operation, *self._partners(operation)), key=lambda one: one.rank)
        return Mismatch(what, tuple(together))

    def doomed(self) -> list[Stuck]:
        """The ranks that can never go on, each with the operations that hold it."""
        opaque = self._opaque
        stuck = {
            rank: found
            for rank in range(self._world_size)
            if rank not in opaque and rank not in self._over and (found := self._stuck(rank))
        }
        running = {
            rank
            for rank in range(self._world_size)
            if rank in opaque or (rank not in stuck and rank not in self._over)
        }
        while True:
            freed = {
                rank
                for rank, found in stuck.items()
                if rank not in running and any(one.need.may_be_met(running) for one in found)
            }
            if not freed:
                break
            running |= freed
        return [one for rank, found in stuck.items() if rank not in running for one in found]

    def idle(self) -> bool:
        """Whether every rank waits or is over."""
        return all(self._waiting[rank] or rank in self._over for rank in range(self._world_size))

    def is_waiting(self, rank: int) -> bool:
        """Whether the rank waits for an operation."""
        return bool(self._waiting[rank])

    def deserted(self) -> Iterator[tuple[Operation, Operation]]:
        """Unfinished operations that need a rank which has destroyed their group; with that."""
        waiting = [wait.operation for waits in self._waiting for wait in waits.values()]
        for operation in (*self._left, *waiting):
            need = self._need(operation) if operation.rank not in self._lost else None
            for one in need.absent if need else ():
                if destroyed := self._destroyed.get((one.rank, operation.group_name)):
                    yield operation, destroyed

    # ------------------------------------------------------------ what a rank needs

    def _stuck(self, rank: int) -> list[Stuck]:
        """The operations that hold a rank; none if one of them may be served, or cannot be told."""
        waits = self._waiting[rank].values()
        if self._threads[rank] > len({wait.thread for wait in waits}):  # another may still run
            return []
        needs = [(wait.operation, self._need(wait.operation)) for wait in waits]
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
        if self._partner(send) or self._any_recvs.get((send.group_name, send.peer, send.tag)):
            return None  # it is received, or may be
        return Need((self._absent(send.peer, send),))

    def _need_of_recv(self, recv: Operation) -> Need | None:
        assert recv.peer is not None
        if self._any_recvs.get((recv.group_name, recv.rank, recv.tag)):
            return None  # it may have taken this one's message, or another's
        if (send := self._partner(recv)) is None:
            return Need((self._absent(recv.peer, recv),), dropped=self._taken_before(recv))
        if send.dropped is not None and send.completed is None:
            return Need((), dropped=send)
        return None

    def _need_of_any_recv(self, recv: Operation) -> Need | None:
        """Served, if more messages were sent to the rank than other receives have surely taken."""
        to_me = (recv.group_name, recv.rank, recv.tag)
        sent = sum(len(sends) for link, sends in self._sends.items() if _ends_at(link) == to_me)
        taken = sum(
            one.completed is not None
            for link, recvs in self._recvs.items()
            if _ends_at(link) == to_me
            for one in recvs
        )
        if sent - taken > self._place[recv.rank, recv.id]:
            return None
        others = (rank for rank in recv.group if rank != recv.rank)
        return Need(tuple(self._absent(rank, recv) for rank in others), any_will_do=True)

    def _need_of_collective(self, operation: Operation) -> Need | None:
        entered = self._collectives[_group(operation)]
        place = self._place[operation.rank, operation.id]
        missing = [rank for rank in indispensable(operation) if len(entered[rank]) <= place]
        if not missing:
            return None
        return Need(tuple(self._absent(rank, operation) for rank in missing))

    def _absent(self, rank: int, operation: Operation) -> Absent:
        if destroyed := self._destroyed.get((rank, operation.group_name)):
            return Absent(rank, f"destroyed the group ({where(destroyed)})", gone=True)
        if rank not in self._opaque and (how := self._over.get(rank)):
            return Absent(rank, how, gone=True, elsewhere=self._elsewhere(operation))
        state = "waits" if 0 <= rank < self._world_size and self._waiting[rank] else "runs"
        return Absent(rank, state, gone=False, elsewhere=self._elsewhere(operation))

    def _elsewhere(self, operation: Operation) -> Operation | None:
        """An untaken message between the same two ranks, with another tag or in another group."""
        if operation.name not in ("send", "recv") or operation.peer is None:
            return None
        mine, theirs = self._sends, self._recvs
        if operation.name == "recv":
            mine, theirs = theirs, mine
        this = _link(operation)
        for link, operations in theirs.items():
            taken = len(mine.get(link, ()))
            if link != this and link[1:3] == this[1:3] and len(operations) > taken:
                return operations[taken]
        return None

    def _taken_before(self, recv: Operation) -> Operation | None:
        """An irecv of the same messages that nobody waits for any more."""
        before = self._recvs[_link(recv)][: self._place[recv.rank, recv.id]]
        dropped = (one for one in before if one.dropped is not None)
        return next((one for one in dropped if one.waited is None and one.completed is None), None)

    # ------------------------------------------------------------ bookkeeping

    @property
    def _opaque(self) -> set[int]:
        """The ranks that may do more than is seen."""
        return self._lost | self._unsure

    def _channel(self, operation: Operation) -> list[Operation]:
        if operation.name == "send":
            return self._sends[_link(operation)]
        if operation.name == "recv":
            if operation.peer is None:
                return self._any_recvs[operation.group_name, operation.rank, operation.tag]
            return self._recvs[_link(operation)]
        return self._collectives[_group(operation)][operation.rank]

    def _partner(self, message: Operation) -> Operation | None:
        """The receive of a send, the send of a receive."""
        others = (self._recvs if message.name == "send" else self._sends).get(_link(message), ())
        place = self._place[message.rank, message.id]
        return others[place] if len(others) > place else None

    def _partners(self, operation: Operation) -> list[Operation]:
        """Those partners of an operation that have begun."""
        if operation.name in ("send", "recv"):
            if operation.peer is None or self._any_recvs.get(_ends_at(_link(operation))):
                return []
            partner = self._partner(operation)
            return [partner] if partner else []
        place = self._place[operation.rank, operation.id]
        return [
            calls[place]
            for rank, calls in self._collectives[_group(operation)].items()
            if rank != operation.rank and len(calls) > place
        ]


def _link(operation: Operation) -> _Link:
    """Group, sender, receiver and tag of a message."""
    assert operation.peer is not None
    if operation.name == "send":
        return operation.group_name, operation.rank, operation.peer, operation.tag
    return operation.group_name, operation.peer, operation.rank, operation.tag


def _ends_at(link: _Link) -> tuple[str, int, int | None]:
    """Group, receiver and tag of a link."""
    return link[0], link[2], link[3]


def _group(operation: Operation) -> str:
    """Where an operation of a whole group is counted: making a group, under its own name."""
    making = operation.name in ("new_group", "new_group_barrier", "init_process_group")
    return f"{operation.name} {operation.group_name}" if making else operation.group_name
