"""From what was graded to what counts: weights, overrides, lateness, which submission, adjustments.

Pure functions of records and of what the course says now. Nothing is run again, and a record stays
as it was made, so every decision can be taken back.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from fractions import Fraction
from pathlib import Path

import msgspec

from autograder import policy
from autograder.batch.adjustments import Adjustment
from autograder.batch.people import Entry, Student
from autograder.batch.store import Fault, Place, State, Status
from autograder.grade import NOT_JUDGED
from autograder.manifest import Manifest, Override
from autograder.policy import Decision, HandedIn
from autograder.record import Check, NoGrade, Record
from autograder.record import read as read_record


class Standing(StrEnum):
    """What is known of a submission's grade."""

    FINAL = "graded"
    UNUSABLE = "unusable"
    """Nothing in it could be graded, for a reason that the student was told: no points."""
    OPEN = "not all judged"
    """Some checks could not be judged; what it earned is a lower bound."""
    FAULT = "grader fault"
    WAITING = "not graded yet"
    REFUSED = "over the rate limit"


# --- What is read of a record ---------------------------------------------------------------------


def read(place: Place) -> Record | None:
    """The record of a grading; None where there is none that can be read."""
    try:
        status = place.record.stat()
        return _read(place.record, status.st_mtime_ns, status.st_ino)
    except (OSError, NoGrade):
        return None


@functools.lru_cache(4096)
def _read(path: Path, changed: int, inode: int) -> Record:
    """Kept for a whole class, so without what submissions printed."""
    record = read_record(path)
    checks = (msgspec.structs.replace(check, log="", staff="") for check in record.checks)
    return msgspec.structs.replace(record, checks=tuple(checks))


# --- One submission -------------------------------------------------------------------------------


class Counted(msgspec.Struct, frozen=True):
    """One check as it counts. override: the one that changed it."""

    result: Check
    points: Fraction
    score: Fraction
    override: Override | None = None

    @property
    def judged(self) -> bool:
        return self.override is not None or self.result.outcome not in NOT_JUDGED


@dataclass(frozen=True)
class Scored:
    """What one submission's grading is worth.

    raw: what it earned as it was graded. points: what it earns, with overrides. out_of: of how
    many. open: those of checks that could not be judged.
    """

    entry: Entry
    place: Place
    state: State
    record: Record | None = None
    checks: tuple[Counted, ...] = ()
    raw: Fraction = Fraction(0)
    points: Fraction = Fraction(0)
    out_of: Fraction = Fraction(0)
    open: Fraction = Fraction(0)
    unusable: bool = False
    kept_over: str = ""
    """The key of a newer grading that was not taken."""
    kept_because: str = ""
    """What the newer one is, short of this one."""
    regrade_failed: str = ""
    """The key of the newer grading that was asked for, where the grader has failed on it or on
    some of its checks."""

    @functools.cached_property
    def standing(self) -> Standing:
        if self.record is None:
            faulty = self.state.given_up
            return Standing.FAULT if faulty else Standing.WAITING
        if any(not one.judged and one.points for one in self.checks):
            return Standing.OPEN
        return Standing.UNUSABLE if self.unusable else Standing.FINAL

    @property
    def fault(self) -> Fault | None:
        """The last fault of what was asked for and given up; None where nothing was."""
        if self.regrade_failed:
            return self.place.beside(self.regrade_failed).state().faults[-1]
        return self.state.faults[-1] if self.standing is Standing.FAULT else None

    @functools.cached_property
    def by_problem(self) -> dict[str, tuple[Fraction, Fraction]]:
        """What each problem earned, and of how many points."""
        of_problem: dict[str, list[Counted]] = {}
        for one in self.checks:
            of_problem.setdefault(one.result.problem, []).append(one)
        return {
            id: (total(one.score for one in checks), total(one.points for one in checks))
            for id, checks in of_problem.items()
        }


