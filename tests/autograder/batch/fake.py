"""A grader that grades nothing: for tests of everything around a grading.

A submission's collectives.py says in its first line, as JSON in a comment, what it does:

    score       the part of the points that every check earns; or by check
    seconds     how long each check takes
    faults      how many attempts raise
    faults_with which versions of the grader always raise
    dies        how many attempts end with the process
    unofficial  which versions of the grader are not official, unless that is asked for
    open        checks that cannot be judged, and in how many attempts
    open_with   checks that cannot be judged, by version of the grader
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec

from autograder import report
from autograder.batch import records
from autograder.batch.store import Place, Task
from autograder.batch.worker import serve, work
from autograder.grade import About, Grade, Outcome, Row
from autograder.manifest import load_problems
from autograder.paths import REFERENCE
from autograder.record import read as read_record

CHECKS = ("first", "second")


def grade(task: Task, place: Place) -> Grade:
    """As the submission says."""
    attempt = _attempts(place)
    does = _does(place)
    if attempt <= does.get("dies", 0):
        os._exit(9)
    if attempt <= does.get("faults", 0) or task.grader in does.get("faults_with", ()):
        raise RuntimeError("the fake grader was asked to fail")
    graded = planned(task, does)
    only = list(task.only) or [row.check_id for row in graded.rows]
    for row in graded.rows:
        if row.check_id in only or row.problem_id in only:
            time.sleep(does.get("seconds", 0))
            _record(graded, row, does, attempt, task)
            report.write_results(graded, place.path)
    if not task.base:
        return graded
    base = records.grade_of(read_record(place.path.parent / task.base / "grade.json"))
    return records.merged(base, graded, lambda row: row.check_id in only or row.problem_id in only)


def planned(task: Task, does: Mapping[str, Any]) -> Grade:
    """Two checks for every problem, none of them run."""
    problems = [
        msgspec.structs.replace(one, points=Fraction(task.problems[one.id]))
        for one in load_problems(REFERENCE).problems
        if one.id in task.problems
    ]
    rows = [
        Row(
            f"{one.id}/{name}",
            one.id,
            one.number,
            f"{one.number}.{place}",
            f"{one.title}, {name}",
            "values",
            one.points / len(CHECKS),
        )
        for one in problems
        for place, name in enumerate(CHECKS, 1)
    ]
    about = About(
        task.course,
        digest=task.digest,
        backend=task.backend,
        versions={"grader": task.grader, "torch": "0"},
        secret_fingerprint=task.secret,
    )
    about.seconds = 1.0
    if task.grader in does.get("unofficial", ()) and not task.official:
        about.unofficial.append("the fake grader was asked for that")
    about.notices += [task.unusable] if task.unusable else []
    return Grade(problems, rows, about)


def _record(graded: Grade, row: Row, does: Mapping[str, Any], attempt: int, task: Task) -> None:
    if task.unusable:
        graded.record(row.check_id, Outcome.BLOCKED, message=task.unusable)
        return
    if attempt <= does.get("open", {}).get(row.check_id, 0) or (
        row.check_id in does.get("open_with", {}).get(task.grader, ())
    ):
        graded.record(row.check_id, Outcome.GRADER_FAULT, staff="the fake grader cannot tell")
        return
    score = does.get("score", 1)
    if isinstance(score, dict):
        score = score.get(row.check_id, 1)
    if task.grader in does.get("with", {}):
        score = does["with"][task.grader]
    part = Fraction(str(score))
    causes = ["consistent with a fake"] if part < 1 else []
    graded.record(
        row.check_id,
        Outcome.PARTIAL,
        score=part * row.points,
        message="" if part == 1 else "the fake says so",
        causes=causes,
        seconds=0.5,
    )


def _attempts(place: Place) -> int:
    """Which attempt this is, counted in a file beside the others, from 1."""
    file = place.path / "attempts"
    count = len(file.read_text()) + 1 if file.exists() else 1
    file.write_text("x" * count)
    return count


def _does(place: Place) -> dict[str, Any]:
    content = place.files().get("collectives.py", b"")
    first = content.decode().partition("\n")[0]
    return dict(json.loads(first.removeprefix("#"))) if first.startswith("#") else {}


def submission(at: Path, **does: Any) -> Path:
    """A folder that does that when it is graded."""
    at.mkdir(parents=True, exist_ok=True)
    (at / "collectives.py").write_text(f"#{json.dumps(does)}\n")
    return at


if __name__ == "__main__":
    if sys.argv[1:]:  # in the place of the interpreter of a job
        work(Place(Path(sys.argv[-1])), grade)
    else:
        serve(grade)
