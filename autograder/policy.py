"""What a course's rules make of a grade: lateness and how often one may hand in.

Pure functions of when work was handed in and of course.toml. All is off by default, and points that
were earned stay known beside what the rules leave of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from fractions import Fraction

import msgspec

_DAY = timedelta(days=1)


class Lateness(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[lateness]` of course.toml."""

    percent_per_day: Fraction = Fraction(0)
    """Of the points earned, lost for each day late that has begun. 0: lateness costs nothing."""
    grace_minutes: int = 0
    """Up to so much later counts as in time; beyond it, days count from the due date on."""
    most_days: int = 0
    """Later than so many days nothing counts. 0: there is no such end."""


class RateLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[rate_limit]` of course.toml."""

    submissions: int = 0
    """How many are graded within any `hours`. 0: all are."""
    hours: int = 24


class Counts(StrEnum):
    """`counts` of course.toml: which of a student's submissions does."""

    LAST = "last"
    BEST = "best"


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of a course."""

    lateness: Lateness = field(default_factory=Lateness)
    rate_limit: RateLimit = field(default_factory=RateLimit)
    counts: Counts = Counts.LAST


@dataclass(frozen=True, slots=True)
class HandedIn:
    """When somebody handed in. All times know their time zone.

    due: None where there is no due date.
    earlier: when the same student's other submissions came in that were graded, in any order.
    """

    when: datetime
    due: datetime | None = None
    earlier: Sequence[datetime] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """What the rules make of one submission.

    factor: of the points earned, what remains.
    refused: it is over the rate limit, and not graded.
    reasons: sentences to the student; empty where no rule does anything.
    """

    factor: Fraction = Fraction(1)
    refused: bool = False
    reasons: tuple[str, ...] = ()

    def final(self, earned: Fraction) -> Fraction:
        """What counts of the points that were earned."""
        return self.factor * earned


def apply(policy: Policy, handed_in: HandedIn) -> Decision:
    """What a course's rules make of a submission. Grading it again decides the same."""
    if wait := _over_the_limit(policy.rate_limit, handed_in):
        return Decision(refused=True, reasons=(wait,))
    return late(policy.lateness, handed_in)


def late(lateness: Lateness, handed_in: HandedIn) -> Decision:
    """What lateness alone makes of it."""
    days = days_late(lateness, handed_in)
    if not days:
        return Decision()
    said = f"Handed in late, within day {days} after the due date"
    if lateness.most_days and days > lateness.most_days:
        end = f"the course takes nothing later than {_counted(lateness.most_days, 'day')}"
        return Decision(Fraction(0), reasons=(f"{said}: {end}.",))
    lost = min(days * lateness.percent_per_day, Fraction(100))
    if not lost:
        return Decision()
    rule = f"{_plain(lateness.percent_per_day)}% of the points earned for each day begun"
    return Decision(1 - lost / 100, reasons=(f"{said}: {_plain(lost)}% is lost ({rule}).",))


def which_counts(counts: Counts, finals: Sequence[Fraction | None]) -> int:
    """The index of the submission that counts, of one student's in the order they came in.

    finals: what each is worth in the end; None where that is not known yet. While it is not, such a
        one may still be the best, and is not passed over.

    Raises ValueError for none.
    """
    if not finals:
        raise ValueError("without a submission none counts")
    last = len(finals) - 1
    if counts is Counts.LAST:
        return last
    unknown = [place for place, final in enumerate(finals) if final is None]
    known = {place: final for place, final in enumerate(finals) if final is not None}
    return unknown[-1] if unknown else max(known, key=lambda place: (known[place], place))


def days_late(lateness: Lateness, handed_in: HandedIn) -> int:
    """Days late that have begun; 0 in time or within the grace."""
    if handed_in.due is None:
        return 0
    over = handed_in.when - handed_in.due
    if over <= timedelta(minutes=lateness.grace_minutes):
        return 0
    return -(-over // _DAY)


def _over_the_limit(limit: RateLimit, handed_in: HandedIn) -> str:
    """Why it is not graded, or ""."""
    if not limit.submissions:
        return ""
    window = timedelta(hours=limit.hours)
    recent = sorted(
        time for time in handed_in.earlier if handed_in.when - window < time <= handed_in.when
    )
    if len(recent) < limit.submissions:
        return ""
    again = recent[-limit.submissions] + window
    return (
        f"Not graded: this course grades {_counted(limit.submissions, 'submission')} within "
        f"{_counted(limit.hours, 'hour')}, and there were as many already. "
        f"The next one is graded from {again:%Y-%m-%d %H:%M %Z} on."
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


def _plain(number: Fraction) -> str:
    return f"{float(number):g}"
