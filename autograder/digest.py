"""Names the state of everything that a grade depends on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from autograder.paths import ROOT

LEFT_OUT = (
    # They work on what was graded already.
    "reference/course.toml",
    "autograder/batch",
    "autograder/merge.py",
    # What platforms are handed; gradescope.py stays, which reads when a submission was handed in.
    "autograder/exchange.py",
    *(
        f"autograder/platforms/{name}.py"
        for name in ("classroom50", "convert", "junit", "markdown", "prairielearn", "upload")
    ),
    # What a terminal shows.
    "autograder/doctor.py",
    "autograder/show.py",
    # They try the grader, or hand out the assignment.
    "autograder/mutation",
    "autograder/release",
    "autograder/selfcheck",
    "autograder/smoke.py",
)


def grader_digest() -> str:
    """Of grader, reference and multirank as they are now: the same digest, the same grades.

    `LEFT_OUT` is what has no part in a grade, so that its mistakes can be mended without grading a
    class again.
    """
    digest = hashlib.sha256()
    for path in counted():
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def counted() -> Iterator[Path]:
    """The files that it is of."""
    for room in ("autograder", "reference", "multirank"):
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in (".py", ".toml", ".html") and not _is_left_out(path):
                yield path


def _is_left_out(path: Path) -> bool:
    return any(path.is_relative_to(ROOT / one) for one in LEFT_OUT)