def score(entry: Entry, place: Place, manifest: Manifest) -> Scored:
    """What a grading is worth under the course as it is now."""
    state, task = place.state(), place.task()
    record = read(place) if state.status is Status.DONE else None
    scored = Scored(entry, place, state, unusable=bool(task and task.unusable))
    if record is None or not _can_be_weighed(record, manifest):
        return scored
    status = place.record.stat()
    raw, checks = _counted(
        place.record, status.st_mtime_ns, status.st_ino, manifest, not scored.unusable
    )
    return replace(
        scored,
        record=record,
        checks=checks,
        raw=raw,
        points=total(one.score for one in checks),
        out_of=total(one.points for one in checks),
        open=total(one.points for one in checks if not one.judged),
    )


@functools.lru_cache(4096)
def _counted(
    path: Path, changed: int, inode: int, manifest: Manifest, usable: bool
) -> tuple[Fraction, tuple[Counted, ...]]:
    """What was earned as it was graded, and the checks as they count."""
    weighed = _weighed(_read(path, changed, inode), manifest)
    checks = tuple(_overridden(weighed, manifest, usable=usable))
    return total(one.score for one in weighed), checks


def total(points: Iterable[Fraction]) -> Fraction:
    """Their sum: by denominator first, since there are few of those and fractions add slowly."""
    by_denominator: dict[int, int] = {}
    for one in points:
        denominator = one.denominator
        by_denominator[denominator] = by_denominator.get(denominator, 0) + one.numerator
    return sum((Fraction(n, of) for of, n in by_denominator.items()), Fraction(0))


def _weighed(record: Record, manifest: Manifest) -> list[Counted]:
    """The checks of problems that the course has on, as it weighs those now."""
    now = {problem.id: problem.points for problem in manifest.problems}
    graded = {problem.id: problem.points.of for problem in record.problems}
    factors = {
        id: now[id] / points
        for id, points in graded.items()
        if points and id in now and now[id] != points
    }
    weighed = []
    for result in record.checks:
        if result.problem in now:
            points, score = result.points.of, result.score.of
            if (factor := factors.get(result.problem)) is not None:
                points, score = factor * points, factor * score
            weighed.append(Counted(result, points, score))
    return weighed


def _can_be_weighed(record: Record, manifest: Manifest) -> bool:
    """Whether what is worth points now was worth some then: else no check's part is known."""
    now = {problem.id: problem.points for problem in manifest.problems}
    return all(problem.points.of or not now.get(problem.id) for problem in record.problems)


def _overridden(
    checks: Iterable[Counted], manifest: Manifest, *, usable: bool
) -> Iterator[Counted]:
    """The checks as they count; those that were dropped count for nothing and of nothing.

    usable: whether there was anything to grade; if not, no check counts in full all the same.
    """
    overrides = {one.check: one for one in manifest.course.overrides}
    for one in checks:
        override = overrides.get(one.result.id)
        if override is not None and override.count == "drop":
            yield msgspec.structs.replace(
                one, points=Fraction(0), score=Fraction(0), override=override
            )
        elif override is not None and usable:
            yield Counted(one.result, one.points, one.points, override)
        else:
            yield one


def of_a_kind(places: Iterable[Place], digest: str, backend: str, seed: int | None) -> list[Place]:
    """The gradings of a submission that are of the same: its inputs, and what they ran on."""
    kind = (digest, backend, seed)
    tasks = [(place, place.task()) for place in places]
    return [one for one, task in tasks if task and (task.digest, task.backend, task.seed) == kind]


def counting(entry: Entry, places: Iterable[Place], manifest: Manifest) -> Scored | None:
    """Of gradings of a kind, the oldest first: the newest, unless an earlier one stands against it.

    None where none is done.
    """
    current: Scored | None = None
    for place in places:
        newer = score(entry, place, manifest)
        if newer.record is None:
            continue
        why = _why_kept(current, newer) if current else ""
        if current and why:
            current = replace(current, kept_over=place.key, kept_because=why)
        else:
            current = newer
    return current


def _why_kept(current: Scored, newer: Scored) -> str:
    """What a newer grading is, so that it does not replace the one that counts; "" if it does."""
    if newer.state.may_lower or not current.record or not newer.record:
        return ""
    if newer.record.official != current.record.official:
        return "" if newer.record.official else "not official"
    if newer.open and not current.open:
        return Standing.OPEN
    return "lower" if newer.points < current.points else ""


