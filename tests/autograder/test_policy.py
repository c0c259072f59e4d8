"""What a course's rules make of a grade: off by default, decided alike at every regrade."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autograder.manifest import load
from autograder.paths import REFERENCE
from autograder.policy import Decision, HandedIn, Lateness, Policy, RateLimit, apply, days_late

DUE = datetime(2026, 3, 1, 23, 0, tzinfo=timezone(timedelta(hours=-7)))
TENTH_A_DAY = Lateness(percent_per_day=Fraction(10), grace_minutes=15, most_days=3)


def late(by: timedelta, lateness: Lateness = TENTH_A_DAY) -> Decision:
    return apply(Policy(lateness), HandedIn(DUE + by, DUE))


def limited(*hours_ago: float, submissions: int = 2) -> Decision:
    earlier = [DUE - timedelta(hours=hours) for hours in hours_ago]
    return apply(Policy(rate_limit=RateLimit(submissions)), HandedIn(DUE, DUE, earlier))


def test_by_default_no_rule_does_anything() -> None:
    earlier = [DUE] * 100
    assert load(REFERENCE).course.policy == Policy()
    assert apply(Policy(), HandedIn(DUE + timedelta(days=99), DUE, earlier)) == Decision()
    assert Decision().final(Fraction(7, 3)) == Fraction(7, 3)


@pytest.mark.parametrize(
    ("by", "remains"),
    [
        (timedelta(days=-3), Fraction(1)),
        (timedelta(0), Fraction(1)),
        (timedelta(minutes=15), Fraction(1)),
        (timedelta(minutes=15, microseconds=1), Fraction(9, 10)),
        (timedelta(days=1), Fraction(9, 10)),
        (timedelta(days=1, microseconds=1), Fraction(8, 10)),
        (timedelta(days=3), Fraction(7, 10)),
        (timedelta(days=3, seconds=1), Fraction(0)),
    ],
)
def test_each_day_late_that_has_begun_costs_its_part(by: timedelta, remains: Fraction) -> None:
    decision = late(by)
    assert decision.factor == remains
    assert decision.final(Fraction(50)) == 50 * remains
    assert bool(decision.reasons) == (remains != 1)
    assert not decision.refused


def test_the_reason_says_how_late_and_what_it_costs() -> None:
    assert late(timedelta(days=1, hours=1)).reasons == (
        "Handed in late, within day 2 after the due date: 20% is lost "
        "(10% of the points earned for each day begun).",
    )
    assert late(timedelta(days=30)).reasons == (
        "Handed in late, within day 30 after the due date: the course takes nothing later than "
        "3 days.",
    )


@given(st.integers(-(10**6), 10**7), st.integers(0, 100), st.integers(0, 10**4))
def test_later_is_never_better_and_nothing_leaves_the_range(
    seconds: int, percent: int, grace: int
) -> None:
    lateness = Lateness(Fraction(percent), grace)
    now, afterwards = (late(timedelta(seconds=s), lateness).factor for s in (seconds, seconds + 1))
    assert 0 <= afterwards <= now <= 1


def test_time_zones_are_minded_and_without_a_due_date_nothing_is_late() -> None:
    elsewhere = DUE.astimezone(timezone(timedelta(hours=9)))
    assert days_late(TENTH_A_DAY, HandedIn(elsewhere, DUE)) == 0
    assert apply(Policy(TENTH_A_DAY), HandedIn(DUE)) == Decision()


def test_over_the_rate_limit_it_is_not_graded_and_told_when_the_next_one_is() -> None:
    assert not limited(1, 25).refused
    decision = limited(1, 2, 30)
    assert decision.refused
    assert decision.reasons == (
        "Not graded: this course grades 2 submissions within 24 hours, and there were as many "
        "already. The next one is graded from 2026-03-02 21:00 UTC-07:00 on.",
    )


def test_the_next_one_is_graded_when_the_message_says() -> None:
    first = DUE - timedelta(hours=2)
    policy = Policy(rate_limit=RateLimit(1))
    again = first + timedelta(hours=24)
    assert apply(policy, HandedIn(again - timedelta(seconds=1), None, [first])).refused
    assert not apply(policy, HandedIn(again, None, [first])).refused


def test_a_regrade_counts_from_when_it_was_handed_in() -> None:
    later = [DUE + timedelta(hours=hours) for hours in (1, 2, 3)]
    decision = apply(Policy(rate_limit=RateLimit(1)), HandedIn(DUE, DUE, later))
    assert not decision.refused
