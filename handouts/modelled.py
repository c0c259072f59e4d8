"""All-reduce by several algorithms, as programs of one rank: what the handout compares."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from multirank import Fabric, replay_programs
from multirank.modelling.programs import Irecv, Isend, Recv, Send, Step, Wait

Program = Callable[[int, int, int], Iterator[Step]]  # of a rank, the ranks, and the bytes

# The network that the cost of collectives is graded on: see the docstring of collectives.py.
GRADED = Fabric("graded", 20e-6, 50e9)


def ring(rank: int, n: int, nbytes: int) -> Iterator[Step]:
    """Reduce-scatter and all-gather."""
    for _ in range(2 * (n - 1)):
        yield from _exchange((rank + 1) % n, (rank - 1) % n, nbytes // n)


def whole_ring(rank: int, n: int, nbytes: int) -> Iterator[Step]:
    """The whole tensor, all the way round."""
    for _ in range(n - 1):
        yield from _exchange((rank + 1) % n, (rank - 1) % n, nbytes)


def doubling(rank: int, n: int, nbytes: int) -> Iterator[Step]:
    """Everybody exchanges all with one further away each time: 1, 2, 4, ..."""
    for distance in _distances(n):
        yield from _exchange(rank ^ distance, rank ^ distance, nbytes)


def trees(rank: int, n: int, nbytes: int) -> Iterator[Step]:
    """A reduce by a binomial tree, and a broadcast by another."""
    for distance in reversed(_distances(n)):
        if rank < distance:
            yield Recv(rank + distance)
        elif rank < 2 * distance:
            yield Send(rank - distance, nbytes)
    for distance in _distances(n):
        if rank < distance:
            yield Send(rank + distance, nbytes)
        elif rank < 2 * distance:
            yield Recv(rank - distance)


def naive(rank: int, n: int, nbytes: int) -> Iterator[Step]:
    """All to rank 0, and back."""
    if rank == 0:
        yield from (Recv(peer) for peer in range(1, n))
        yield from (Send(peer, nbytes) for peer in range(1, n))
    else:
        yield from (Send(0, nbytes), Recv(0))


ALGORITHMS: dict[str, Program] = {
    "all to one rank and back": naive,
    "the whole tensor around the ring": whole_ring,
    "trees: reduce and broadcast": trees,
    "recursive doubling": doubling,
    "ring": ring,
}


def seconds(program: Program, n: int, nbytes: int, fabric: Fabric) -> float:
    """How long it takes on n ranks (a power of two), on this fabric."""
    programs = [program(rank, n, nbytes) for rank in range(n)]
    return replay_programs(programs, fabric).makespan


def _exchange(to: int, source: int, nbytes: int) -> Iterator[Step]:
    send, receive = Isend(to, nbytes), Irecv(source)
    yield from (send, receive, Wait(send), Wait(receive))


def _distances(n: int) -> list[int]:
    return [2**k for k in range((n - 1).bit_length())]
