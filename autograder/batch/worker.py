"""The frame around one grading: its lock, its states, its faults. `grader` is what it frames.

A worker knows nothing but the grading's directory. What it finds there says what to do; what it
leaves there is the result. `serve` does many, one after the other, as its parent names them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from autograder import report
from autograder.batch.files import replace
from autograder.batch.store import RETRIES, TIMELINES, Place, State, Status, Task, now
from autograder.confine import kernel
from autograder.grade import NOT_JUDGED, Grade

ELSEWHERE = "elsewhere"  # another worker is at it
PARENT = "AUTOGRADER_BATCH"  # in a worker's environment: the process that it serves
GradeOne = Callable[[Task, Place], Grade]


def work(place: Place, grade_one: GradeOne) -> str:
    """Does a grading, unless it is done or somebody is at it; what came of it.

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
            graded = grade_one(task, place)
        except KeyboardInterrupt:
            place.update(status=Status.WAITING)
            raise
        except Exception:
            return place.note_fault(traceback.format_exc(), socket.gethostname()).status.value
        with _uninterrupted():
            try:
                return _finish(place, graded).status.value
            except Exception:
                return place.note_fault(traceback.format_exc(), socket.gethostname()).status.value


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Whoever interrupts is heard after the block: what is graded is written down first."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _finish(place: Place, graded: Grade) -> State:
    """Writes the results. Rows that could not be judged are a fault, and tried again."""
    timelines = {row.check_id: row.timeline for row in graded.rows if row.timeline}
    replace(place.path / TIMELINES, json.dumps(timelines))
    report.write_all(graded, place.path)
    not_judged = [row for row in graded.rows if row.outcome in NOT_JUDGED]
    if not_judged and len(place.state().faults) - place.state().forgiven < RETRIES:
        told = "\n".join(f"{row.check_id}: {row.outcome}\n{row.staff}" for row in not_judged)
        return place.note_fault(told, socket.gethostname())
    return place.update(status=Status.DONE, finished=now())


# --- Workers --------------------------------------------------------------------------------------


def serve(grade_one: GradeOne) -> None:
    """Does the gradings whose directories are named on standard input, one a line.

    For each it answers with a line of JSON. It ends when its input does, and with its parent.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # nothing else that is printed may pass for an answer
    _end_with_the_parent()
    with interruptible():
        for line in sys.stdin:
            place = Place(Path(json.loads(line)))
            answers.write(json.dumps([str(place.path), work(place, grade_one)]) + "\n")


def _end_with_the_parent() -> None:
    parent = os.environ.pop(PARENT)
    if sys.platform == "linux":
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent):  # it had ended before
            raise SystemExit(1)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """What a batch or Slurm ends politely leaves a grading that waits."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, interrupt)
    with contextlib.suppress(KeyboardInterrupt):
        yield
