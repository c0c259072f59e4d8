"""Checks of problem gpipe: the schedule, and the figures of any schedule."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from autograder.failure import CheckFailed
from autograder.judge import Judge
from autograder.pipeline import (
    ALL_SIZES,
    Schedule,
    bubble,
    drawn_schedule,
    gpipe,
    one_at_a_time,
    one_f_one_b,
    peaks,
    require_figures,
    require_refusals,
    require_valid,
    told_schedules,
)
from autograder.problem import problem


@problem("gpipe", share="2/5")
def test_schedule(judge: Judge) -> None:
    """All forward passes, then all backward passes, and no more idle time than there must be."""
    _require_gpipe(judge, ALL_SIZES)


def _require_gpipe(judge: Judge, sizes: list[tuple[int, int]]) -> None:
    for (p, m), schedule in zip(sizes, told_schedules(judge, "gpipe", sizes), strict=True):
        judge.note({"stages": str(p), "micro-batches": str(m)})
        require_valid("gpipe", schedule, p, m)
        for stage, actions in enumerate(schedule):
            if actions[:m] != [("F", i) for i in range(m)]:
                raise CheckFailed(
                    f"gpipe({stage}, {p}, {m}): all forward passes come first, in their order"
                )
        if bubble(schedule) > Fraction(p - 1, m + p - 1):
            raise CheckFailed(
                f"gpipe with {p} stages and {m} micro-batches idles longer than it must: the "
                "stages do not have the same order of backward passes"
            )


def _some_schedules(rng: np.random.Generator) -> list[Schedule]:
    """Usual ones, and some that nobody would write."""
    sizes = [(4, 8), (3, 5), (2, 1), (1, 3), (5, 2)]
    usual = [make(p, m) for p, m in sizes for make in (gpipe, one_f_one_b, one_at_a_time)]
    return usual + [drawn_schedule(rng, p, m) for p, m in sizes for _ in range(3)]


@problem("gpipe", share="3/10", function="bubble_fraction")
def test_bubble_fraction(judge: Judge) -> None:
    """The idle fraction of usual schedules, and of some that nobody would write."""

    def ratio(schedule: Schedule) -> list[float]:
        busy = 1 - bubble(schedule)
        return [float((1 - busy) / busy)]

    def formula(schedule: Schedule) -> list[float]:
        p, m = len(schedule), len(schedule[0]) // 2
        return [(p - 1) / (m + p - 1)]

    def by_formula(schedule: Schedule) -> list[float]:
        p, m = len(schedule), len(schedule[0]) // 2
        return [(p - 1) / m]

    require_figures(
        judge,
        "bubble_fraction",
        _some_schedules(judge.seed.generator()),
        lambda schedule: [float(bubble(schedule))],
        {
            "the formula of GPipe and 1F1B: other schedules idle longer": formula,
            "the bubble ratio, a part of the time in which the stages work": ratio,
            "(p-1)/m, the bubble ratio of GPipe and 1F1B": by_formula,
            "the part of the time in which the stages work": lambda schedule: [
                float(1 - bubble(schedule))
            ],
            "a percentage, where a fraction is asked for": lambda schedule: [
                float(100 * bubble(schedule))
            ],
        },
    )


@problem("gpipe", share="1/5", function="peak_in_flight")
def test_peak_in_flight(judge: Judge) -> None:
    """The most micro-batches in flight, of usual schedules and of some that nobody would write."""

    def at_first(schedule: Schedule) -> list[float]:
        return [
            float(next(place for place, one in enumerate(actions) if one[0] == "B"))
            for actions in schedule
        ]

    require_figures(
        judge,
        "peak_in_flight",
        _some_schedules(judge.seed.generator()),
        lambda schedule: [float(one) for one in peaks(schedule)],
        {
            "the number of forward passes before the first backward pass": at_first,
            "the number of micro-batches": lambda schedule: [
                len(actions) / 2 for actions in schedule
            ],
            "a micro-batch that is not in flight until the next action": lambda schedule: [
                one - 1.0 for one in peaks(schedule)
            ],
            "the most on any stage, for every stage": lambda schedule: [
                float(max(peaks(schedule))) for _ in schedule
            ],
        },
    )


@problem("gpipe", share="1/10", kind="edges")
def test_edges(judge: Judge) -> None:
    """One stage, one micro-batch; what cannot be raises ValueError."""
    _require_gpipe(judge, [(1, 1), (1, 4), (4, 1)])
    require_refusals(
        judge,
        [
            ("gpipe", [4, 4, 2], "a stage that there is not"),
            ("gpipe", [0, 4, 0], "no micro-batches"),
            ("gpipe", [0, 0, 4], "no stages"),
        ],
    )
