"""What a batch leaves for people: the gradebook's CSV, JSON lines, each student's files.

    grades.csv       a line for each student, to be put into a gradebook
    grades.jsonl     the same and more, for programs
    students/NAME/   what a student may have: report.html and results.json, as everything counts now
    staff/NAME/      what they may not: grade.json and report-staff.html

All of it is made anew from the records whenever the batch is run; what would not change is left.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from autograder import report
from autograder.batch import files, records
from autograder.batch.scoring import Attempt, ClassGrades, Final, Scored
from autograder.batch.store import TIMELINES, Store
from autograder.grade import Outcome, Row, points_text
from autograder.manifest import Manifest, Override
from autograder.record import read as read_record
from autograder.report import PAGE, RESULTS
from autograder.report.gradescope import number
from autograder.text import cell

CSV, LINES = "grades.csv", "grades.jsonl"
STUDENTS, STAFF = "students", "staff"
GRADING = "grading"  # among the staff's: a link to what was graded, and to the submission
_MADE = ".made"


def write(store: Store, grades: ClassGrades, manifest: Manifest) -> None:
    """Everything but the page for staff."""
    told = [as_record(final) for final in grades.finals]
    files.replace_if_other(store.out / CSV, as_csv(told, manifest))
    files.replace_if_other(store.out / LINES, as_lines(told))
    for final in grades.finals:
        write_student(store, final)
    wanted = {files.as_name(final.student.id) for final in grades.finals}
    for room in (STUDENTS, STAFF):
        files.prune(store.out / room, wanted)


def as_csv(records: Sequence[Mapping[str, Any]], manifest: Manifest) -> str:
    """The gradebook. `final` is empty while it is not known: never a zero that was not earned."""
    problems = [problem.id for problem in manifest.problems]
    columns = [
        *("student", "name", "email", "final", "out_of", "percent", "standing"),
        *("raw", "points", "late_factor", "adjustment", "not_judged", "overrides"),
        *("submission", "submitted_at", "submissions", "official", "flags", *problems),
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for told in records:
        earned = told["problems"]
        row = {**told, "overrides": " ".join(told["overrides"]), "flags": len(told["flags"])}
        values = [row[column] for column in columns if column not in problems]
        values += [earned.get(id) for id in problems]
        writer.writerow([cell(one) if isinstance(one, str) else one for one in values])
    return text.getvalue()


def as_lines(records: Sequence[Mapping[str, Any]]) -> str:
    """A line of JSON for each student."""
    return "".join(json.dumps(told, ensure_ascii=False, allow_nan=False) + "\n" for told in records)


def as_record(final: Final) -> dict[str, Any]:
    """All about one student's grade, as JSON holds it."""
    attempt, scored = final.chosen, final.chosen.scored
    graded = scored.record is not None
    out_of = scored.out_of
    return {
        "student": final.student.id,
        "name": final.student.name,
        "email": final.student.email,
        "final": _number(final.final),
        "out_of": _number(out_of) if graded else None,
        "percent": _number(100 * final.final / out_of)
        if final.final is not None and out_of
        else None,
        "standing": final.standing.value,
        "raw": _number(scored.raw) if graded else None,
        "points": _number(scored.points) if graded else None,
        "late_factor": _number(attempt.decision.factor),
        "reasons": list(attempt.decision.reasons),
        "adjustment": _number(final.added),
        "adjustments": [
            {
                "extension_days": one.extension.total_seconds() / 86400,
                "points": _number(one.points),
                "author": one.author,
                "reason": one.reason,
            }
            for one in final.adjustments
        ],
        "not_judged": _number(scored.open),
        "overrides": sorted(one.result.id for one in scored.checks if one.override),
        "submission": scored.entry.name,
        "submitted_at": scored.entry.submitted_at.isoformat()
        if scored.entry.submitted_at
        else None,
        "submissions": len(final.attempts),
        "grading": scored.place.key,
        "kept_over": scored.kept_over,
        "regrade_failed": scored.regrade_failed,
        "official": scored.record.official if scored.record else None,
        "flags": list(scored.record.flags) if scored.record else [],
        "problems": {id: _number(earned) for id, (earned, _) in scored.by_problem.items()},
    }