def standing_grading(
    entry: Entry, places: Sequence[Place], planned: Place, manifest: Manifest
) -> Scored:
    """The grading of a submission that counts, of those that are of a kind with `planned`.

    places: all gradings of the entry, the oldest first. planned: the one that this run is about,
        which may not be done yet.
    """
    task = planned.task()
    rivals = of_a_kind(places, task.digest, task.backend, task.seed) if task else []
    current = counting(entry, rivals, manifest)
    if current is None:
        return score(entry, planned, manifest)
    in_part = current.kept_because == Standing.OPEN and current.kept_over == planned.key
    if in_part or planned.state().given_up:
        current = replace(current, regrade_failed=planned.key)
    return current


# --- One student ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attempt:
    """One submission of one student, with what the course's rules make of it. final: or unknown."""

    scored: Scored
    decision: Decision
    final: Fraction | None


@dataclass(frozen=True)
class Final:
    """A student's grade.

    attempts: all submissions, in the order they came in. chosen: the one that counts.
    added: points of adjustments. final: None while it is not known.
    """

    student: Student
    attempts: tuple[Attempt, ...]
    chosen: Attempt
    adjustments: tuple[Adjustment, ...] = ()
    added: Fraction = Fraction(0)
    final: Fraction | None = None

    @property
    def standing(self) -> Standing:
        refused = self.chosen.decision.refused
        return Standing.REFUSED if refused else self.chosen.scored.standing


@dataclass(frozen=True)
class ClassGrades:
    """The grades of a class, and what of the course's decisions met nothing.

    strangers: adjustments of students who handed in nothing. pointless: overrides of checks that
    no record has.
    """

    finals: tuple[Final, ...]
    scored: tuple[Scored, ...]
    strangers: tuple[Adjustment, ...] = ()
    pointless: tuple[Override, ...] = field(default=())


def grades(
    scored: Sequence[Scored], manifest: Manifest, adjustments: Sequence[Adjustment]
) -> ClassGrades:
    """Everybody's grade. A submission of a group counts for each of its students."""
    by_student: dict[str, list[Scored]] = {}
    students: dict[str, Student] = {}
    for one in scored:
        for student in one.entry.students:
            by_student.setdefault(student.id, []).append(one)
            students.setdefault(student.id, student)
    known = {result.id for one in scored if one.record for result in one.record.checks}
    return ClassGrades(
        tuple(
            _final(students[id], ours, manifest, [a for a in adjustments if a.student == id])
            for id, ours in sorted(by_student.items())
        ),
        tuple(scored),
        tuple(one for one in adjustments if one.student not in by_student),
        tuple(one for one in manifest.course.overrides if known and one.check not in known),
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _final(
    student: Student,
    scored: Sequence[Scored],
    manifest: Manifest,
    adjustments: Sequence[Adjustment],
) -> Final:
    extension = sum((one.extension for one in adjustments), timedelta())
    attempts: list[Attempt] = []
    earlier: list[datetime] = []
    for one in sorted(scored, key=lambda one: (one.entry.submitted_at or _EPOCH, one.entry.name)):
        decision = _decided(one, manifest, extension, earlier)
        if one.entry.submitted_at and not decision.refused and one.standing is not Standing.FAULT:
            earlier.append(one.entry.submitted_at)
        known = one.standing in (Standing.FINAL, Standing.UNUSABLE)
        attempts.append(Attempt(one, decision, decision.final(one.points) if known else None))
    may_count = [one for one in attempts if not one.decision.refused] or attempts
    finals = [one.final for one in may_count]
    chosen = may_count[policy.which_counts(manifest.course.policy.counts, finals)]
    added = sum((one.points for one in adjustments), Fraction(0))
    final = None if chosen.final is None else max(chosen.final + added, Fraction(0))
    return Final(student, tuple(attempts), chosen, tuple(adjustments), added, final)


def _decided(
    scored: Scored, manifest: Manifest, extension: timedelta, earlier: Sequence[datetime]
) -> Decision:
    course, when = manifest.course, scored.entry.submitted_at
    if when is None:
        return Decision()
    due = course.due + extension if course.due else None
    return policy.apply(course.policy, HandedIn(when, due, tuple(earlier)))
