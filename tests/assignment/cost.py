"""What a call costs: the bytes that the busiest rank moves, and modelled time.

Both are graded as the docstring of collectives.py says under "Cost". Modelled time is that of the
call's messages on a network of the docstring's, where only their sizes and their order count: your
computer may be as slow as it likes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import multirank
from multirank import Run

from .calls import Call
from .explain import describe, megabytes, tensors
from .running import operations

# Above these many times the limit, a function loses points for cost.
BYTES_LIMIT, TIME_LIMIT = 1.05, 1.1
NETWORK = multirank.Fabric("as graded", latency=20e-6, bandwidth=50e9)


@dataclass(frozen=True)
class Limit:
    """What earns all points for cost, in units of S, the size of the full tensor.

    moved: what the busiest rank may move. whole: what S is the size of, in words.
    messages, size: it may take as long as so many messages of this size do, one after another; no
        messages: any time.
    """

    moved: float
    whole: str
    messages: int = 0
    size: float = 1.0


@dataclass(frozen=True)
class Complaint:
    """A cost above the limit, `excess` times; the rest is for `fail`."""

    excess: float
    headline: str
    details: list[str]
    guessed: list[str]


def complaint(done: Run, call: Call, limit: Limit) -> Complaint | None:
    """What is wrong with the cost of the one call that was run; None if nothing is."""
    return _moves_too_much(done, call, limit) or _takes_too_long(done, call, limit)


def _size_of_whole(call: Call) -> int:
    """S in bytes: its largest tensor, or list of tensors."""
    sizes: Counter[str] = Counter()
    for rank, arguments in call.before.items():
        for name, tensor in tensors(arguments).items():
            sizes[f"{rank} {name.partition('[')[0]}"] += tensor.nbytes * call.width
    return max(sizes.values())


# --- What was moved -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Moved:
    """What one rank sent and received during the first call."""

    rank: int
    sent: list[int]
    received: list[int]
    dtypes: set[str | None]

    @classmethod
    def by(cls, done: Run, rank: int) -> _Moved:
        own = operations(done, rank, 0)
        sent, received = ([op.nbytes for op in own if op.name == kind] for kind in ("send", "recv"))
        return cls(rank, sent, received, {op.dtype for op in own})

    @property
    def direction(self) -> str:
        """The one in which it moved more."""
        return "sent" if sum(self.sent) >= sum(self.received) else "received"

    @property
    def sizes(self) -> list[int]:
        """Of the messages in that direction."""
        return self.sent if self.direction == "sent" else self.received

    @property
    def nbytes(self) -> int:
        return sum(self.sizes)

    @property
    def messages(self) -> int:
        return len(self.sizes)


def _moves_too_much(done: Run, call: Call, limit: Limit) -> Complaint | None:
    whole = _size_of_whole(call)
    element = next(iter(tensors(call.before[0]).values())).element_size()
    moved = [_Moved.by(done, rank) for rank in range(done.world_size)]
    busiest = max(moved, key=lambda one: one.nbytes)
    if busiest.nbytes <= BYTES_LIMIT * (limit.moved * whole + busiest.messages * element):
        return None
    ratio = busiest.nbytes / (limit.moved * whole)
    sent, received = (
        ", ".join(f"{sum(sizes) / 2**20:.4g}" for sizes in each)
        for each in ([one.sent for one in moved], [one.received for one in moved])
    )
    return Complaint(
        ratio,
        f"{call.function} moves too much: rank {busiest.rank} {busiest.direction} "
        f"{busiest.nbytes / whole:.2f} S; the bound is {limit.moved:.2f} S.",
        [
            f"called: {describe(call, busiest.rank)}, on {done.world_size} ranks",
            f"S, the size of {limit.whole}, is {megabytes(whole)}",
            f"sent by ranks 0 to {done.world_size - 1}, in MiB: {sent}; received: {received}",
            f"{ratio:.2f} times the bound; all points for cost up to {BYTES_LIMIT} times",
        ],
        _why_so_much(call, moved, busiest, whole),
    )


def _why_so_much(call: Call, moved: Sequence[_Moved], busiest: _Moved, whole: int) -> list[str]:
    dtype = str(next(iter(tensors(call.before[busiest.rank]).values())).dtype)
    if other := {f"torch.{name}" for name in busiest.dtypes} - {dtype}:
        return [f"messages of {', '.join(sorted(other))}, where the tensor is {dtype}"]
    all_of_it = max(busiest.sizes) >= whole
    if all_of_it and call.function not in ("broadcast", "reduce", "all_reduce"):
        return [f"all {megabytes(whole)} travelling in a message, where a part of it would do"]
    if busiest.nbytes > 1.5 * median(one.nbytes for one in moved):
        return [
            f"rank {busiest.rank} serving the others one by one, while the links between them lie "
            "idle: let ranks pass on what they have got"
        ]
    if all_of_it:
        return [f"all {megabytes(whole)} travelling in every message, where a part would do"]
    return []


# --- How long it takes --------------------------------------------------------------------------


def _takes_too_long(done: Run, call: Call, limit: Limit) -> Complaint | None:
    if not limit.messages:
        return None
    whole = _size_of_whole(call)
    least = limit.messages * NETWORK.message(limit.size * whole)
    called = f"called: {describe(call, 0)}, on {done.world_size} ranks"
    try:
        replayed = multirank.replay(done.trace, NETWORK, done.world_size)
    except multirank.ReplayError as error:
        return Complaint(
            float("inf"),
            f"{call.function} sends and receives what does not fit together.",
            [called, *str(error).splitlines()],
            [],
        )
    if replayed.makespan <= TIME_LIMIT * least:
        return None
    ratio = replayed.makespan / least
    busy: defaultdict[tuple[int, str], float] = defaultdict(float)
    for message in replayed.activities:
        for end in zip(message.ranks, ("sends", "receives"), strict=True):
            busy[end] += message.end - message.start
    (rank, direction), longest = max(busy.items(), key=lambda item: item[1])
    part = longest / replayed.makespan
    return Complaint(
        ratio,
        f"{call.function} takes too long on the modelled network of the docstring: {ratio:.2f} "
        f"times as long as {limit.messages} messages of {limit.size:g} S.",
        [
            called,
            f"S, the size of {limit.whole}, is {megabytes(whole)}",
            f"{replayed.makespan * 1e3:.3g} ms instead of {least * 1e3:.3g} ms; all points for "
            f"cost up to {TIME_LIMIT} times",
            f"no rank is busier than rank {rank}, which {direction} for {part:.0%} of the time",
        ],
        ["ranks waiting for one another, where messages could be under way at the same time"]
        if part < 0.75
        else [],
    )
