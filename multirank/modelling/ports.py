"""Every rank has two ports, one that sends and one that receives, for one transfer at a time.

A message takes its sender's port and its receiver's, a collective both ports of all its members,
from its start to its end. Whatever could start does: what was ready first, then the lower rank,
then the order of issue. While a collective waits for ports, nothing that was ready later starts on
any of them; else a stream of messages could keep it from ever starting.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from .activity import Transfer, Work

_Key: TypeAlias = tuple[int, int, int]


class _Port:
    """One direction of one rank."""

    __slots__ = ("busy", "claims", "last", "parked")

    def __init__(self) -> None:
        self.busy = False
        self.last: Work | None = None
        self.parked: list[tuple[_Key, Transfer]] = []  # a heap: what this port keeps from starting
        self.claims: list[_Key] = []  # collectives that wait for ports, in order


class Ports:
    """Decides which transfer starts when.

    Args:
        ranks: how many ranks there are.
    """

    def __init__(self, ranks: int) -> None:
        self._sending = [_Port() for _ in range(ranks)]
        self._receiving = [_Port() for _ in range(ranks)]
        # A heap of what may be able to start, and where each was parked.
        self._offered: list[tuple[_Key, Transfer, _Port | None]] = []
        self._freed: list[_Port] = []

    def offer(self, transfer: Transfer) -> None:
        """Takes a transfer that is ready to start."""
        heapq.heappush(self._offered, (transfer.key, transfer, None))

    def release(self, transfer: Transfer) -> None:
        """Frees the ports of a transfer that has ended."""
        ports = self._ports_of(transfer)
        for port in ports:
            port.busy = False
        self._freed += ports

    def start(self, now: int) -> Iterator[Transfer]:
        """Starts all that can start now, once all that has ended is released; yields them.

        What cannot start is parked at one port that keeps it from starting. It is looked at again
        when that port is free.
        """
        for port in self._freed:
            self._offer_first_parked(port)
        self._freed.clear()
        while self._offered:
            key, transfer, parked_at = heapq.heappop(self._offered)
            ports = self._ports_of(transfer)
            obstacle = next((port for port in ports if _keeps_waiting(port, key)), None)
            if obstacle is None:
                self._begin(transfer, ports, now)
                yield transfer
                continue
            heapq.heappush(obstacle.parked, (key, transfer))
            if parked_at is None and transfer.name != "message":
                for port in ports:
                    insort(port.claims, key)
            if parked_at is not None and parked_at is not obstacle:
                self._offer_first_parked(parked_at)

    def _ports_of(self, transfer: Transfer) -> Sequence[_Port]:
        requests = transfer.requests
        if transfer.name == "message":
            return self._sending[requests[0].rank], self._receiving[requests[1].rank]
        return [
            port
            for request in requests
            for port in (self._sending[request.rank], self._receiving[request.rank])
        ]

    def _offer_first_parked(self, port: _Port) -> None:
        if port.parked and not port.busy:
            heapq.heappush(self._offered, (*heapq.heappop(port.parked), port))

    def _begin(self, transfer: Transfer, ports: Sequence[_Port], now: int) -> None:
        if transfer.ready == now:
            cause = transfer.decided_by.cause
        else:  # it was kept waiting, until a port was freed
            cause = next(port.last for port in ports if port.last and port.last.end == now)
        transfer.begin(now, cause)
        for port in ports:
            port.busy, port.last = True, transfer.work
            if port.claims and port.claims[0] == transfer.key:
                del port.claims[0]


def _keeps_waiting(port: _Port, key: _Key) -> bool:
    """Whether a transfer with this key cannot start on the port now."""
    return port.busy or bool(port.claims and port.claims[0] < key)
