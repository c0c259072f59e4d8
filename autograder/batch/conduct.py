"""Runs a batch: plans the gradings, has them done, tries again what failed through nobody's fault.

Everything that matters is on disk (see `store`), so a batch may end at any moment and be started
again: it goes on where it was. Nothing in here decides points.
"""

from __future__ import annotations

import difflib
import hashlib
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from autograder.batch import scoring
from autograder.batch.executor import Ended, Executor
from autograder.batch.needs import Needs
from autograder.batch.people import Entry
from autograder.batch.scoring import Scored, Standing
from autograder.batch.sources import Class, NoSubmissions
from autograder.batch.store import Place, Status, Store, Task
from autograder.inputs import Secret
from autograder.intake import NoSuchSubmission, Submission, UnusableSubmission, take
from autograder.manifest import Manifest
from autograder.text import safe_line

_TICK = 0.5  # seconds between two looks at what runs


@dataclass(frozen=True)
class Settings:
    """How a batch grades; the same for all its submissions.

    image: what the gradings run in, as somebody named it; empty: this machine as it is.
    """

    manifest: Manifest
    grader: str
    secret: Secret
    needs: Needs
    backend: str = "gloo"
    isolation: str = "auto"
    official: bool = False
    image: str = ""
    seed: int | None = None

    @property
    def version(self) -> str:
        """Names everything but the submission that a grading's result depends on."""
        problems = ",".join(sorted(problem.id for problem in self.manifest.problems))
        rest = "\n".join(
            (self.backend, self.isolation, self.image, self.secret.fingerprint, problems)
        )
        return f"{self.grader[:12]}-{hashlib.sha256(rest.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Asked:
    """What somebody asks of this run.

    only: names of entries or ids of students; empty: everybody. failed: what had been given up, or
    could not be judged, is tried again. regrade: problems or checks that are run again, whatever is
    done. lower: a new grade counts even where the earlier one is higher.
    """

    only: tuple[str, ...] = ()
    failed: bool = False
    regrade: tuple[str, ...] = ()
    lower: bool = False


class UnknownName(ValueError):
    """What was asked for names nobody of this class, or no problem of the course."""


@dataclass
class Progress:
    """What is known while it runs.

    todo: gradings of this run. finished: those that have ended, in order. running: now.
    elsewhere: those that another batch is at.
    """

    todo: list[Place]
    finished: list[Place] = field(default_factory=list)
    running: list[Place] = field(default_factory=list)
    elsewhere: list[Place] = field(default_factory=list)
    retried: int = 0


Told = Callable[[Progress], None]


def understood(asked: Asked, manifest: Manifest) -> Asked:
    """The same with problems by their ids, where they were named by number.

    Raises:
        UnknownName: the course has no such problem.
    """
    ids = {problem.number: problem.id for problem in manifest.problems}
    ids |= {problem.id: problem.id for problem in manifest.problems}
    regrade = []
    for name in asked.regrade:
        problem, slash, check = name.partition("/")
        if problem not in ids:
            near = difflib.get_close_matches(problem, ids, n=3)
            hint = f"; did you mean {', '.join(near)}?" if near else "."
            raise UnknownName(f"There is no problem {safe_line(name)!r}{hint}")
        regrade.append(f"{ids[problem]}{slash}{check}")
    return replace(asked, regrade=tuple(regrade))


def chosen(found: Class, asked: Asked) -> list[Entry]:
    """The entries that are asked for.

    Raises:
        UnknownName: a name is nobody's.
    """
    known = {
        name
        for entry in found.entries
        for name in (entry.name, entry.path.name, *(student.id for student in entry.students))
    }
    for name in asked.only:
        if name not in known:
            raise UnknownName(f"There is no submission or student {safe_line(name)!r}.")
    wanted = set(asked.only)
    return [
        entry
        for entry in found.entries
        if not wanted
        or wanted & {entry.name, entry.path.name, *(student.id for student in entry.students)}
    ]


def plan(
    store: Store, settings: Settings, entries: Iterable[Entry], asked: Asked
) -> dict[str, Place]:
    """The grading of each entry that this run is about, by name; those that are done among them."""
    request = store.request([*asked.regrade, settings.version]) if asked.regrade else ""
    return {entry.name: _planned(store, settings, entry, asked, request) for entry in entries}


