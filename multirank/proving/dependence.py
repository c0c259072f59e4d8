"""Whom an operation of a whole group waits for, as gloo does it.

Some ranks may leave some collectives before all have come: who contributes to a gather needs its
root only. What is said here is certain, not complete. It rests on gloo's algorithms
(github.com/pytorch/gloo: broadcast.cc, reduce.cc, gather.cc, scatter.cc);
`test_who_waits_for_whom_in_a_collective_is_as_in_gloo` names what changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..recording.trace import Operation

_NOTHING_TO_DO_WHEN_EMPTY = frozenset({"all_reduce", "reduce", "all_gather", "reduce_scatter"})


def indispensable(operation: Operation) -> list[int]:
    """The global ranks without whose coming the operation certainly does not complete."""
    group, rank, root = operation.group, operation.rank, operation.peer
    others = [other for other in group if other != rank]
    if operation.nbytes == 0 and operation.name in _NOTHING_TO_DO_WHEN_EMPTY:
        return []
    if operation.name in ("gather", "scatter") and rank != root:
        return [other for other in others if other == root]
    if operation.name == "reduce" and rank != root and rank in group:
        near = _in_ring(group.index(rank), len(group), math.prod(operation.shape))
        return [group[place] for place in near]
    if operation.name == "broadcast" and root in group and rank in group:
        place, top = group.index(rank), group.index(root)
        below = _in_tree((place - top) % len(group), len(group))
        return [group[(one + top) % len(group)] for one in below]
    return others


def _in_ring(place: int, size: int, elements: int) -> set[int]:
    """Whom a place needs that is not the root of a reduce.

    The tensor is cut into `size` chunks, the last of which may be empty. Each goes round from place
    to place, downwards, and ends complete at its own, whence it goes to the root.
    """
    chunk = 2 * math.ceil(elements / (2 * size))
    filled = math.ceil(elements / chunk)
    if place < filled:
        return set(range(size)) - {place}
    return {*range(place + 1, size), *range(filled - 1), place - 1}


def _in_tree(place: int, size: int) -> Iterator[int]:
    """Above and directly below a place in the binomial tree from 0: who must have the tensor
    before it arrives there, and to whom it goes from there."""
    above = place
    while above:
        above -= 1 << (above.bit_length() - 1)
        yield above
    bit = 1 << place.bit_length()
    while place + bit < size:
        yield place + bit
        bit <<= 1
