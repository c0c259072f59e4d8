"""report-staff.html: what the staff needs to judge a result and what went wrong in the grader.

It shows what no student may see: flags, the grader's own tracebacks, the secret's fingerprint.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from autograder.grade import Outcome, points_text
from autograder.report.template import template

if TYPE_CHECKING:
    from autograder.grade import Grade, Row


def render(grade: Grade) -> str:
    """The page as HTML."""
    about = grade.about
    facts = {
        "Submission": about.source,
        "Digest": about.digest,
        "Official": "yes" if about.official else f"no: {'; '.join(about.unofficial)}",
        "Isolation": about.isolation_mode,
        "Layers": ", ".join(about.isolation),
        "Backend": about.backend,
        "Versions": ", ".join(f"{name} {version}" for name, version in about.versions.items()),
        "Secret": about.secret_fingerprint,
        "Started": about.started,
        "Finished": about.finished,
        "Took": f"{about.seconds:.1f} s",
    }
    return template("report-staff.html").render(
        course=about.course,
        earned=points_text(grade.earned),
        points=points_text(grade.points),
        not_counted=points_text(grade.not_counted) if grade.not_counted else "",
        flags=about.flags,
        facts={name: value for name, value in facts.items() if value},
        ignored=[asdict(item) for item in about.ignored],
        rows=[_row(row) for row in grade.rows],
    )


def _row(row: Row) -> dict[str, object]:
    return {
        "check": row.check_id,
        "number": row.number,
        "outcome": row.outcome.value,
        "passed": row.outcome is Outcome.PASSED,
        "fault": row.outcome is Outcome.GRADER_FAULT,
        "earned": points_text(row.score),
        "points": points_text(row.points),
        "seconds": "" if row.seconds is None else f"{row.seconds:.1f} s",
        "facts": ", ".join(f"{name}: {value}" for name, value in row.facts.items()),
        "message": row.message,
        "causes": row.causes,
        "staff": row.staff,
        "log": row.log,
    }