def _planned(store: Store, settings: Settings, entry: Entry, asked: Asked, request: str) -> Place:
    submission, unusable = _taken(entry.path, settings.manifest)
    digest = submission.digest
    if unusable:
        digest = hashlib.sha256(f"{digest}{unusable}".encode()).hexdigest()
    key = f"{digest[:12]}-{settings.version}"
    earlier = store.of(entry.name)
    ours = [place for place in earlier if place.key.startswith(key)]
    base = ""
    if request:
        begun = [place for place in ours if place.requested() == request]
        rivals = scoring.of_a_kind(earlier, digest, settings.backend, settings.seed)
        counts = None if begun else scoring.counting(entry, rivals, settings.manifest)
        ours, base = begun, counts.place.key if counts and _will_do(counts.place, settings) else ""
    if ours and _will_do(ours[-1], settings):
        _as_asked(scoring.score(entry, ours[-1], settings.manifest), asked)
        return ours[-1]
    task = Task(
        entry.name,
        settings.manifest.course.name,
        digest,
        unusable,
        submission.source,
        tuple((item.name, item.why) for item in submission.ignored),
        {problem.id: str(problem.points or 1) for problem in settings.manifest.problems},
        settings.grader,
        settings.secret.fingerprint,
        settings.seed,
        settings.backend,
        settings.isolation,
        settings.official,
        settings.image,
        settings.needs.budget,
        asked.regrade if base else (),
        base,
        request,
        len(earlier) + 1,
    )
    times = sum(place.key.startswith(key) for place in earlier)
    full_key = f"{key}.{times + 1}" if times else key
    more = {"may_lower": True} if asked.lower else {}
    return store.begin(task, full_key, submission.files, **more)


def _taken(path: Path, manifest: Manifest) -> tuple[Submission, str]:
    """What was handed in, and why nothing in it can be graded.

    Raises:
        NoSubmissions: it cannot be read.
    """
    try:
        return take(path, known=manifest.modules), ""
    except UnusableSubmission as error:
        return Submission({}, [], safe_line(path.name)), str(error)
    except NoSuchSubmission as error:  # which is no student's fault
        raise NoSubmissions(str(error)) from None


def _will_do(place: Place, settings: Settings) -> bool:
    """Whether it is official, or will be, if that is asked for."""
    task = place.task()
    if not settings.official or (task and task.official):
        return True
    record = scoring.read(place) if place.state().status is Status.DONE else None
    return record is not None and record.official


def _as_asked(scored: Scored, asked: Asked) -> None:
    place, state = scored.place, scored.state
    if asked.failed and state.given_up:
        _update(place, forgiven=len(state.faults))
    if asked.failed and scored.standing is Standing.OPEN:
        _update(place, status=Status.WAITING, forgiven=len(state.faults))
    if state.status is Status.DONE and scoring.read(place) is None:
        _update(place, status=Status.WAITING)  # its record is damaged


def let_lower(places: Iterable[Place]) -> None:
    """From now on these gradings count even where an earlier one is higher."""
    for place in places:
        if not place.state().may_lower:
            _update(place, may_lower=True)


def _update(place: Place, **changes: object) -> None:
    with place.locked() as mine:
        if mine:
            place.update(**changes)


def run(executor: Executor, places: Sequence[Place], told: Told) -> Progress:
    """Has the gradings done; returns when each is done or given up.

    told: called about twice a second, and at the end.
    """
    todo = list(places)
    progress = Progress(todo)
    executor.submit(todo)
    left = set(todo)
    while left:
        ended = executor.wait(_TICK)
        progress.running = executor.running()
        again = []
        for one in ended:
            if one.elsewhere:
                progress.elsewhere.append(one.place)
            elif _over(one):
                left.discard(one.place)
                progress.finished.append(one.place)
            else:
                progress.retried += 1
                again.append(one.place)
        again += _free_again(progress)
        executor.submit(again)
        told(progress)
    progress.running = []
    told(progress)
    return progress


def is_over(place: Place) -> bool:
    """Whether nothing more is to be done for it: done, or given up."""
    state = place.state()
    return state.status is Status.DONE or state.given_up


def _over(ended: Ended) -> bool:
    """Whether nothing more is to be done for it. Who died cannot write down that it has."""
    if ended.died:
        with ended.place.locked() as mine:
            if mine and not is_over(ended.place):
                ended.place.note_fault(ended.died, socket.gethostname())
    return is_over(ended.place)


def _free_again(progress: Progress) -> list[Place]:
    """What another batch has let go of: done, or to be done by us."""
    free = [place for place in progress.elsewhere if not place.is_locked()]
    progress.elsewhere = [place for place in progress.elsewhere if place not in free]
    return free
