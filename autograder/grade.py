"""The grade: one row for each planned check, from which every report is made.

The rows, and so the denominator, are fixed before anything runs. A result fills in a row; nothing
that happens later adds a row, removes one or changes what it is worth. Points are fractions inside
and rounded once, where they leave.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from autograder.policy import Decision
from autograder.text import safe, safe_line

if TYPE_CHECKING:
    from autograder.intake import Ignored
    from autograder.manifest import Problem

Kind = Literal["values", "edges", "cost", "order"]

# Seconds that the checks of a grading may take: platforms end one after ten minutes, and the
# reference takes under two.
BUDGET = 480.0

# How much of a row's texts is kept: a result with a hundred rows stays within a few megabytes.
LINES, WIDTH = 60, 300


class Outcome(StrEnum):
    """How a check ended. Only `PASSED` and `PARTIAL` earn points."""

    PASSED = "passed"
    PARTIAL = "partial"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    CRASHED = "crashed"
    BLOCKED = "blocked"
    NOT_RUN = "not run"
    NEEDS_HARDWARE = "needs hardware"
    TOO_NOISY = "too noisy"
    GRADER_FAULT = "grader fault"


# A problem with several outcomes is summed up by the first of these that it has: what most needs
# somebody's attention comes first.
WORST_FIRST = (
    Outcome.GRADER_FAULT,
    Outcome.TOO_NOISY,
    Outcome.CRASHED,
    Outcome.TIMED_OUT,
    Outcome.FAILED,
    Outcome.BLOCKED,
    Outcome.NOT_RUN,
    Outcome.PARTIAL,
    Outcome.NEEDS_HARDWARE,
    Outcome.PASSED,
)

# What could not be judged, through no fault of the submission.
NOT_JUDGED = (Outcome.GRADER_FAULT, Outcome.TOO_NOISY)

# What the student's own work brought about, short of full marks.
_STUDENTS_OWN = frozenset(
    {Outcome.PARTIAL, Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CRASHED, Outcome.BLOCKED}
)


@dataclass(frozen=True)
class Row:
    """One check of one problem: what was planned, then what came of it."""

    check_id: str
    problem_id: str
    problem_number: str
    number: str
    """The row's own, such as "1.7.3"."""
    title: str
    kind: Kind
    points: Fraction
    facts: Mapping[str, str] = field(default_factory=dict)
    """What the check ran with, for the student: world size, operation, dtype."""
    rerun: str | None = None
    """The command that runs the nearest public test."""

    outcome: Outcome = Outcome.NOT_RUN
    score: Fraction = Fraction(0)
    message: str = ""
    """What is wrong, for the student."""
    causes: tuple[str, ...] = ()
    seconds: float | None = None
    log: str = ""
    """The end of what the student's own program printed."""
    timeline: str = ""
    """A picture of the run that failed, as SVG of multirank's; for report.html alone."""
    staff: str = ""
    """For staff alone: no report for students shows it."""
    leaderboard: Mapping[str, float] = field(default_factory=dict)
    """What it measured for the class to compare, by column; more is better."""

    @property
    def has_lost(self) -> bool:
        """Whether something was lost in it, through the submission's own doing."""
        return self.outcome in _STUDENTS_OWN

    @property
    def advice(self) -> str | None:
        """`rerun`, where running it would show the student something."""
        return self.rerun if self.has_lost else None


@dataclass
class About:
    """The circumstances of a grading. All but `flags` and `secret_fingerprint` may be shown."""

    course: str
    source: str = ""
    """How the submission was given."""
    digest: str = ""
    ignored: list[Ignored] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    """Sentences to the student about the submission as a whole."""
    backend: str = ""
    isolation_mode: str = ""
    isolation: list[str] = field(default_factory=list)
    """The layers that were on."""
    unofficial: list[str] = field(default_factory=list)
    """Why this result is not official; empty when it is."""
    versions: dict[str, str] = field(default_factory=dict)
    secret_fingerprint: str = ""
    decision: Decision = field(default_factory=Decision)
    """What the course's rules make of the points that are earned."""
    added: Fraction = Fraction(0)
    """Points that people added, or took: whatever was earned, and however late."""
    counted: list[str] = field(default_factory=list)
    """When the submissions came in that a limit on their number counts; ISO 8601."""
    flags: list[str] = field(default_factory=list)
    """What looked odd, for a person of the staff to judge."""
    started: str = ""
    """ISO 8601, as `finished`."""
    finished: str = ""
    seconds: float = 0.0
    """Since the start."""

    @property
    def official(self) -> bool:
        return not self.unofficial


@dataclass(frozen=True)
class ProblemSummary:
    """One line of the table: what a problem earned, and the worst that happened in it."""

    id: str
    number: str
    title: str
    earned: Fraction
    points: Fraction
    outcome: Outcome
    seconds: float | None


