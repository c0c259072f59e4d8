"""Does one grading: what runs in a slot of the local executor, in a Slurm job, in a container."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import msgspec

import multirank
from autograder import backend as backends
from autograder import circumstances, report
from autograder.backend import BackendName
from autograder.batch import records
from autograder.batch.files import replace
from autograder.batch.store import TIMELINES, TIMES, Place, Task
from autograder.batch.worker import interruptible, serve, work
from autograder.confine import process
from autograder.confine.modes import Isolation, choose
from autograder.flags import suspicions
from autograder.grade import NOT_JUDGED, Grade, Row
from autograder.grading import Grading
from autograder.inputs import secret_of
from autograder.intake import Ignored
from autograder.manifest import Course, Manifest, load_problems
from autograder.paths import REFERENCE, module_files
from autograder.record import NoGrade
from autograder.record import read as read_record
from autograder.turns import Turns


class WrongGrader(RuntimeError):
    """What runs here is not what the task asks for; nothing that it could say would count."""


def grade(task: Task, place: Place) -> Grade:
    """Grades a submission as the task says; after a fault only what could not be judged.

    Raises:
        WrongGrader: the grader, its secret or its isolation are not those that the task asks for.
    """
    manifest = _manifest(task)
    confinement = choose(Isolation(task.isolation))
    backend = backends.find(BackendName(task.backend))
    secret = secret_of(task.seed)
    base = _base(task, place)
    only = _still_to_be_judged(place) or list(task.only)
    about = circumstances.about(manifest, secret, [] if base else only, confinement, backend)
    _require_same(task.grader, about.versions["grader"], "the grader is another version")
    _require_same(task.secret, secret.fingerprint, "the course's secret is another one")
    if task.official and about.unofficial:
        raise WrongGrader(f"the result would not be official: {'; '.join(about.unofficial)}")
    files = place.files()
    about.source, about.digest = task.source, task.digest
    about.ignored = [Ignored(name, why) for name, why in task.ignored]
    about.notices += [task.unusable] if task.unusable else []
    about.flags += suspicions(files, [name for name, _ in task.ignored])
    if task.image:
        about.versions["image"] = task.image
    turns = Turns()
    grading = Grading(
        manifest,
        files,
        module_files(REFERENCE),
        secret,
        about,
        unusable=task.unusable,
        budget=task.budget,
        only=only,
        judged=[row.check_id for row in base.rows] if base else None,
        confinement=confinement,
        backend=backend,
        turns=turns,
    )
    started = time.monotonic()

    def changed(grade: Grade) -> None:
        about.seconds = time.monotonic() - started - turns.waited
        report.write_results(grade, place.path)

    grading.changed = changed
    graded = grading.run()
    about.finished = datetime.now(UTC).isoformat(timespec="seconds")
    times = {"seconds": about.seconds, "measured": turns.measured, "waited": turns.waited}
    replace(place.path / TIMES, json.dumps(times))
    if base is None:
        return graded
    about.flags[:] = dict.fromkeys([*base.about.flags, *about.flags])
    about.unofficial[:] = dict.fromkeys([*base.about.unofficial, *about.unofficial])
    return records.merged(base, graded, lambda row: _named(row, only))


def _manifest(task: Task) -> Manifest:
    """The problems and points that the batch's course file says, whatever lies here."""
    everything = load_problems(REFERENCE)
    problems = tuple(
        msgspec.structs.replace(problem, points=Fraction(task.problems[problem.id]))
        for problem in everything.problems
        if problem.id in task.problems
    )
    return dataclasses.replace(everything, problems=problems, course=Course(task.course))


def _base(task: Task, place: Place) -> Grade | None:
    """What was graded before, and is kept but for what is run now."""
    if _still_to_be_judged(place):
        return _read(place)
    return _read(place.beside(task.base)) if task.base else None


def _read(place: Place) -> Grade:
    timelines = json.loads((place.path / TIMELINES).read_bytes())
    return records.grade_of(read_record(place.record), timelines)


def _still_to_be_judged(place: Place) -> list[str]:
    """After an attempt that judged all but some checks: those."""
    try:
        checks = read_record(place.record).checks
        (place.path / TIMELINES).stat()
    except (NoGrade, OSError):
        return []
    return [one.id for one in checks if one.outcome in NOT_JUDGED]


def _named(row: Row, only: list[str]) -> bool:
    return row.check_id in only or row.problem_id in only


def _require_same(asked: str, here: str, what: str) -> None:
    if asked != here:
        raise WrongGrader(
            f"{what} here ({here[:16]}) than where the batch was started ({asked[:16]}): build the "
            "image anew, or use the same checkout and the same AUTOGRADER_PRIVATE everywhere"
        )


def main(arguments: list[str]) -> None:
    """Does the grading whose directory is named; or, without one, all that a parent names."""
    process.hide()
    multirank.start()
    if arguments:
        with interruptible():
            work(Place(Path(arguments[0])), grade)
    else:
        serve(grade)


if __name__ == "__main__":
    main(sys.argv[1:])
