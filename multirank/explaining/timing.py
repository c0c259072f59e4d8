"""`multirank.explain_timing`: what a benchmark did that makes its number wrong.

It looks at what happened on a `VirtualDevice`. What the benchmark read off its clock around each
call gives a window; if no usual way of putting the windows together gives what it reported, or the
right one does, then the windows themselves are wrong, and the order of events tells why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import isclose
from statistics import fmean, median

Event = Sequence[str | float]
_Windows = Sequence[Sequence[tuple[float, float] | None]]  # by rank, then by call: start and stop
_Numbers = Sequence[float]


def _own(own: float, of_all: _Numbers) -> float:
    return own


_OVER_RANKS: list[tuple[str, Callable[[float, _Numbers], float]]] = [
    ("", lambda own, of_all: max(of_all)),
    (
        "the mean over the ranks, where the slowest rank counts",
        lambda own, of_all: fmean(of_all),
    ),
    ("every rank's own time, where the slowest rank counts", _own),
    ("the time of one rank alone, where the slowest rank counts", lambda own, of_all: of_all[0]),
    ("the fastest rank, where the slowest counts", lambda own, of_all: min(of_all)),
    ("the sum over the ranks, where the slowest rank counts", lambda own, of_all: sum(of_all)),
]
_OVER_ITERATIONS: list[tuple[str, Callable[[_Numbers], float]]] = [
    ("", median),
    ("the mean over the iterations, where the median is asked for", fmean),
    ("the fastest iteration, where the median is asked for", min),
    ("the slowest iteration, where the median is asked for", max),
    ("the first iteration alone, where the median of all is asked for", lambda all: all[0]),
    ("the last iteration alone, where the median of all is asked for", lambda all: all[-1]),
    ("the sum of all iterations, where the median is asked for", sum),
]


def explain_timing(
    events: Sequence[Sequence[Event]], reported: Sequence[float], warmup: int, iterations: int
) -> str:
    """What a wrong number is consistent with, in words; "" where nothing is known.

    Args:
        events: of each rank's `VirtualDevice`.
        reported: the seconds that the benchmark reported, on each rank.
        warmup, iterations: how many calls it was asked to leave out, and to time.
    """
    launches = [sum(event[0] == "launch" for event in own) for own in events]
    windows = [_windows(own) for own in events]
    if 0 in launches:
        return "consistent with the operation not being called"
    if not any(event[0] == "clock" for own in events for event in own):
        return "consistent with a clock of its own: the one that was given is never read"
    if (count := min(launches)) < warmup + iterations:
        return (
            f"consistent with too few calls: {count} of the operation, where {warmup} are not "
            f"timed and then {iterations} are"
        )
    statistic = _statistic([own[warmup : warmup + iterations] for own in windows], reported)
    if statistic:
        return f"consistent with {statistic}"
    for last in (warmup + iterations, iterations) if statistic is None and warmup else ():
        if _statistic([own[:last] for own in windows], reported) is not None:
            return "consistent with the first calls, which are for warming up, being timed"
    order = next((why for own in events if (why := _order(own, warmup))), "")
    if (count := max(launches)) > warmup + iterations and not order:
        order = (
            f"too many calls: {count} of the operation, where {warmup} are not timed and then "
            f"{iterations} are"
        )
    return f"consistent with {order}" if order else ""


def _segments(events: Sequence[Event]) -> list[list[Event]]:
    """The events, cut after every launch; so each piece but the last ends with one."""
    pieces: list[list[Event]] = [[]]
    for event in events:
        pieces[-1].append(event)
        if event[0] == "launch":
            pieces.append([])
    return pieces


def _windows(events: Sequence[Event]) -> list[tuple[float, float] | None]:
    """For each launch, what the clock showed last before it and first after it, if it did both."""
    pieces = [[float(e[2]) for e in piece if e[0] == "clock"] for piece in _segments(events)]
    return [
        (before[-1], after[0]) if before and after else None for before, after in pairwise(pieces)
    ]


def _statistic(windows: _Windows, reported: Sequence[float]) -> str | None:
    """The way in which the windows give what was reported; "" for the right one, None for none."""
    spans = [[one for one in own if one is not None] for own in windows]
    if not spans[0] or any(len(own) != len(windows[0]) for own in spans):
        return None
    took = [[stop - start for start, stop in own] for own in spans]
    by_iteration = list(zip(*took, strict=True))
    found = []
    for over_ranks, across in _OVER_RANKS:
        for over_iterations, within in _OVER_ITERATIONS:
            words = " and ".join(one for one in (over_ranks, over_iterations) if one)
            ranks_first = [
                within([across(own[k], one) for k, one in enumerate(by_iteration)]) for own in took
            ]
            if _same(ranks_first, reported):
                found.append(words)
            each = [within(own) for own in took]
            swapped = [across(own, each) for own in each]
            if _same(swapped, reported):
                found.append(words or _SWAPPED)
    if not found and _same(_across_clocks(spans), reported):
        return _CLOCKS
    return min(found, key=lambda words: (words.count(" and "), len(words) > 0), default=None)


_SWAPPED = (
    "the largest of the ranks' medians; the slowest rank of each iteration counts, which need not "
    "always be the same"
)
_CLOCKS = (
    "readings of different ranks' clocks being compared; only differences of the same clock mean "
    "anything"
)


def _across_clocks(spans: Sequence[Sequence[tuple[float, float]]]) -> list[float]:
    across = [
        max(stop for _, stop in one) - min(start for start, _ in one)
        for one in zip(*spans, strict=True)
    ]
    return [median(across)] * len(spans)


def _same(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    return all(isclose(a, b, rel_tol=1e-6) for a, b in zip(ours, theirs, strict=True))


def _order(events: Sequence[Event], warmup: int) -> str:
    """What is not in order around the timed calls, or ""."""
    pieces = _segments(events)
    for before, after in list(pairwise(pieces))[warmup:]:
        if why := _around(before[:-1], after):
            return why
    return ""


def _around(before: Sequence[Event], after: Sequence[Event]) -> str:
    """What is not in order around one call. before: since the last one. after: until the next."""
    names_before = [str(event[0]) for event in before]
    names_after = [str(event[0]) for event in after]
    if "clock" not in names_before:
        return "one reading of the clock for several calls; each call is to be timed for itself"
    if "clock" not in names_after:
        return "the clock not being read after each call; each call is to be timed for itself"
    start = len(names_before) - 1 - names_before[::-1].index("clock")
    ready, inside = before[:start], [*before[start + 1 :], *after[: names_after.index("clock")]]
    kinds, names_ready = [str(event[0]) for event in inside], [str(event[0]) for event in ready]
    stop_waits = "synchronize" in names_after[: names_after.index("clock")]
    if "barrier" in kinds or any("barrier" in str(event[2]) for event in inside):
        return "a barrier between start and stop of the clock, which is then timed as well"
    for event in inside:
        if event[0] in ("kernel", "message"):
            return (
                f"more than the operation between start and stop of the clock: {event[2]} runs "
                "there too"
            )
    if not stop_waits:
        return (
            "the clock being stopped before the operation is complete: on a GPU a call returns at "
            "launch, and synchronize() must come before the clock is read"
        )
    if "barrier" not in names_ready:
        return "no barrier before the clock is started: whoever is early times the wait for others"
    if "synchronize" not in names_ready[: names_ready.index("barrier")]:
        if "synchronize" in names_ready:
            return (
                "synchronize() after the barrier: a rank passes the barrier while its device still "
                "works, and the ranks do not start together"
            )
        return (
            "no synchronize() before the clock is started: work that is still under way is timed "
            "as well"
        )
    return ""
