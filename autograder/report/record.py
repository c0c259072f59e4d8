"""grade.json: everything about one grading, for staff and for programs.

`autograder.record` reads it. Beside report-staff.html the only report that holds what is for staff
alone: flags, staff notes and the secret's fingerprint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autograder.record import SCHEMA
from autograder.report.gradescope import number

if TYPE_CHECKING:
    from fractions import Fraction

    from autograder.grade import Grade, ProblemSummary, Row


def grade_record(grade: Grade) -> dict[str, Any]:
    """All of a grade as JSON holds it. Points stand there twice, rounded and as exact fractions."""
    about = grade.about
    return {
        "schema": SCHEMA,
        "course": about.course,
        "official": about.official,
        "unofficial_because": about.unofficial,
        "earned": _points(grade.earned),
        "final": _points(grade.final),
        "factor": str(about.decision.factor),
        "added": str(about.added),
        "points": _points(grade.points),
        "not_counted": _points(grade.not_counted),
        "sentences": grade.sentences(),
        "submission": {
            "source": about.source,
            "digest": about.digest,
            "ignored": [{"name": item.name, "why": item.why} for item in about.ignored],
            "notices": about.notices,
        },
        "grading": {
            "backend": about.backend,
            "isolation_mode": about.isolation_mode,
            "isolation": about.isolation,
            "versions": about.versions,
            "secret_fingerprint": about.secret_fingerprint,
            "started": about.started,
            "finished": about.finished,
            "seconds": about.seconds,
        },
        "flags": about.flags,
        "problems": [_problem(line) for line in grade.problem_summary()],
        "checks": [_check(row) for row in grade.rows],
    }


def _problem(line: ProblemSummary) -> dict[str, Any]:
    return {
        "id": line.id,
        "number": line.number,
        "title": line.title,
        "earned": _points(line.earned),
        "points": _points(line.points),
        "outcome": line.outcome.value,
        "seconds": line.seconds,
    }


def _check(row: Row) -> dict[str, Any]:
    return {
        "id": row.check_id,
        "problem": row.problem_id,
        "number": row.number,
        "title": row.title,
        "kind": row.kind,
        "score": _points(row.score),
        "points": _points(row.points),
        "outcome": row.outcome.value,
        "message": row.message,
        "causes": list(row.causes),
        "facts": dict(row.facts),
        "rerun": row.rerun,
        "seconds": row.seconds,
        "log": row.log,
        "staff": row.staff,
        "leaderboard": dict(row.leaderboard),
    }


def _points(points: Fraction) -> dict[str, Any]:
    return {"value": number(points), "exact": str(points)}
