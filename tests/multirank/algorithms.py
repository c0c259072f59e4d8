"""Collective algorithms as programs of one rank, whose cost is known in closed form.

n ranks; `nbytes` is the size of the full tensor, as in `Fabric.collective`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from multirank.modelling.programs import Irecv, Isend, Recv, Send, Step, Wait

Program: TypeAlias = Iterator[Step]
Algorithm: TypeAlias = Callable[[int, int, int], Program]


def exchange(to: int, source: int, nbytes: int) -> Program:
    send, receive = Isend(to, nbytes), Irecv(source)
    yield from (send, receive, Wait(send), Wait(receive))


def rounds(n: int) -> list[int]:
    """1, 2, 4, ... below n."""
    return [2**k for k in range((n - 1).bit_length())]


def ring(rank: int, n: int, nbytes: int) -> Program:
    """Reduce-scatter or all-gather."""
    for _ in range(n - 1):
        yield from exchange((rank + 1) % n, (rank - 1) % n, nbytes // n)


def ring_all_reduce(rank: int, n: int, nbytes: int) -> Program:
    yield from ring(rank, n, nbytes)
    yield from ring(rank, n, nbytes)


def unchunked_ring(rank: int, n: int, nbytes: int) -> Program:
    """All-reduce: everybody's whole tensor goes all the way round."""
    for _ in range(n - 1):
        yield from exchange((rank + 1) % n, (rank - 1) % n, nbytes)


def blocking_ring(rank: int, n: int, nbytes: int) -> Program:
    """All-reduce by a ring of blocking sends: even ranks send first, odd ranks receive first."""
    for _ in range(2 * (n - 1)):
        steps = (Send((rank + 1) % n, nbytes // n), Recv((rank - 1) % n))
        yield from steps if rank % 2 == 0 else reversed(steps)


def naive_all_reduce(rank: int, n: int, nbytes: int) -> Program:
    """Rank 0 collects everything, then sends everybody the result."""
    if rank == 0:
        yield from (Recv(peer) for peer in range(1, n))
        yield from (Send(peer, nbytes) for peer in range(1, n))
    else:
        yield from (Send(0, nbytes), Recv(0))


def tree_broadcast(rank: int, n: int, nbytes: int) -> Program:
    for distance in rounds(n):
        if rank < distance and rank + distance < n:
            yield Send(rank + distance, nbytes)
        elif distance <= rank < 2 * distance:
            yield Recv(rank - distance)


def tree_reduce(rank: int, n: int, nbytes: int) -> Program:
    for distance in reversed(rounds(n)):
        if rank < distance and rank + distance < n:
            yield Recv(rank + distance)
        elif distance <= rank < 2 * distance:
            yield Send(rank - distance, nbytes)


def tree_all_reduce(rank: int, n: int, nbytes: int) -> Program:
    yield from tree_reduce(rank, n, nbytes)
    yield from tree_broadcast(rank, n, nbytes)


def recursive_doubling(rank: int, n: int, nbytes: int) -> Program:
    """All-reduce among a power of two."""
    for distance in rounds(n):
        yield from exchange(rank ^ distance, rank ^ distance, nbytes)


def doubling_all_gather(rank: int, n: int, nbytes: int) -> Program:
    """Among a power of two; backwards it is recursive halving, a reduce-scatter."""
    for distance in rounds(n):
        yield from exchange(rank ^ distance, rank ^ distance, distance * nbytes // n)


def halving_reduce_scatter(rank: int, n: int, nbytes: int) -> Program:
    for distance in reversed(rounds(n)):
        yield from exchange(rank ^ distance, rank ^ distance, distance * nbytes // n)


def rabenseifner(rank: int, n: int, nbytes: int) -> Program:
    yield from halving_reduce_scatter(rank, n, nbytes)
    yield from doubling_all_gather(rank, n, nbytes)


def direct_scatter(rank: int, n: int, nbytes: int) -> Program:
    if rank == 0:
        yield from (Send(peer, nbytes // n) for peer in range(1, n))
    else:
        yield Recv(0)


def tree_scatter(rank: int, n: int, nbytes: int) -> Program:
    """Among a power of two: each sends half of what it has to half of those that it is for."""
    for distance in reversed(rounds(n)):
        if rank % (2 * distance) == 0:
            yield Send(rank + distance, distance * nbytes // n)
        elif rank % (2 * distance) == distance:
            yield Recv(rank - distance)


def pairwise_all_to_all(rank: int, n: int, nbytes: int) -> Program:
    for step in range(1, n):
        yield from exchange((rank + step) % n, (rank - step) % n, nbytes // n)


def pairwise_all_to_all_at_once(rank: int, n: int, nbytes: int) -> Program:
    handles: list[Step] = []
    for step in range(1, n):
        handles += [Isend((rank + step) % n, nbytes // n), Irecv((rank - step) % n)]
    yield from handles
    yield from (Wait(handle) for handle in handles)


def bruck_all_to_all(rank: int, n: int, nbytes: int) -> Program:
    for distance in rounds(n):
        blocks = sum(1 for block in range(n) if block & distance)
        yield from exchange((rank + distance) % n, (rank - distance) % n, blocks * nbytes // n)


def dissemination_barrier(rank: int, n: int, nbytes: int) -> Program:
    for distance in rounds(n):
        yield from exchange((rank + distance) % n, (rank - distance) % n, 0)


def chain_broadcast(pieces: int) -> Algorithm:
    """Every rank passes piece after piece on to the next one."""

    def program(rank: int, n: int, nbytes: int) -> Program:
        sends = []
        for _ in range(pieces):
            if rank > 0:
                yield Recv(rank - 1)
            if rank < n - 1:
                sends.append(Isend(rank + 1, nbytes // pieces))
                yield sends[-1]
        yield from (Wait(send) for send in sends)

    return program
