"""Submissions to grade, and gradings of them, in a line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from autograder.grade import About, Grade, Outcome, Row
from autograder.grading import Grading
from autograder.inputs import Secret, known_secret
from autograder.manifest import Manifest, load
from autograder.paths import ASSIGNMENT, REFERENCE, module_files
from autograder.selfcheck import variant
from autograder.selfcheck.variant import Patch

Files = variant.Files

MANIFEST = load(REFERENCE)


def reference_files() -> Files:
    return module_files(REFERENCE)


def stub_files() -> Files:
    return module_files(ASSIGNMENT)


def patched(
    patches: Mapping[str, Patch],
    modules: Mapping[str, str] | None = None,
    file: str = "collectives",
) -> Files:
    """The reference with functions of one of its files changed, and with further modules."""
    return variant.patched(file, patches, modules)


def graded(
    files: Mapping[str, bytes],
    only: Sequence[str] = (),
    *,
    manifest: Manifest = MANIFEST,
    secret: Secret | None = None,
    **more: Any,
) -> Grade:
    """Grades, in this process; the ranks are processes of their own as always."""
    about = About(course="A course")
    return Grading(
        manifest,
        files,
        reference_files(),
        secret or known_secret(1),
        about,
        only=only,
        **more,
    ).run()


def small_manifest(*problems: str) -> Manifest:
    """The course with these problems alone."""
    kept = tuple(problem for problem in MANIFEST.problems if problem.id in problems)
    assert len(kept) == len(problems)
    return replace(MANIFEST, problems=kept)


# One cheap problem of each part: about 2 s a grading, for suites that grade many submissions.
SMALL = small_manifest("broadcast", "bus_bandwidth", "shard_batch", "pipeline_bubble")


def rows_of(grade: Grade, problem: str) -> dict[str, Row]:
    """A problem's rows, by the names of their checks."""
    return {row.check_id.partition("/")[2]: row for row in grade.rows_of(problem)}


def lost(grade: Grade, problem: str) -> set[str]:
    """The checks of a problem without full marks."""
    rows = rows_of(grade, problem)
    return {name for name, row in rows.items() if row.outcome is not Outcome.PASSED}
