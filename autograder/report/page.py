"""report.html: one page for the student, with nothing to load and nothing that runs.

The template gets what a student may see and no more, so no change to it can show what is for staff.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from autograder.grade import Outcome, points_text

if TYPE_CHECKING:
    from autograder.grade import Grade, Row

# How an outcome is coloured. Passed and the rest differ in their words too, not in colour alone.
_TONES = {
    Outcome.PASSED: "good",
    Outcome.PARTIAL: "middling",
    Outcome.BLOCKED: "neutral",
    Outcome.NOT_RUN: "neutral",
    Outcome.NEEDS_HARDWARE: "neutral",
    Outcome.GRADER_FAULT: "neutral",
}


def render(grade: Grade) -> str:
    """The page as HTML."""
    about = grade.about
    return _template().render(
        course=about.course,
        earned=points_text(grade.earned),
        points=points_text(grade.points),
        percent=float(round(100 * grade.earned / grade.points, 2)) if grade.points else 0.0,
        sentences=grade.sentences()[1:],
        troubled=[
            _shown(row) for row in grade.rows if row.outcome is not Outcome.PASSED and _says(row)
        ],
        problems=[
            {
                "number": line.number,
                "title": line.title,
                "earned": points_text(line.earned),
                "points": points_text(line.points),
                "outcome": line.outcome.value,
                "tone": _TONES.get(line.outcome, "bad"),
                "rows": [_shown(row) for row in grade.rows_of(line.id)],
            }
            for line in grade.problem_summary()
        ],
        ignored=[asdict(item) for item in about.ignored],
        grading=_grading(grade),
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("autograder.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html")


def _says(row: Row) -> bool:
    return bool(row.message or row.causes or row.log)


def _shown(row: Row) -> dict[str, Any]:
    """What of a row a student sees: all but `staff`."""
    return {
        "anchor": f"check-{row.check_id}",
        "number": row.number,
        "title": row.title,
        "kind": row.kind,
        "score": points_text(row.score),
        "points": points_text(row.points),
        "outcome": row.outcome.value,
        "tone": _TONES.get(row.outcome, "bad"),
        "seconds": "" if row.seconds is None else f"{row.seconds:.1f} s",
        "message": row.message,
        "causes": row.causes,
        "facts": dict(row.facts),
        "rerun": row.rerun,
        "log": row.log,
        "says": _says(row),
    }


def _grading(grade: Grade) -> dict[str, str]:
    """How it was graded, as terms and what they mean here; empty ones are left out."""
    about = grade.about
    terms = {
        "Submission": about.source,
        "Digest": about.digest[:16],
        "Backend": about.backend,
        "Isolation": ", ".join(about.isolation) or "none",
        "Versions": ", ".join(f"{name} {version}" for name, version in about.versions.items()),
        "Started": about.started,
        "Finished": about.finished,
        "Took": f"{about.seconds:.0f} s" if about.seconds else "",
    }
    return {term: value for term, value in terms.items() if value}
