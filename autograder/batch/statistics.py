"""What a class's grades say about the assignment and the grader: for staff, and while it runs."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from autograder.batch.scoring import Final, Scored
from autograder.grade import NOT_JUDGED, Outcome
from autograder.record import Check

FEW = 5  # of so many results at least a pass rate says something
FELL = 0.25  # by so much at least, it is told


@dataclass
class OfCheck:
    """A check, over a class.

    outcomes: how often each. seconds: of those that ran. causes: how often each likely cause was
    named.
    """

    result: Check
    points: Fraction
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    causes: Counter[str] = field(default_factory=Counter)
    overridden: str = ""

    @property
    def judged(self) -> int:
        return sum(n for outcome, n in self.outcomes.items() if outcome not in NOT_JUDGED)

    @property
    def pass_rate(self) -> float | None:
        return self.outcomes[Outcome.PASSED] / self.judged if self.judged else None

    @property
    def median_seconds(self) -> float | None:
        return statistics.median(self.seconds) if self.seconds else None

    @property
    def remark(self) -> str:
        """Where nobody or everybody passes, the check may say nothing about anybody."""
        if self.judged < FEW or self.pass_rate not in (0, 1):
            return ""
        return "nobody passes" if self.pass_rate == 0 else "everybody passes"


@dataclass(frozen=True)
class OfProblem:
    """A problem, over a class: the mean part of its points, who has all and who none."""

    id: str
    number: str
    title: str
    points: Fraction
    mean: float
    full: int
    none: int
    median_seconds: float | None


def of_checks(scored: Iterable[Scored]) -> dict[str, OfCheck]:
    """Every check that was graded, in order; of submissions in which nothing could be, none."""
    found: dict[str, OfCheck] = {}
    for one in scored:
        if one.unusable:
            continue
        for counted in one.checks:
            result = counted.result
            check = found.get(result.id)
            if check is None:
                check = found[result.id] = OfCheck(result, counted.points)
            check.outcomes[result.outcome] += 1
            check.causes.update(result.causes)
            if result.seconds is not None and result.outcome not in _NOT_RUN:
                check.seconds.append(result.seconds)
            if counted.override is not None:
                check.overridden = counted.override.count
    return found


_NOT_RUN = (Outcome.NOT_RUN, Outcome.BLOCKED, Outcome.NEEDS_HARDWARE)


def of_problems(scored: Sequence[Scored]) -> list[OfProblem]:
    """Every problem that was graded, in order."""
    usable = [one for one in scored if one.record is not None and not one.unusable]
    told = {p.id: p for one in usable if one.record for p in one.record.problems}
    totals = [one.by_problem for one in usable]
    seconds = [_seconds(one) for one in usable]
    found = []
    for id, problem in told.items():
        results = [total[id] for total in totals if id in total]
        if not results:
            continue
        parts = [float(earned / of) if of else 1.0 for earned, of in results]
        times = [one[id] for one in seconds if id in one]
        found.append(
            OfProblem(
                id,
                problem.number,
                problem.title,
                results[0][1],
                statistics.mean(parts),
                sum(part == 1 for part in parts),
                sum(part == 0 for part in parts),
                statistics.median(times) if times else None,
            )
        )
    return found


def _seconds(scored: Scored) -> dict[str, float]:
    """What each problem took."""
    found: dict[str, float] = {}
    for one in scored.checks:
        problem = one.result.problem
        found[problem] = found.get(problem, 0.0) + (one.result.seconds or 0.0)
    return found


def causes(checks: Mapping[str, OfCheck], most: int = 20) -> list[tuple[str, int, list[str]]]:
    """The most common likely causes: how often each was named, and of which problems."""
    total: Counter[str] = Counter()
    where: dict[str, dict[str, None]] = {}
    for check in checks.values():
        total.update(check.causes)
        for cause in check.causes:
            where.setdefault(cause, {})[check.result.problem] = None
    return [(cause, count, list(where[cause])) for cause, count in total.most_common(most)]


@dataclass(frozen=True)
class Fall:
    """A check that fewer pass than before. before, after: pass rates."""

    check: str
    before: float
    after: float


def falls(before: Iterable[Scored], after: Iterable[Scored]) -> list[Fall]:
    """The checks whose pass rate fell by `FELL` or more, the worst first."""
    old, new = of_checks(before), of_checks(after)
    found = [
        Fall(id, old[id].pass_rate or 0.0, check.pass_rate or 0.0)
        for id, check in new.items()
        if id in old and min(old[id].judged, check.judged) >= FEW
    ]
    fell = [one for one in found if one.before - one.after >= FELL]
    return sorted(fell, key=lambda one: one.after - one.before)


def histogram(finals: Iterable[Final], bins: int = 20) -> tuple[list[int], Fraction]:
    """How many finals lie in each of as many equal parts of what a grade is out of."""
    known = [(one.final, one.chosen.scored.out_of) for one in finals if one.final is not None]
    most = max((out_of for _, out_of in known), default=Fraction(0))
    counts = [0] * bins
    for final, _ in known:
        place = int(bins * final / most) if most else 0
        counts[min(place, bins - 1)] += 1
    return counts, most