def _number(points: Fraction | None) -> float | None:
    return None if points is None else number(points)


# --- Each student's files -------------------------------------------------------------------------


def write_student(store: Store, final: Final) -> None:
    """What one student gets, and what the staff keeps beside it; unless it is there already."""
    name = files.as_name(final.student.id)
    theirs, ours = store.out / STUDENTS / name, store.out / STAFF / name
    attempt = final.chosen
    if attempt.scored.record is None:
        for folder in (theirs, ours):
            shutil.rmtree(folder, ignore_errors=True)
        return
    sentences = told(final)
    wanted = _wanted(final, sentences)
    try:
        if (ours / _MADE).read_text() == wanted and (theirs / RESULTS).exists():
            return
    except OSError:
        pass
    for folder in (theirs, ours):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = attempt.scored.place
    timelines = json.loads((place.path / TIMELINES).read_bytes())
    grade = records.grade_of(read_record(place.record), timelines, _counting(attempt))
    grade.about.notices += sentences
    grade.about.decision, grade.about.added = attempt.decision, final.added
    report.write_all(grade, ours)
    _with_the_standing(ours / RESULTS, final)
    for file in (PAGE, RESULTS):
        (ours / file).replace(theirs / file)
    link = ours / GRADING
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(place.path, ours))
    files.replace(ours / _MADE, wanted)


def _wanted(final: Final, sentences: Iterable[str]) -> str:
    """Names everything that a student's files are made of."""
    scored, decision = final.chosen.scored, final.chosen.decision
    status = scored.place.record.stat()
    points = [(one.result.id, str(one.points), str(one.score)) for one in scored.checks]
    decided = [str(decision.factor), str(final.added), *decision.reasons]
    parts = [scored.place.key, status.st_mtime_ns, list(sentences), points, decided]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def told(final: Final) -> list[str]:
    """What a student is told of how the points that were earned count."""
    attempt = final.chosen
    said = [_of_override(override, ids) for override, ids in _overrides(attempt.scored)]
    for one in final.adjustments:
        if one.points:
            sign = "added" if one.points > 0 else "taken off"
            said.append(f"{points_text(abs(one.points))} points {sign}: {one.reason}.")
        if one.extension:
            said.append(f"You had {one.extension.total_seconds() / 86400:g} more days.")
    if final.adjustments and final.final is not None:
        out_of = points_text(attempt.scored.out_of)
        said.append(f"What counts: {points_text(final.final)} of {out_of} points.")
    return said


def _overrides(scored: Scored) -> list[tuple[Override, list[str]]]:
    found: dict[str, tuple[Override, list[str]]] = {}
    for one in scored.checks:
        if one.override:
            found.setdefault(one.override.check, (one.override, []))[1].append(one.result.number)
    return list(found.values())


def _of_override(override: Override, numbers: Sequence[str]) -> str:
    how = "counts in full" if override.count == "full" else "does not count"
    return f"Check {', '.join(numbers)} {how} for everybody: {override.reason}"


def _counting(attempt: Attempt) -> Callable[[Row], Row | None]:
    """What becomes of each row of the record: its points as they count now."""
    counted = {one.result.id: one for one in attempt.scored.checks}

    def change(row: Row) -> Row | None:
        one = counted.get(row.check_id)
        if one is None or (one.override and one.override.count == "drop"):
            return None
        outcome = row.outcome
        if one.override and one.score == one.points:
            outcome = Outcome.PASSED
        return replace(row, points=one.points, score=one.score, outcome=outcome)

    return change


def _with_the_standing(results: Path, final: Final) -> None:
    content = json.loads(results.read_bytes())
    content["extra_data"]["standing"] = final.standing.value
    files.replace(results, json.dumps(content, allow_nan=False, indent=1) + "\n")
