"""What ranks moved, by the trace, and how many points that is worth.

Only the busiest rank counts, by the larger of what it sent and what it received: on links that
carry both directions at once, that is what an algorithm's time at large sizes comes down to.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from multirank import Trace

# Up to this many times the bound earns this part of the points for cost.
BANDS = (
    (Fraction(105, 100), Fraction(1)),
    (Fraction(16, 10), Fraction(3, 4)),
    (Fraction(22, 10), Fraction(1, 2)),
    (Fraction(32, 10), Fraction(1, 4)),
)


@dataclass(frozen=True)
class Moved:
    """What the busiest rank moved, in one direction.

    rank: which. direction: "sent" or "received". nbytes: bytes. messages: how many.
    """

    rank: int
    direction: str
    nbytes: int
    messages: int


def busiest(trace: Trace, world_size: int) -> Moved:
    """The rank and direction in which most bytes were moved point to point."""
    moved = []
    for rank in range(world_size):
        operations = trace.of_rank(rank)
        for name, direction in (("send", "sent"), ("recv", "received")):
            sizes = [operation.nbytes for operation in operations if operation.name == name]
            moved.append(Moved(rank, direction, sum(sizes), len(sizes)))
    return max(moved, key=lambda one: one.nbytes)


def credit(moved: Moved, bound: int, element_size: int) -> Fraction:
    """The part of the points for cost: `BANDS`, over the bound plus one element a message."""
    ratio = Fraction(moved.nbytes, bound + moved.messages * element_size)
    return next((part for limit, part in BANDS if ratio <= limit), Fraction(0))
