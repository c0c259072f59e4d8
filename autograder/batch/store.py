"""The state of every grading, on disk: whoever is killed at any moment loses only what ran then.

A grading is one submission under one version of the grader, in one image, and has a directory of
its own: `gradings/NAME/KEY/`.

    task.json     what is to be done; written before anything else, never changed
    submission/   the modules that were handed in
    state.json    how far it is; replaced whole
    lock          held by whoever grades it; the kernel lets go of it when that one dies
    grade.json    and the other results, when it is done

So two batches at once take turns at each grading, and a state that says "running" while nobody
holds the lock is one that was interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from autograder.atomic import replace_file
from autograder.batch.files import replace
from autograder.report import RECORD

TASK, STATE, LOCK, SUBMISSION = "task.json", "state.json", "lock", "submission"
TIMELINES = "timelines.json"
TIMES = "times.json"  # how long a grading took, was alone to measure, and waited for others
_REQUEST, _NOTED = "regrade.json", "decided.json"
RETRIES = 2


_Kind = TypeVar("_Kind")


class Status(StrEnum):
    """How far a grading is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAULT = "fault"


class Task(msgspec.Struct, frozen=True):
    """What is to be graded, and how.

    name: the entry's. digest: of the submission. unusable: why nothing in it can be graded.
    problems: their points by id, as the course counts them; 1 for what it gives nothing for, since
    of no points none could be given later. grader: the version's digest.
    secret: its fingerprint. seed: of known inputs instead. image: what it runs in, as it was named.
    only: the checks (or problems) that are run; empty: all. base: the grading whose other results
    are kept then, a directory beside this one. request: what asked for that, see `Store.request`.
    order: the how-manieth of the submission.
    """

    name: str
    course: str
    digest: str
    unusable: str
    source: str
    ignored: tuple[tuple[str, str], ...]
    problems: dict[str, str]
    grader: str
    secret: str
    seed: int | None
    backend: str
    isolation: str
    official: bool
    image: str
    budget: float
    only: tuple[str, ...] = ()
    base: str = ""
    request: str = ""
    order: int = 1


class Fault(msgspec.Struct, frozen=True):
    """One time that the machine or the grader failed: when, where, and what is known."""

    at: str
    host: str
    text: str


class State(msgspec.Struct, frozen=True):
    """How far a grading is.

    faults: of all attempts. forgiven: how many of them no longer count, since somebody asked to
    try again. may_lower: its grade counts even if an earlier one of the submission is higher.
    """

    status: Status = Status.WAITING
    faults: tuple[Fault, ...] = ()
    forgiven: int = 0
    started: str = ""
    finished: str = ""
    host: str = ""
    may_lower: bool = False

    @property
    def given_up(self) -> bool:
        """Whether it has failed so often that it is not tried again by itself."""
        return self.status is Status.FAULT and len(self.faults) - self.forgiven > RETRIES


class Request(msgspec.Struct, frozen=True):
    """That something is graded again, for the whole class; resumed like everything else."""

    id: str
    what: tuple[str, ...]


