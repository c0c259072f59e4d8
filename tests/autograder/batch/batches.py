"""A batch to try, in a line: its class, its results, its executor with the fake grader."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from autograder.batch import conduct
from autograder.batch.commands import Options, Result, run
from autograder.batch.executor import Executor
from autograder.batch.local import LocalExecutor
from autograder.batch.needs import Slot, needs_of
from autograder.batch.store import Store
from autograder.inputs import known_secret
from autograder.manifest import Course, Manifest
from tests.autograder.submissions import small_manifest

from . import fake

TWO = small_manifest("broadcast", "scatter_gather")
FAKE = (sys.executable, "-m", "tests.autograder.batch.fake")


def settings(
    manifest: Manifest = TWO, grader: str = "1" * 16, seed: int = 1, **more: Any
) -> conduct.Settings:
    needs = needs_of(manifest.problems, gpus=0)
    return conduct.Settings(manifest, grader, known_secret(seed), needs, seed=seed, **more)


def with_course(manifest: Manifest = TWO, **changes: Any) -> Manifest:
    """The manifest with other decisions of the course."""
    return replace(manifest, course=replace(manifest.course, **changes))


@dataclass
class Batch:
    """A class in `path`, graded into `out`."""

    path: Path
    out: Path
    workers: int = 2
    backend: str = "gloo"
    shown: str = ""

    def submit(self, name: str, **does: Any) -> None:
        fake.submission(self.path / name, **does)

    def run(
        self,
        manifest: Manifest = TWO,
        grader: str = "1" * 16,
        how: Mapping[str, Any] | None = None,
        **asked: Any,
    ) -> Result:
        """Grades with the fake grader, in worker processes. how: other settings than usual."""
        text = io.StringIO()
        more = {"seed": 1, "backend": self.backend, **(how or {})}
        options = Options(self.path, self.out, conduct.Asked(**asked), **more)
        used = settings(manifest, grader, **more)
        result = run(Console(file=text, width=200), options, used, self.executor)
        self.shown = text.getvalue()
        return result

    def executor(self, store: Store, *_: object) -> Executor:
        slots = [Slot(number) for number in range(self.workers)]
        return LocalExecutor(slots, store.out / "log", FAKE, stalled=30)

    @property
    def store(self) -> Store:
        return Store(self.out)

    def rows(self) -> dict[str, dict[str, str]]:
        """grades.csv, by student."""
        text = (self.out / "grades.csv").read_text()
        return {row["student"]: row for row in csv.DictReader(io.StringIO(text))}

    def finals(self) -> dict[str, str]:
        return {student: row["final"] for student, row in self.rows().items()}

    def attempts(self, name: str) -> list[int]:
        """How often each grading of a submission was begun."""
        files = [place.path / "attempts" for place in self.store.of(name)]
        return [len(file.read_text()) if file.exists() else 0 for file in files]

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.out / "log.jsonl").read_text().splitlines()]


def courses(*checks: Any) -> Course:
    return Course("A course", overrides=tuple(checks))


def names(count: int) -> Sequence[str]:
    return [f"student-{number:03}" for number in range(count)]
