"""grade.json as the converters read it: typed, points exact, without what is for staff alone."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import msgspec

from autograder.grade import Outcome

SCHEMA = 1


class NoGrade(ValueError):
    """A file is not a grade.json that we can read."""


class Points(msgspec.Struct, frozen=True):
    """Points as grade.json holds them."""

    exact: str

    @property
    def of(self) -> Fraction:
        return Fraction(self.exact)


class Problem(msgspec.Struct, frozen=True):
    """One problem: what it earned, and the worst that happened in it."""

    id: str
    number: str
    title: str
    earned: Points
    points: Points
    outcome: Outcome


class Check(msgspec.Struct, frozen=True):
    """One check, with what its student is told."""

    id: str
    problem: str
    number: str
    title: str
    score: Points
    points: Points
    outcome: Outcome
    message: str
    causes: tuple[str, ...]
    facts: dict[str, str]
    rerun: str | None
    seconds: float | None
    log: str

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASSED

    @property
    def told(self) -> str:
        """What is wrong and what that may come from, and how to see it at home."""
        causes = [f"- {cause}" for cause in self.causes]
        run = [f"The nearest test on your own machine: {self.rerun}"] if self.rerun else []
        return "\n".join([*filter(None, [self.message]), *causes, *([] if self.passed else run)])


class Submission(msgspec.Struct, frozen=True):
    digest: str


class Circumstances(msgspec.Struct, frozen=True):
    """How it was graded."""

    backend: str
    versions: dict[str, str]
    started: str
    finished: str
    seconds: float


class Record(msgspec.Struct, frozen=True):
    """One graded submission."""

    schema: int
    course: str
    official: bool
    earned: Points
    final: Points
    factor: str
    points: Points
    not_counted: Points
    sentences: tuple[str, ...]
    submission: Submission
    grading: Circumstances
    problems: tuple[Problem, ...]
    checks: tuple[Check, ...]

    def checks_of(self, problem: Problem) -> Sequence[Check]:
        return [check for check in self.checks if check.problem == problem.id]


def read(path: Path) -> Record:
    """A grade.json.

    Raises:
        NoGrade: it is none.
    """
    try:
        return decode(path.read_bytes(), str(path))
    except OSError as error:
        raise NoGrade(f"{path} cannot be read: {error.strerror}.") from None


def decode(text: bytes | str, name: str = "grade.json") -> Record:
    """As `read`, of a file that was read already."""
    try:
        record = msgspec.json.decode(text, type=Record)
        for points in (record.earned, record.final, record.points, *map(_score, record.checks)):
            Fraction(points.exact)
        Fraction(record.factor)
    except (ValueError, ZeroDivisionError) as error:
        raise NoGrade(f"{name} is not a grade.json of this grader: {error}.") from None
    if record.schema != SCHEMA:
        raise NoGrade(f"{name} is of schema {record.schema}; this grader reads schema {SCHEMA}.")
    return record


def _score(check: Check) -> Points:
    return check.score