class Grade:
    """The rows of one grading and what is known about it."""

    def __init__(self, problems: Sequence[Problem], planned: Iterable[Row], about: About) -> None:
        """Fixes the denominator.

        Raises ValueError when two checks share an id, a row has a result already or belongs to no
        problem, or the rows of a problem do not add up to its points.
        """
        self.problems = tuple(problems)
        self.about = about
        self._rows: dict[str, Row] = {}
        for row in planned:
            if row.check_id in self._rows:
                raise ValueError(f"two checks are called {row.check_id}")
            if row.outcome is not Outcome.NOT_RUN or row.score or row.points < 0:
                raise ValueError(
                    f"check {row.check_id} is planned with a result or negative points"
                )
            self._rows[row.check_id] = row
        known = {problem.id for problem in self.problems}
        for row in self.rows:
            if row.problem_id not in known:
                raise ValueError(f"check {row.check_id}: there is no problem {row.problem_id}")
        for problem in self.problems:
            planned_points = sum((row.points for row in self.rows_of(problem.id)), Fraction(0))
            if planned_points != problem.points:
                raise ValueError(
                    f"problem {problem.number}, {problem.id}, is worth {problem.points} points, "
                    f"its checks {planned_points}"
                )

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(self._rows.values())

    def rows_of(self, problem_id: str) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.problem_id == problem_id)

    def record(
        self,
        check_id: str,
        outcome: Outcome,
        *,
        score: Fraction | None = None,
        message: str = "",
        facts: Mapping[str, str] | None = None,
        causes: Sequence[str] = (),
        seconds: float | None = None,
        log: str | bytes = "",
        timeline: str = "",
        staff: str = "",
        leaderboard: Mapping[str, float] | None = None,
    ) -> Row:
        """Fills in a row's result, and makes its texts safe to show.

        score: for `PARTIAL` alone, cut to what the row is worth; full marks make it `PASSED`, none
            `FAILED`. Every other outcome earns all or nothing.
        facts: added to the planned ones.

        Raises KeyError for a check that was not planned, ValueError for a score that does not go
        with the outcome.
        """
        row = self._rows[check_id]
        if (score is not None) != (outcome is Outcome.PARTIAL):
            raise ValueError(f"check {check_id}: a score goes with {Outcome.PARTIAL} alone")
        if score is None:
            earned = row.points if outcome is Outcome.PASSED else Fraction(0)
        else:
            earned = min(max(score, Fraction(0)), row.points)
            if earned == row.points:
                outcome = Outcome.PASSED
            elif earned == 0:
                outcome = Outcome.FAILED
        shown = {safe_line(k): safe_line(v) for k, v in {**row.facts, **(facts or {})}.items()}
        self._rows[check_id] = replace(
            row,
            outcome=outcome,
            score=earned,
            message=safe(message, LINES, WIDTH),
            facts=shown,
            causes=tuple(safe_line(cause, WIDTH) for cause in causes),
            seconds=seconds,
            log=safe(log, LINES, WIDTH),
            timeline=timeline,
            staff=safe(staff),
            leaderboard=dict(leaderboard or {}),
        )
        return self._rows[check_id]

    @property
    def points(self) -> Fraction:
        """What can be earned: fixed when the grade was planned."""
        return sum((row.points for row in self.rows), Fraction(0))

    @property
    def earned(self) -> Fraction:
        return sum((row.score for row in self.rows), Fraction(0))

    @property
    def final(self) -> Fraction:
        """What counts: of the points earned, by the course's rules, and what people added."""
        about = self.about
        return max(about.decision.final(self.earned) + about.added, Fraction(0))

    @property
    def not_counted(self) -> Fraction:
        """The points of rows that could not be judged, through no fault of the submission."""
        return sum((self._points_of(outcome) for outcome in NOT_JUDGED), Fraction(0))

    def _points_of(self, outcome: Outcome) -> Fraction:
        return sum((row.points for row in self.rows if row.outcome is outcome), Fraction(0))

    def problem_summary(self) -> list[ProblemSummary]:
        """A line for each problem, in the manifest's order; the outcome as in `WORST_FIRST`."""
        lines = []
        for problem in self.problems:
            rows = self.rows_of(problem.id)
            times = [row.seconds for row in rows if row.seconds is not None]
            lines.append(
                ProblemSummary(
                    problem.id,
                    problem.number,
                    problem.title,
                    sum((row.score for row in rows), Fraction(0)),
                    problem.points,
                    min((row.outcome for row in rows), key=WORST_FIRST.index),
                    sum(times) if times else None,
                )
            )
        return lines

    def sentences(self) -> list[str]:
        """What a student should know before reading any row."""
        said = [f"{points_text(self.earned)} of {_points_in_words(self.points)}."]
        if reasons := self.about.decision.reasons:
            counting = self.about.decision.final(self.earned)
            said += [*reasons, f"So {_points_in_words(counting)} count."]
        said += [safe(notice) for notice in self.about.notices]
        for outcome, clause in _SENTENCES.items():
            numbers = [row.number for row in self.rows if row.outcome is outcome]
            if numbers:
                checks = f"{len(numbers)} check{'s' if len(numbers) != 1 else ''}"
                points = _points_in_words(self._points_of(outcome))
                said.append(f"{clause[0]}: {checks} ({_some(numbers)}), {points}{clause[1]}")
        if not self.about.official:
            said.append(f"This result is not official: {'; '.join(self.about.unofficial)}.")
        if self.about.ignored:
            names = _some([item.name for item in self.about.ignored])
            said.append(f"Not taken from the submission: {names}.")
        return said


_SENTENCES = {
    Outcome.GRADER_FAULT: (
        "Not counted yet",
        ". The grader itself failed there: that is not your fault, and the staff will grade it "
        "again.",
    ),
    Outcome.TOO_NOISY: (
        "Not counted yet",
        ". The machine was too busy for anything to be measured on it: that is not your fault, and "
        "the staff will grade it again.",
    ),
    Outcome.NEEDS_HARDWARE: ("Not run for want of hardware", "."),
    Outcome.NOT_RUN: ("Not run", "."),
}


def points_text(points: Fraction) -> str:
    """Points for people: at most two decimals, no trailing zeros."""
    return f"{float(round(points, 2)):.2f}".rstrip("0").rstrip(".")


def _points_in_words(points: Fraction) -> str:
    return f"{points_text(points)} point{'s' if points != 1 else ''}"


def _some(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
