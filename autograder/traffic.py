"""Whether the record of what was communicated can be true: what is odd about it, for the staff.

A rank records its own messages, and could leave some out. So the record is laid beside what the
kernel has counted, and beside what any algorithm needs.
"""

from __future__ import annotations

from collections.abc import Sequence

from autograder.confine.counters import Count
from autograder.cost import size_in_words
from multirank import Trace

_CLOSE = 0.05  # of the larger
# Beside a message's bytes, gloo sends 96 for its sender and 48 for its receiver; and, without any,
# nothing.
_PER_MESSAGE, _APART = 128, 32


def disagreements(trace: Trace, counted: Sequence[Count]) -> list[str]:
    """How a record of messages alone differs from the kernel's count, where it differs most.

    counted: for each rank, in the time that the record is about.
    """
    odd = {}
    for rank, count in enumerate(counted):
        messages = [one for one in trace.of_rank(rank) if one.name in ("send", "recv")]
        beside = _PER_MESSAGE * len(messages) + _APART
        for name, what, moved in (
            ("send", "sent", count.sent),
            ("recv", "received", count.received),
        ):
            recorded = sum(one.nbytes for one in messages if one.name == name)
            if not recorded * (1 - _CLOSE) <= moved <= recorded * (1 + _CLOSE) + beside:
                odd[abs(moved - recorded)] = (
                    f"by the kernel's count rank {rank} has {what} {size_in_words(moved)}, by its "
                    f"own record {size_in_words(recorded)} in {len(messages)} messages"
                )
    return [odd[max(odd)]] if odd else []


def least_bytes(function: str, world_size: int, nbytes: int) -> int:
    """What all ranks together must send of a collective's full tensor of so many bytes."""
    return (2 if function == "all_reduce" else 1) * (world_size - 1) * nbytes


def too_little(trace: Trace, function: str, world_size: int, nbytes: int) -> list[str]:
    """That a collective, whose result is right, communicated less than it must have."""
    sent = sum(one.nbytes for one in trace.operations if one.name == "send")
    least = least_bytes(function, world_size, nbytes)
    if sent >= least * (1 - _CLOSE):
        return []
    return [
        f"the result is right, and by the record all ranks together sent {size_in_words(sent)}; "
        f"no way to do it takes less than {size_in_words(least)}, so the rest went another way, "
        "or was packed into fewer bytes"
    ]


def silent(trace: Trace, members: int, elements: int) -> list[str]:
    """That ranks know what others have, without one message."""
    if members == 1 or not elements or trace.operations:
        return []
    return ["every rank's result is right, and the record holds no message at all"]
