"""report.html: one page for the student, with nothing to load and nothing that runs.

The template gets what a student may see and no more, so no change to it can show what is for staff.
"""

from __future__ import annotations

from dataclasses import asdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from autograder.grade import Outcome, points_text
from autograder.report.template import template

if TYPE_CHECKING:
    from autograder.grade import Grade, Row

# How an outcome is coloured. Passed and the rest differ in their words too, not in colour alone.
_TONES = {
    Outcome.PASSED: "good",
    Outcome.PARTIAL: "middling",
    Outcome.BLOCKED: "neutral",
    Outcome.NOT_RUN: "neutral",
    Outcome.NEEDS_HARDWARE: "neutral",
    Outcome.TOO_NOISY: "neutral",
    Outcome.GRADER_FAULT: "neutral",
}

_MOST_TIMELINES = 6  # on a page


def render(grade: Grade) -> str:
    """The page as HTML."""
    about = grade.about
    return template("report.html").render(
        course=about.course,
        earned=points_text(grade.earned),
        points=points_text(grade.points),
        percent=float(round(100 * grade.earned / grade.points, 2)) if grade.points else 0.0,
        sentences=grade.sentences()[1:],
        troubles=_troubles(grade),
        problems=[
            {
                "number": line.number,
                "title": line.title,
                "earned": points_text(line.earned),
                "points": points_text(line.points),
                "outcome": line.outcome.value,
                "tone": _TONES.get(line.outcome, "bad"),
                "rows": [_line(row) for row in grade.rows_of(line.id)],
            }
            for line in grade.problem_summary()
        ],
        ignored=[asdict(item) for item in about.ignored],
        grading=_grading(grade),
    )


def _troubles(grade: Grade) -> list[dict[str, Any]]:
    """What to look at: rows of a problem that say the same are said once."""
    titles = {problem.id: problem.title for problem in grade.problems}
    alike: dict[Any, list[Row]] = {}
    for row in grade.rows:
        if _is_trouble(row):
            alike.setdefault((row.problem_id, row.outcome, row.message, row.causes), []).append(row)
    troubles = [_trouble(rows, titles[rows[0].problem_id]) for rows in alike.values()]
    drawn = [trouble for trouble in troubles if trouble["timeline"]]
    for trouble in drawn[_MOST_TIMELINES:]:
        trouble["timeline"], trouble["not_drawn"] = "", True
    return troubles


def _is_trouble(row: Row) -> bool:
    return row.outcome is not Outcome.PASSED and bool(row.message or row.causes or row.log)


def _trouble(rows: list[Row], problem_title: str) -> dict[str, Any]:
    first = rows[0]
    message, mark, traceback = first.message.partition("Traceback (most recent call last)")
    return {
        "anchors": [_anchor(row) for row in rows],
        "heading": f"{first.number} {first.title}"
        if len(rows) == 1
        else f"{len(rows)} checks: {', '.join(row.number for row in rows)}",
        "problem": problem_title,
        "outcome": first.outcome.value,
        "tone": _TONES.get(first.outcome, "bad"),
        "score": points_text(sum((row.score for row in rows), Fraction(0))),
        "points": points_text(sum((row.points for row in rows), Fraction(0))),
        "facts": dict(first.facts) if len(rows) == 1 else {},
        "message": message.strip(),
        "traceback": mark + traceback,
        "causes": first.causes,
        "advice": first.advice,
        "log": next((row.log for row in rows if row.log), ""),
        # Not a submission's words but a picture of ours, in which those are escaped.
        "timeline": Markup(next((row.timeline for row in rows if row.timeline), "")),
        "not_drawn": False,
    }


def _anchor(row: Row) -> str:
    return f"check-{row.check_id}"


def _line(row: Row) -> dict[str, Any]:
    """One line of a problem's table."""
    return {
        "anchor": _anchor(row) if _is_trouble(row) else "",
        "number": row.number,
        "title": row.title,
        "kind": row.kind,
        "score": points_text(row.score),
        "points": points_text(row.points),
        "outcome": row.outcome.value,
        "tone": _TONES.get(row.outcome, "bad"),
        "seconds": "" if row.seconds is None else f"{row.seconds:.1f} s",
    }


def _grading(grade: Grade) -> dict[str, str]:
    """How it was graded, as terms and what they mean here; empty ones are left out."""
    about = grade.about
    terms = {
        "Submission": about.source,
        "Digest": about.digest[:16],
        "Backend": about.backend,
        "Official": "yes" if about.official else "no",
        "Isolation": ": ".join(
            part for part in (about.isolation_mode, ", ".join(about.isolation)) if part
        )
        or "none",
        "Versions": ", ".join(f"{name} {version}" for name, version in about.versions.items()),
        "Started": about.started,
        "Finished": about.finished,
        "Took": f"{about.seconds:.0f} s" if about.seconds else "",
    }
    return {term: value for term, value in terms.items() if value}
