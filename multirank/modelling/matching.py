"""Which operations belong together: a send and its receive, the calls of one collective.

As gloo does it. Messages are matched within a process group by sender, receiver and tag, first
come, first served; a receive from any source takes what was sent first. Collectives of a group are
matched by their order: everybody's first call is the first collective.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from ..recording.trace import Operation, describe_operation
from .activity import Request
from .fabric import COLLECTIVES

_LARGEST = 2**63  # bytes
_LISTED = 10


class ReplayError(ValueError):
    """What was to be replayed does not come to an end, or makes no sense; the text says where."""


class Matching:
    """All that was issued and has found no counterpart yet.

    Args:
        world_size: the number of ranks.
    """

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._groups: dict[tuple[str, tuple[int, ...]], _Group] = {}
        self._known: dict[tuple[str, int], tuple[tuple[int, ...], _Group]] = {}
        self._any_source = False

    def add(self, request: Request) -> Sequence[Request]:
        """Takes a request; those that belong together now: all of them, or nothing.

        A message's are those of sender and receiver, a collective's in order of rank.

        Raises:
            ReplayError: the operation makes no sense, or does not fit the others.
        """
        operation = request.operation
        group = self._group(operation)
        if operation.name in COLLECTIVES:
            return group.join(request)
        if operation.name not in ("send", "recv"):
            raise ReplayError(f"{describe(operation)}: the model knows no such operation")
        if operation.name == "recv" and operation.peer is None:
            self._any_source = True
            return group.receive_from_any(request)
        if operation.peer not in group.members:
            raise ReplayError(f"{describe(operation)}: the peer is not in the group {group}")
        return group.send(request) if operation.name == "send" else group.receive(request)

    def check_complete(self, blocked: Iterable[Request]) -> None:
        """Refuses to end while something has found no counterpart.

        Args:
            blocked: what ranks wait for; the message says so.

        Raises:
            ReplayError: it names those operations.
        """
        unmatched = sorted(
            ((request, group) for group in self._groups.values() for request in group.unmatched()),
            key=lambda pair: (pair[0].rank, pair[0].number),
        )
        if not unmatched:
            return
        waits = set(blocked)
        lines = []
        for request, group in unmatched[:_LISTED]:
            where, missing = self._where(group), group.missing(request)
            how = ", and waits there" if request in waits else ""
            lines.append(f"{describe(request.operation)}{where}{missing}{how}")
        if len(unmatched) > _LISTED:
            lines.append(f"and {len(unmatched) - _LISTED} more")
        if self._any_source:
            lines.append(
                "(a receive from any source takes what was sent first in virtual time, which need "
                "not be what it took in the run)"
            )
        raise ReplayError(
            "the replay does not come to its end: operations have no counterpart\n  "
            + "\n  ".join(lines)
        )

    def _where(self, group: _Group) -> str:
        """In which group, where there are several; with torch's name where the ranks are alike."""
        if len(self._groups) == 1:
            return ""
        twins = sum(other.ranks == group.ranks for other in self._groups.values()) > 1
        return f", in the group {group}" + (f" named {group.name!r}" if twins else "")

    def _group(self, operation: Operation) -> _Group:
        ranks, name = operation.group, operation.group_name
        # To hash a tuple of a thousand ranks for every operation would take most of the time.
        known = self._known.get((name, id(ranks)))
        if known is None:
            group = self._groups.setdefault((name, ranks), _Group(name, ranks))
            if len(group.members) < len(ranks) or not group.members <= set(range(self._world_size)):
                raise ReplayError(
                    f"{describe(operation)}: the group {group} must hold different ranks, from 0 "
                    f"to {self._world_size - 1}"
                )
            known = self._known[name, id(ranks)] = (ranks, group)  # keeps the tuple, and its id
        group = known[1]
        if operation.rank not in group.members:
            raise ReplayError(f"{describe(operation)}: the rank is not in the group {group}")
        if not 0 <= operation.nbytes <= _LARGEST:
            raise ReplayError(f"{describe(operation)} has {operation.nbytes} bytes")
        return group


_Queues: TypeAlias = defaultdict[tuple[int | None, int | None, int | None], deque[Request]]


class _Group:
    """What was issued in one process group and has found no counterpart yet."""

    def __init__(self, name: str, ranks: tuple[int, ...]) -> None:
        self.name = name
        self.ranks = ranks
        self.members = frozenset(ranks)
        self._sends: _Queues = defaultdict(deque)  # by sender, receiver and tag
        self._receives: _Queues = defaultdict(deque)  # by receiver, sender (None: any) and tag
        self._collectives: dict[int, list[Request]] = {}  # by their place in the group's order
        self._joined = dict.fromkeys(ranks, 0)

    def __str__(self) -> str:
        return _listed(self.ranks)

    def send(self, send: Request) -> Sequence[Request]:
        sender, receiver, tag = send.rank, send.operation.peer, send.operation.tag
        named = self._receives.get((receiver, sender, tag))
        from_any = self._receives.get((receiver, None, tag))
        if named and from_any:
            queue = min(named, from_any, key=lambda receives: receives[0].number)
        else:
            queue = named or from_any or deque()
        if queue:
            return (send, queue.popleft())
        self._sends[sender, receiver, tag].append(send)
        return ()

    def receive(self, receive: Request) -> Sequence[Request]:
        sender, tag = receive.operation.peer, receive.operation.tag
        if sent := self._sends.get((sender, receive.rank, tag)):
            return (sent.popleft(), receive)
        self._receives[receive.rank, sender, tag].append(receive)
        return ()

    def receive_from_any(self, receive: Request) -> Sequence[Request]:
        tag = receive.operation.tag
        queues = (self._sends.get((sender, receive.rank, tag)) for sender in self.ranks)
        sent = [queue for queue in queues if queue]
        if sent:
            first = min(sent, key=lambda queue: (queue[0].issued, queue[0].rank))
            return (first.popleft(), receive)
        self._receives[receive.rank, None, tag].append(receive)
        return ()

    def join(self, request: Request) -> Sequence[Request]:
        place = self._joined[request.rank]
        self._joined[request.rank] += 1
        calls = self._collectives.setdefault(place, [])
        calls.append(request)
        first, this = calls[0].operation, request.operation
        if (first.name, first.peer) != (this.name, this.peer):
            raise ReplayError(
                f"collective {place + 1} of the group {self} is not the same everywhere: "
                f"{describe(first)}, but {describe(this)}"
            )
        if len(calls) < len(self.ranks):
            return ()
        del self._collectives[place]
        return sorted(calls, key=lambda call: call.rank)

    def unmatched(self) -> Iterator[Request]:
        for queues in (self._sends, self._receives):
            for queue in queues.values():
                yield from queue
        for calls in self._collectives.values():
            yield from calls

    def missing(self, request: Request) -> str:
        """Who has not called a collective that others have called."""
        for place, calls in self._collectives.items():
            if request in calls:
                missing = [rank for rank in self.ranks if self._joined[rank] <= place]
                return f", not called by {_listed(missing)}"
        return ""


def describe(operation: Operation) -> str:
    """An operation of a rank in words: `rank 0: recv from rank 1 (train.py:12), tag 3`."""
    tag = f", tag {operation.tag}" if operation.tag else ""
    return f"rank {operation.rank}: {describe_operation(operation)}{tag}"


def _listed(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - _LISTED} more" if len(ranks) > _LISTED else ""
    return f"[{', '.join(str(rank) for rank in ranks[:_LISTED])}{more}]"
