"""Reports of a grade: results.json for Gradescope, grade.json, report.html for the student, and
report-staff.html for the staff.

Each is a pure function of the grade. Files are replaced whole, so that whenever the grader may be
killed, what lies there is valid.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autograder.atomic import replace_file
from autograder.report import gradescope, page, record, staff

if TYPE_CHECKING:
    from autograder.grade import Grade

RESULTS, RECORD, PAGE = "results.json", "grade.json", "report.html"
STAFF_PAGE = "report-staff.html"


def write_results(grade: Grade, out_dir: Path) -> None:
    """results.json alone: cheap enough to be written after every check."""
    replace_file(out_dir / RESULTS, _json(gradescope.results(grade)))


def write_all(grade: Grade, out_dir: Path) -> None:
    """All four; the one that the grading platform reads comes first."""
    write_results(grade, out_dir)
    replace_file(out_dir / RECORD, _json(record.grade_record(grade)))
    replace_file(out_dir / PAGE, page.render(grade))
    replace_file(out_dir / STAFF_PAGE, staff.render(grade))


def _json(value: Mapping[str, Any]) -> str:
    # NaN and infinity are not JSON: better no file than one that nothing can read.
    return json.dumps(value, allow_nan=False, indent=1) + "\n"
