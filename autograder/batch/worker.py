"""Does one grading: what runs in a slot of the local executor, in a Slurm job, in a container.

It knows nothing but the grading's directory. What it finds there says what to do; what it leaves
there is the result. `serve` does many, one after the other, as its parent names them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from types import FrameType

import msgspec

import multirank
from autograder import backend as backends
from autograder import circumstances, report
from autograder.backend import BackendName
from autograder.batch import records
from autograder.batch.files import replace
from autograder.batch.store import RETRIES, TIMELINES, Place, State, Status, Task, now
from autograder.confine import kernel, process
from autograder.confine.modes import Isolation, choose
from autograder.flags import suspicions
from autograder.grade import Grade, Outcome, Row
from autograder.grading import Grading
from autograder.intake import Ignored
from autograder.manifest import Course, Manifest, load_problems
from autograder.paths import REFERENCE, module_files
from autograder.turns import Turns

ELSEWHERE = "elsewhere"  # another worker is at it
NOT_JUDGED = (Outcome.GRADER_FAULT, Outcome.TOO_NOISY)
GradeOne = Callable[[Task, Place], Grade]


class WrongGrader(RuntimeError):
    """What runs here is not what the task asks for; nothing that it could say would count."""


def work(place: Place, grade_one: GradeOne | None = None) -> str:
    """Does a grading, unless it is done or somebody is at it; what came of it.

    grade_one: what grades; by default `grade`.

    Raises:
        KeyboardInterrupt: it was interrupted; the grading waits again.
    """
    with place.locked() as mine:
        if not mine:
            return ELSEWHERE
        task, state = place.task(), place.state()
        if task is None:
            return Status.WAITING.value
        if state.status is Status.DONE or state.given_up:
            return state.status.value
        place.update(status=Status.RUNNING, started=now(), host=socket.gethostname())
        try:
            graded = (grade_one or grade)(task, place)
            return _finish(place, graded).status.value
        except KeyboardInterrupt:
            place.update(status=Status.WAITING)
            raise
        except Exception:
            return place.note_fault(traceback.format_exc(), socket.gethostname()).status.value


def _finish(place: Place, graded: Grade) -> State:
    """Writes the results. Rows that could not be judged are a fault, and tried again."""
    timelines = {row.check_id: row.timeline for row in graded.rows if row.timeline}
    replace(place.path / TIMELINES, json.dumps(timelines))
    report.write_all(graded, place.path)
    not_judged = [row for row in graded.rows if row.outcome in NOT_JUDGED]
    if not_judged and len(place.state().faults) - place.state().forgiven <= RETRIES:
        told = "\n".join(f"{row.check_id}: {row.outcome}\n{row.staff}" for row in not_judged)
        return place.note_fault(told, socket.gethostname())
    return place.update(status=Status.DONE, finished=now(), job="")


# --- Grading --------------------------------------------------------------------------------------


def grade(task: Task, place: Place) -> Grade:
    """Grades a submission as the task says; after a fault only what could not be judged.

    Raises:
        WrongGrader: the grader, its secret or its isolation are not those that the task asks for.
    """
    manifest = _manifest(task)
    confinement = choose(Isolation(task.isolation))
    backend = backends.find(BackendName(task.backend))
    secret = circumstances.secret(task.seed)
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
    return _read(Place(place.path.parent / task.base)) if task.base else None


def _read(place: Place) -> Grade:
    timelines = json.loads((place.path / TIMELINES).read_bytes())
    return records.grade_of(records.read(place.record), timelines)


def _still_to_be_judged(place: Place) -> list[str]:
    """After an attempt that judged all but some checks: those."""
    try:
        checks = records.read(place.record)["checks"]
        (place.path / TIMELINES).stat()
    except (records.DamagedRecord, OSError):
        return []
    return [one["id"] for one in checks if Outcome(one["outcome"]) in NOT_JUDGED]


def _named(row: Row, only: list[str]) -> bool:
    return row.check_id in only or row.problem_id in only


def _require_same(asked: str, here: str, what: str) -> None:
    if asked != here:
        raise WrongGrader(
            f"{what} here ({here[:16]}) than where the batch was started ({asked[:16]}): build the "
            "image anew, or use the same checkout and the same AUTOGRADER_PRIVATE everywhere"
        )


# --- Workers --------------------------------------------------------------------------------------


def serve(grade_one: GradeOne | None = None) -> None:
    """Does the gradings whose directories are named on standard input, one a line.

    For each it answers with a line of JSON. It ends when its input does, and with its parent.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # nothing else that is printed may pass for an answer
    _end_with_the_parent()
    with _interruptible():
        for line in sys.stdin:
            place = Place(Path(json.loads(line)))
            answers.write(json.dumps([str(place.path), work(place, grade_one)]) + "\n")


def job(path: str) -> None:
    """What a job of the Slurm executor does: one grading. Its result is in the directory."""
    process.hide()
    with _interruptible():
        work(Place(Path(path)))


def _end_with_the_parent() -> None:
    if sys.platform == "linux":
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:
            raise SystemExit(1)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """What a batch or Slurm ends politely leaves a grading that waits."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, interrupt)
    with contextlib.suppress(KeyboardInterrupt):
        yield


def main() -> None:
    """The entry point of the local executor's workers."""
    process.hide()
    multirank.start()
    serve()


if __name__ == "__main__":
    main()
