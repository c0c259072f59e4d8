"""Checks of problem one_f_one_b: what a schedule does, whatever it calls its warm-up."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from autograder.failure import CheckFailed
from autograder.judge import Judge
from autograder.pipeline import (
    ALL_SIZES,
    Schedule,
    bubble,
    peaks,
    require_refusals,
    require_valid,
    told_schedules,
)
from autograder.problem import problem


def _told(judge: Judge, sizes: list[tuple[int, int]]) -> Iterator[tuple[int, int, Schedule]]:
    """p, m and a valid schedule, for all sizes."""
    told = told_schedules(judge, "one_f_one_b", sizes)
    for (p, m), schedule in zip(sizes, told, strict=True):
        judge.note({"stages": str(p), "micro-batches": str(m)})
        require_valid("one_f_one_b", schedule, p, m)
        yield p, m, schedule


@problem("one_f_one_b", share="3/10")
def test_valid(judge: Judge) -> None:
    """Valid schedules, for as many micro-batches as there are stages, and more."""
    list(_told(judge, [(p, m) for p, m in ALL_SIZES if m >= p]))


@problem("one_f_one_b", share="1/4")
def test_bubble(judge: Judge) -> None:
    """No more idle time than GPipe."""
    for p, m, schedule in _told(judge, [(p, m) for p, m in ALL_SIZES if m >= p]):
        if bubble(schedule) > Fraction(p - 1, m + p - 1):
            raise CheckFailed(
                f"one_f_one_b with {p} stages and {m} micro-batches idles for "
                f"{float(bubble(schedule)):.3f} of the time, more than (p-1)/(m+p-1)",
                causes=_few(schedule),
            )


def _few(schedule: Schedule) -> list[str]:
    """Whether stages begin with fewer forward passes than it takes for a gradient to come back."""
    p, m = len(schedule), len(schedule[0]) // 2
    first = [next(k for k, one in enumerate(actions) if one[0] == "B") for actions in schedule]
    few = any(k < min(m, p - stage) for stage, k in enumerate(first))
    return ["consistent with a warm-up that is too short"] if few else []


@problem("one_f_one_b", share="3/10")
def test_in_flight(judge: Judge) -> None:
    """At most min(m, p - stage) micro-batches in flight."""
    told = list(_told(judge, [(p, m) for p, m in ALL_SIZES if m >= p]))
    too_many = [
        (stage, p, m, peak, peak - min(m, p - stage))
        for p, m, schedule in told
        for stage, peak in enumerate(peaks(schedule))
        if peak > min(m, p - stage)
    ]
    if too_many:
        stage, p, m, peak, more = too_many[0]
        causes = []
        if all(set(peaks(schedule)) == {m} for _, m, schedule in told):
            causes = ["consistent with a schedule like GPipe's: all forward passes first"]
        elif all(one[-1] == 1 for one in too_many):
            causes = ["consistent with a warm-up of one forward pass too many"]
        raise CheckFailed(
            f"one_f_one_b({stage}, {p}, {m}): {peak} micro-batches are in flight at the same time, "
            f"{more} too many",
            causes=causes,
        )


@problem("one_f_one_b", share="3/20", kind="edges")
def test_edges(judge: Judge) -> None:
    """Fewer micro-batches than stages, one stage, one micro-batch; refusals."""
    sizes = [(p, m) for p, m in ALL_SIZES if m < p or p == 1]
    for p, m, schedule in _told(judge, sizes):
        idle, most = bubble(schedule), peaks(schedule)
        if idle > Fraction(p - 1, m + p - 1) or any(
            peak > min(m, p - stage) for stage, peak in enumerate(most)
        ):
            raise CheckFailed(
                f"one_f_one_b with {p} stages and {m} micro-batches idles too long, or too many "
                "micro-batches are in flight"
            )
    require_refusals(
        judge,
        [
            ("one_f_one_b", [4, 4, 2], "a stage that there is not"),
            ("one_f_one_b", [0, 4, 0], "no micro-batches"),
        ],
    )
