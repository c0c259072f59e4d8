"""A grade as it was written down, back from its record: to be scored, merged and told again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

from autograder.grade import About, Grade, Outcome, Row
from autograder.intake import Ignored
from autograder.manifest import Problem
from autograder.record import Check, Record


def grade_of(
    record: Record,
    timelines: Mapping[str, str] | None = None,
    change: Callable[[Row], Row | None] = lambda row: row,
) -> Grade:
    """The grade that a record was written of.

    change: what becomes of a row; None: it does not count, and is left out. A problem is worth
        what its rows are.
    """
    kept = []
    for check in record.checks:
        changed = change(_row(check, (timelines or {}).get(check.id, "")))
        if changed is not None:
            kept.append(changed)
    problems = []
    for one in record.problems:
        rows = [row for row in kept if row.problem_id == one.id]
        points = sum((row.points for row in rows), Fraction(0))
        if rows:
            problems.append(Problem(one.id, one.number, "", one.title, points, "", ()))
    return of_rows(problems, kept, _about(record))


def of_rows(problems: Iterable[Problem], rows: Iterable[Row], about: About) -> Grade:
    """A grade with rows that have their results."""
    kept = tuple(rows)
    planned = [replace(row, outcome=Outcome.NOT_RUN, score=Fraction(0)) for row in kept]
    grade = Grade(tuple(problems), planned, about)
    for row in kept:
        grade.record(
            row.check_id,
            row.outcome,
            score=row.score if row.outcome is Outcome.PARTIAL else None,
            message=row.message,
            causes=row.causes,
            seconds=row.seconds,
            log=row.log,
            timeline=row.timeline,
            staff=row.staff,
            leaderboard=row.leaderboard,
        )
    return grade


def merged(base: Grade, new: Grade, ran: Callable[[Row], bool]) -> Grade:
    """`new`, with the rows of `base` in place of those that were not run this time."""
    old = {row.check_id: row for row in base.rows}
    rows = [
        row if ran(row) or row.check_id not in old else _kept(old[row.check_id], row)
        for row in new.rows
    ]
    return of_rows(new.problems, rows, new.about)


def _kept(old: Row, planned: Row) -> Row:
    """A row's result, under what is fixed before anything runs: the newer grader knows better.

    It earns the same part of what the course gives for it now; of a check that was worth nothing
    only the outcome is known.
    """
    part = old.score / old.points if old.points else Fraction(old.outcome is Outcome.PASSED)
    return replace(
        old,
        number=planned.number,
        title=planned.title,
        kind=planned.kind,
        rerun=planned.rerun,
        points=planned.points,
        score=part * planned.points,
    )


def _row(check: Check, timeline: str) -> Row:
    return Row(
        check.id,
        check.problem,
        check.number.rpartition(".")[0],
        check.number,
        check.title,
        check.kind,
        check.points.of,
        facts=check.facts,
        rerun=check.rerun,
        outcome=check.outcome,
        score=check.score.of,
        message=check.message,
        causes=check.causes,
        seconds=check.seconds,
        log=check.log,
        timeline=timeline,
        staff=check.staff,
        leaderboard=check.leaderboard,
    )


def _about(record: Record) -> About:
    submission, grading = record.submission, record.grading
    return About(
        course=record.course,
        source=submission.source,
        digest=submission.digest,
        ignored=[Ignored(one.name, one.why) for one in submission.ignored],
        notices=list(submission.notices),
        backend=grading.backend,
        isolation_mode=grading.isolation_mode,
        isolation=list(grading.isolation),
        unofficial=list(record.unofficial_because),
        versions=dict(grading.versions),
        secret_fingerprint=grading.secret_fingerprint,
        flags=list(record.flags),
        started=grading.started,
        finished=grading.finished,
        seconds=grading.seconds,
    )
