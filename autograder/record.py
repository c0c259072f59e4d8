"""grade.json as everything here reads it: typed, with exact points, refused where it is not ours.

`report.record` writes it. It holds what is for staff alone as well (flags, staff notes, the
secret's fingerprint), so what is made of it for students must name what it takes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import msgspec

from autograder.grade import Kind, Outcome

SCHEMA = 1

Exact = Annotated[str, msgspec.Meta(pattern=r"^-?\d+(/0*[1-9]\d*)?$")]


class NoGrade(ValueError):
    """A file is not a grade.json that we can read."""


class Points(msgspec.Struct, frozen=True):
    """Points as grade.json holds them."""

    exact: Exact

    @property
    def of(self) -> Fraction:
        return fraction(self.exact)


@functools.lru_cache(4096)
def fraction(exact: str) -> Fraction:
    """Kept, since a class has the same few again and again."""
    return Fraction(exact)


class Problem(msgspec.Struct, frozen=True):
    """One problem: what it earned, and the worst that happened in it."""

    id: str
    number: str
    title: str
    earned: Points
    points: Points
    outcome: Outcome


class Check(msgspec.Struct, frozen=True):
    """One check: what was planned, and what came of it; `grade.Row` says more of each."""

    id: str
    problem: str
    number: str
    title: str
    kind: Kind
    score: Points
    points: Points
    outcome: Outcome
    message: str
    causes: tuple[str, ...]
    facts: dict[str, str]
    rerun: str | None
    seconds: float | None
    log: str
    staff: str
    leaderboard: dict[str, float]

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASSED

    @property
    def told(self) -> str:
        """What is wrong and what that may come from, and how to see it at home."""
        causes = [f"- {cause}" for cause in self.causes]
        run = [f"The nearest test on your own machine: {self.rerun}"] if self.rerun else []
        return "\n".join([*filter(None, [self.message]), *causes, *([] if self.passed else run)])


class Ignored(msgspec.Struct, frozen=True):
    """A file of the submission that was left out, and why."""

    name: str
    why: str


class Submission(msgspec.Struct, frozen=True):
    """What was graded."""

    source: str
    digest: str
    ignored: tuple[Ignored, ...]
    notices: tuple[str, ...]


class Circumstances(msgspec.Struct, frozen=True):
    """How it was graded."""

    backend: str
    isolation_mode: str
    isolation: tuple[str, ...]
    versions: dict[str, str]
    secret_fingerprint: str
    started: str
    finished: str
    seconds: float


class Record(msgspec.Struct, frozen=True):
    """One graded submission."""

    schema: int
    course: str
    official: bool
    unofficial_because: tuple[str, ...]
    earned: Points
    final: Points
    factor: Exact
    points: Points
    not_counted: Points
    sentences: tuple[str, ...]
    submission: Submission
    grading: Circumstances
    flags: tuple[str, ...]
    problems: tuple[Problem, ...]
    checks: Annotated[tuple[Check, ...], msgspec.Meta(min_length=1)]
    added: Exact = "0"

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
    except ValueError as error:
        raise NoGrade(f"{name} is not a grade.json of this grader: {error}.") from None
    if record.schema != SCHEMA:
        raise NoGrade(f"{name} is of schema {record.schema}; this grader reads schema {SCHEMA}.")
    return record
