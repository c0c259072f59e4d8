"""What a call costs, by its trace: bytes moved and modelled time, and what points that is worth.

Bytes: only the busiest rank counts, by the larger of what it sent and what it received. On links
that carry both directions at once, that is what an algorithm's time at large sizes comes down to.

Modelled time: the messages, replayed on `FABRIC`. It also sees what bytes do not: messages that
wait for one another, and the latency of each.

Measured time, of all_reduce alone: the ratio to the reference's, which also sees the work that a
rank does between its messages.

Where several are scored, they share one pool, and the worst counts: one decision costs once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from multirank import Fabric, Operation, ReplayError, Trace, replay

FABRIC = Fabric("graded", latency=20e-6, bandwidth=50e9)
MOST_OPERATIONS = 100_000  # sends and receives of one call: what is replayed in under a second

Bands: TypeAlias = tuple[tuple[Fraction, Fraction], ...]
_STEPS: Bands = (
    (Fraction(16, 10), Fraction(3, 4)),
    (Fraction(22, 10), Fraction(1, 2)),
    (Fraction(32, 10), Fraction(1, 4)),
)
# Up to this many times the bound, or the reference's time, earns this part of the points.
BYTES_BANDS: Bands = ((Fraction(105, 100), Fraction(1)), *_STEPS)
TIME_BANDS: Bands = ((Fraction(11, 10), Fraction(1)), *_STEPS)


class Score(NamedTuple):
    """The part of the points for cost that something earns, and why not all."""

    part: Fraction
    why: str


def worst(*scores: Score) -> Score:
    """What one pool gives for all of them: the lowest; of several the first."""
    return min(scores, key=lambda score: score.part)


def part(ratio: Fraction, bands: Bands) -> Fraction:
    """The part of the points that this ratio earns."""
    return next((part for limit, part in bands if ratio <= limit), Fraction(0))


# --- Bytes --------------------------------------------------------------------------------------


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


def score_bytes(moved: Moved, world_size: int, bound: int, full: int) -> Score:
    """`BYTES_BANDS`, over the bound plus one element a message (float32).

    full: bytes of the full tensor.
    """
    ratio = Fraction(moved.nbytes, bound + 4 * moved.messages)
    return Score(
        part(ratio, BYTES_BANDS),
        f"with {world_size} ranks, rank {moved.rank} {moved.direction} "
        f"{moved.nbytes / full:.2f} S; {bound / full:.2f} S is enough "
        f"(S is the full tensor, {size_in_words(full)})",
    )


def score_collectives(
    operations: Sequence[Operation], rank: int, bound: Fraction, told: str
) -> Score:
    """`BYTES_BANDS`, of what one rank moves with torch's own collectives, and with messages.

    bound: the bytes that it may move. told: what it runs, in words.
    """
    used: defaultdict[str, Fraction] = defaultdict(Fraction)
    for operation in operations:
        used[operation.name] += _factor(operation) * operation.nbytes
    least = min(used.get("send", Fraction(0)), used.get("recv", Fraction(0)))
    moved = sum(used.values(), Fraction(0)) - least  # both directions at once
    if moved <= bound:
        return Score(Fraction(1), "")
    listed = ", ".join(f"{name} {float(nbytes):.0f}" for name, nbytes in used.items())
    return Score(
        part(moved / bound, BYTES_BANDS) if bound else Fraction(0),
        f"{told}: rank {rank} moves {float(moved):.0f} bytes ({listed}); {float(bound):.0f} are "
        "enough",
    )


def _factor(operation: Operation) -> Fraction:
    """How often a rank must move the operation's bytes, in one direction."""
    n = len(operation.group)
    match operation.name:
        case "send" | "recv":
            return Fraction(1)
        case "barrier" | "new_group":
            return Fraction(0)
        case "all_reduce":
            return 2 * Fraction(n - 1, n)
        case _:
            return Fraction(n - 1, n)


# --- Modelled time ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Modelled:
    """How long the messages of a call take on the modelled fabric.

    seconds: in all. busy: the part of them in which the busiest rank sends, or receives.
    rank, direction: which one that is; "sends" or "receives".
    """

    seconds: float
    busy: float
    rank: int
    direction: str


def model(trace: Trace, world_size: int, shrunk: int = 1) -> Modelled:
    """Replays the operations; declared compute is left out.

    shrunk: all messages stand for some that are so many times as large.

    Raises:
        ReplayError: they do not fit together, or are too many; the text says what is wrong.
    """
    if len(trace.operations) > MOST_OPERATIONS:
        raise ReplayError(
            f"{len(trace.operations):,} sends and receives in one call are too many; at most "
            f"{MOST_OPERATIONS:,} are graded. Send fewer, larger messages."
        )
    fabric = replace(FABRIC, latency=FABRIC.latency / shrunk)
    operations = [_polled_is_waited_for(operation) for operation in trace.operations]
    replayed = replay(replace(trace, operations=operations, marks=[]), fabric, world_size)
    busy: defaultdict[tuple[int, str], float] = defaultdict(float)
    for message in replayed.activities:
        for rank, direction in zip(message.ranks, ("sends", "receives"), strict=True):
            busy[rank, direction] += message.end - message.start
    (rank, direction), longest = max(
        busy.items(), key=lambda item: item[1], default=((0, "sends"), 0.0)
    )
    part = longest / replayed.makespan if replayed.makespan else 0.0
    return Modelled(replayed.makespan * shrunk, part, rank, direction)


def _polled_is_waited_for(operation: Operation) -> Operation:
    """To ask is_completed() until it is true is to wait too: what follows depends on it."""
    if operation.waited is None and operation.completed is not None:
        return replace(operation, waited=operation.completed)
    return operation


def score_time(modelled: Modelled, least: float, world_size: int, full: int, by: str) -> Score:
    """`TIME_BANDS`, over the reference's time.

    least: the reference's seconds. full: bytes of the full tensor. by: the reference's algorithm.
    """
    ratio = Fraction(modelled.seconds / least).limit_denominator(10**6)
    if modelled.busy < 0.75:
        hint = (
            f"no rank sends, or receives, for more than {modelled.busy:.0%} of that time: they "
            "wait for one another"
        )
    else:
        hint = f"rank {modelled.rank} {modelled.direction} for {modelled.busy:.0%} of that time"
    return Score(
        part(ratio, TIME_BANDS),
        f"with {world_size} ranks and {size_in_words(full)}, its messages take "
        f"{float(ratio):.2f} times as long as those of {by}, on the modelled network of the "
        f"docstring ({modelled.seconds * 1e3:.3g} ms, not {least * 1e3:.3g} ms); {hint}",
    )


# --- Measured time ------------------------------------------------------------------------------


def score_measured(ratio: float, world_size: int, full: int, room: Fraction) -> Score:
    """Of a ratio to the reference's time on the same machine: the same steps, with some room.

    full: bytes of the full tensor. room: up to this ratio all is well, since a clock cannot tell
    such times apart.
    """
    bands = ((Fraction(1), Fraction(1)), *_STEPS)
    return Score(
        part(Fraction(ratio).limit_denominator(10**6) / room, bands),
        f"with {world_size} ranks and {size_in_words(full)}, it takes {ratio:.2f} times as long as "
        "the reference, measured on this machine; copies, and memory that is allocated in a loop, "
        "cost time, too",
    )


def size_in_words(nbytes: int) -> str:
    """Such as "64 MiB"."""
    return f"{nbytes / 2**20:.3g} MiB" if nbytes >= 2**20 else f"{nbytes / 2**10:.3g} KiB"
