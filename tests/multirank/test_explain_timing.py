"""`multirank.explain_timing` names what a benchmark did wrong, and nothing else.

The events are made by hand, as a device would note them down: one line for each iteration.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest

from multirank import explain_timing

WARMUP, ITERATIONS = 1, 3
TOOK = [[1.0, 2.0, 9.0, 3.0], [1.0, 4.0, 5.0, 6.0]]  # by rank, the first call not timed
ORDER = "synchronize barrier clock launch synchronize clock"


def events(order: str = ORDER, took: list[float] | None = None) -> list[list[Any]]:
    """What one rank did: a call to warm up, and then for each iteration what `order` says."""
    happened: list[list[Any]] = [["launch", 0.0, 8]]
    now = 10.0
    for seconds in (took or TOOK[0])[WARMUP:]:
        for name in order.split():
            kind, _, detail = name.partition(":")
            shown: Any = now if kind == "clock" else detail
            happened.append([kind, now, 8 if kind == "launch" else shown])
            now += seconds if kind == "launch" else 0.0
    return happened


def explained(reported: list[float], order: str = ORDER) -> str:
    return explain_timing([events(order, took) for took in TOOK], reported, WARMUP, ITERATIONS)


@pytest.mark.parametrize(
    ("reported", "named"),
    [
        ([median([3.0, 7.0, 4.5])] * 2, "the mean over the ranks"),
        ([3.0, 5.0], "every rank's own time"),
        ([3.0, 3.0], "the time of one rank alone"),
        ([5.0, 5.0], "the largest of the ranks' medians"),
        ([(4.0 + 9.0 + 6.0) / 3] * 2, "the mean over the iterations"),
        ([4.0, 4.0], "the fastest iteration"),
        ([9.0, 9.0], "the slowest iteration"),
        ([19.0, 19.0], "the sum of all iterations"),
    ],
)
def test_another_statistic_is_named(reported: list[float], named: str) -> None:
    assert named in explained(reported)


@pytest.mark.parametrize(
    ("order", "named"),
    [
        ("synchronize barrier clock launch clock synchronize", "before the operation is complete"),
        ("synchronize clock launch synchronize clock", "no barrier before the clock"),
        ("barrier synchronize clock launch synchronize clock", "synchronize() after the barrier"),
        ("barrier clock launch synchronize clock", "no synchronize() before the clock"),
        ("synchronize barrier clock launch synchronize barrier clock", "a barrier between"),
        ("synchronize clock barrier launch synchronize clock", "a barrier between"),
        ("synchronize barrier clock kernel:zeros launch synchronize clock", "zeros runs there too"),
        ("synchronize barrier launch", "a clock of its own"),
    ],
)
def test_what_is_not_in_order_is_named(order: str, named: str) -> None:
    assert named in explained([6.0, 6.0], order)


def test_one_reading_for_all_iterations_is_named() -> None:
    happened: list[Any] = [["clock", 0.0, 0.0], *([["launch", 0.0, 8]] * 4), ["clock", 1.0, 1.0]]
    assert "each call is to be timed for itself" in explain_timing([happened], [0.1], 1, 3)


def test_timed_warm_up_is_named() -> None:
    happened: list[Any] = [
        event
        for at, took in enumerate([50.0, 60.0, 1.0, 2.0])
        for event in (
            ["clock", 0.0, 100.0 * at],
            ["launch", 0.0, 8],
            ["clock", 0.0, 100.0 * at + took],
        )
    ]
    assert "warming up, being timed" in explain_timing([happened], [26.0], 2, 2)


def test_clocks_of_different_ranks_are_named() -> None:
    late = [[kind, at, value + 500 if kind == "clock" else value] for kind, at, value in events()]
    reported = [median([502.0, 509.0, 503.0])] * 2
    assert "readings of different ranks' clocks" in explain_timing([events(), late], reported, 1, 3)


def test_too_few_and_too_many_calls_are_named() -> None:
    assert "too few calls: 4" in explain_timing([events()], [1.0], 5, 3)
    assert "too many calls: 4" in explain_timing([events()], [100.0], 1, 2)
    assert "not being called" in explain_timing([[]], [1.0], 1, 3)


def test_what_is_in_order_is_not_blamed() -> None:
    assert explained([123.0, 123.0]) == ""
