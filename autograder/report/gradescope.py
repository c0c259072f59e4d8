"""results.json as Gradescope reads it.

Every row is visible, since Gradescope hides a student's total while any row is hidden, and every
text is declared plain, since its default for the summary is a kind of HTML. Nothing for staff is in
here. The schema: gradescope-autograders.readthedocs.io, specs and leaderboards.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from autograder.grade import Outcome, points_text

if TYPE_CHECKING:
    from autograder.grade import Grade, Row

DECIMALS = 4


def results(grade: Grade) -> dict[str, Any]:
    """The whole of results.json, valid at any moment of a grading.

    The total is stated, although Gradescope would add up the rows: those are rounded one by one,
    and three rows of a third each would come to 0.9999.
    """
    about = grade.about
    return {
        "score": number(grade.final),
        "execution_time": round(about.seconds, 1),
        "output": "\n".join(grade.sentences()),
        "output_format": "text",
        "test_output_format": "text",
        "test_name_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [_test(row) for row in grade.rows],
        "leaderboard": [
            {"name": name, "value": value, "order": "desc"}
            for row in grade.rows
            for name, value in row.leaderboard.items()
        ],
        "extra_data": {
            "points": number(grade.points),
            "earned": number(grade.earned),
            "factor": str(about.decision.factor),
            "added": str(about.added),
            "counted": about.counted,
            "not_counted": number(grade.not_counted),
            "official": about.official,
            "isolation": about.isolation_mode,
            "backend": about.backend,
            "versions": about.versions,
            "submission": about.digest,
            "started": about.started,
            "finished": about.finished,
        },
    }


def _test(row: Row) -> dict[str, Any]:
    test: dict[str, Any] = {
        "name": row.title,
        "name_format": "text",
        "number": row.number,
        "status": "passed" if row.outcome is Outcome.PASSED else "failed",
        "output": "\n".join(_paragraphs(row)),
        "output_format": "text",
        "visibility": "visible",
        "tags": [row.problem_id, row.kind],
        "extra_data": {"check": row.check_id, "outcome": row.outcome.value, "seconds": row.seconds},
    }
    # Without points and hardware there is nothing to score: Gradescope shows such a row as a note.
    if row.points or row.outcome is not Outcome.NEEDS_HARDWARE:
        test |= {"score": number(row.score), "max_score": number(row.points)}
    return test


def _paragraphs(row: Row) -> Iterator[str]:
    """What a row says, most important first."""
    earned = f"{points_text(row.score)} of {points_text(row.points)}"
    yield f"{row.outcome.capitalize()}: {earned} points."
    if row.message:
        yield row.message
    yield from (f"- {cause}" for cause in row.causes)
    if row.facts:
        yield ", ".join(f"{name}: {value}" for name, value in row.facts.items())
    if row.advice:
        yield f"The nearest test on your own machine:\n    {row.advice}"
    if row.log:
        yield f"What your program printed:\n{row.log}"


def number(points: Fraction) -> float:
    """Points as JSON holds them: rounded here, once."""
    return float(round(points, DECIMALS))