@dataclass(frozen=True, order=True)
class Place:
    """The directory of one grading."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.parent.name

    @property
    def key(self) -> str:
        return self.path.name

    def beside(self, key: str) -> Place:
        """Another grading of the same submission."""
        return Place(self.path.parent / key)

    @property
    def record(self) -> Path:
        return self.path / RECORD

    def task(self) -> Task | None:
        """None where there is none that can be read: then the grading has not begun."""
        return _read(self.path / TASK, Task)

    def state(self) -> State:
        """A state that cannot be read is that of a grading that has not begun.

        Without a record nothing is done, whatever the state says.
        """
        state = _read(self.path / STATE, State) or State()
        if state.status is Status.DONE and not self.record.exists():
            return msgspec.structs.replace(state, status=Status.WAITING)
        return state

    def requested(self) -> str:
        """The request to regrade that it belongs to; "" for none."""
        task = self.task()
        return task.request if task else ""

    def update(self, **changes: Any) -> State:
        """Changes some fields of the state. For whoever holds the lock."""
        state = msgspec.structs.replace(self.state(), **changes)
        _write(self.path / STATE, state)
        return state

    def note_fault(self, text: str, host: str) -> State:
        """Writes down that an attempt failed through no fault of the submission."""
        fault = Fault(now(), host, text[-4000:])
        return self.update(status=Status.FAULT, faults=(*self.state().faults, fault))

    def files(self) -> dict[str, bytes]:
        """The modules that were handed in."""
        return {
            path.name: path.read_bytes()
            for path in sorted((self.path / SUBMISSION).iterdir())
            if path.is_file()
        }

    @contextlib.contextmanager
    def locked(self) -> Iterator[bool]:
        """Whether the block has the grading to itself; False: another one is at it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self.path / LOCK, flags, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
                yield False
            else:
                yield True
        finally:
            os.close(descriptor)

    def is_locked(self) -> bool:
        """Whether somebody is at it now."""
        with self.locked() as mine:
            return not mine


class Store:
    """The folder of a batch's results."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.gradings = out / "gradings"

    def make(self) -> None:
        """Creates it, for ourselves alone: it holds what students handed in."""
        self.out.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.gradings.mkdir(mode=0o700, exist_ok=True)

    def of(self, name: str) -> list[Place]:
        """The gradings of an entry, in the order in which they were asked for."""
        folder = self.gradings / name
        places = [Place(path) for path in folder.iterdir()] if folder.is_dir() else []
        tasks = [(place.task(), place) for place in places]
        known = [(task.order, place) for task, place in tasks if task is not None]
        return [place for _, place in sorted(known)]

    def place(self, name: str, key: str) -> Place:
        return Place(self.gradings / name / key)

    def begin(self, task: Task, key: str, files: Mapping[str, bytes], **state: Any) -> Place:
        """The directory of a grading, ready for a worker. What is there already stays."""
        place = self.place(task.name, key)
        if place.task() is not None:
            return place
        place.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = place.path / SUBMISSION
        folder.mkdir(exist_ok=True)
        for name, content in files.items():
            replace(folder / name, content)
        if state:
            _write(place.path / STATE, State(**state))
        _write(place.path / TASK, task)
        return place

    def request(self, what: Sequence[str]) -> str:
        """Names a request to regrade; the same one until it is met, however often it is begun."""
        path = self.out / _REQUEST
        known = _read(path, Request)
        if known is None or list(known.what) != list(what):
            known = Request(f"{now()}-{secrets.token_hex(4)}", tuple(what))
            _write(path, known)
        return known.id

    def request_met(self) -> None:
        """The next one, of the same words too, is another."""
        (self.out / _REQUEST).unlink(missing_ok=True)

    @contextlib.contextmanager
    def results(self) -> Iterator[None]:
        """A block that one batch alone is in: it writes what is made of all gradings."""
        descriptor = os.open(
            self.out / "results.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def noted(self, what: str) -> list[str]:
        """What `note` was last told of that, if anything."""
        return (_read(self.out / _NOTED, dict[str, list[str]]) or {}).get(what, [])

    def note(self, what: str, values: list[str]) -> None:
        known = _read(self.out / _NOTED, dict[str, list[str]]) or {}
        replace(self.out / _NOTED, msgspec.json.encode({**known, what: values}))

    def log(self, what: str, **details: Any) -> None:
        """Adds a line to log.jsonl: what was decided, for whoever asks later."""
        line = json.dumps({"at": now(), "what": what, **details}) + "\n"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self.out / "log.jsonl", flags, 0o600)
        with os.fdopen(descriptor, "ab", buffering=0) as file:
            file.write(line.encode())  # in one piece: of two batches none breaks the other's lines


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _write(path: Path, value: msgspec.Struct) -> None:
    replace_file(path, msgspec.json.encode(value).decode())


def _read(path: Path, kind: type[_Kind]) -> _Kind | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None
