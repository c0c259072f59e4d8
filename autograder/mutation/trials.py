"""Grades each change by the checks of its problem, until one of them loses something.

What came of it is written down at once, beside the state of the grader and the reference that it
holds for. Whoever is interrupted goes on where they were.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from autograder.confine.modes import Isolation, choose
from autograder.digest import grader_digest
from autograder.grade import About, Grade
from autograder.grading import Grading
from autograder.inputs import known_secret
from autograder.manifest import Manifest
from autograder.mutation.candidates import Candidate
from autograder.paths import REFERENCE, module_files

_BUDGET = 120.0  # seconds for one change


@dataclass(frozen=True)
class Result:
    """What came of one change. by: the check that noticed it; "" when none did."""

    id: str
    by: str
    seconds: float

    @property
    def killed(self) -> bool:
        return bool(self.by)


class Memory:
    """Results on disk, one a line; those of another state of the grader do not count."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._state = grader_digest()
        self.results: dict[str, Result] = {}
        for line in file.read_text().splitlines() if file.is_file() else ():
            noted = json.loads(line)
            if noted.pop("state") == self._state:
                self.results[noted["id"]] = Result(**noted)

    def add(self, result: Result) -> None:
        self.results[result.id] = result
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as file:
            file.write(json.dumps({"state": self._state, **asdict(result)}) + "\n")


def run(
    manifest: Manifest,
    chosen: Sequence[Candidate],
    memory: Memory,
    told: Callable[[Candidate, Result, int], None],
    deadline: float,
) -> bool:
    """Grades those that have not been yet; whether all are done by the deadline.

    told: is given each, what came of it, and how many are done. deadline: by time.monotonic().
    """
    for done, one in enumerate(chosen, start=1):
        if one.id in memory.results:
            continue
        if time.monotonic() > deadline:
            return False
        result = judge(manifest, one)
        memory.add(result)
        told(one, result, done)
    return True


def judge(manifest: Manifest, one: Candidate) -> Result:
    """Grades one change."""
    started = time.monotonic()
    grade = Grading(
        manifest,
        one.files,
        module_files(REFERENCE),
        known_secret(1),
        About(course=manifest.course.name),
        only=[one.problem],
        budget=_BUDGET,
        confinement=choose(Isolation.NONE),
        until_lost=True,
    ).run()
    return Result(one.id, _noticed_by(grade), round(time.monotonic() - started, 2))


def _noticed_by(grade: Grade) -> str:
    return next((row.check_id for row in grade.rows if row.has_lost), "")
