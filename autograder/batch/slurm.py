"""The Slurm executor: job arrays, through submitit; Slurm decides what runs where, and when.

A job does one grading, in a process of its own, which may be started in a container. Its result is
in the grading's directory, on a file system that all nodes share; nothing comes back by another
way. What was submitted is noted there too, so a batch that is started again finds its jobs.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError

from autograder.batch.conduct import is_over
from autograder.batch.executor import Ended, NoSlurm, SlurmOptions
from autograder.batch.files import replace
from autograder.batch.needs import Needs
from autograder.batch.store import Place, Status
from autograder.paths import ROOT

JOB = "job.txt"  # in a grading's directory: the job that has it
_LOOK = 2.0  # seconds between two looks at the queue
_GONE = 2  # looks without a job until it is believed to have ended
_AGAIN = 60.0  # seconds until what Slurm refused is handed in again
_ARRAY = 500  # jobs in an array; Slurm's own default limit is a thousand


class SlurmExecutor:
    """Jobs on a cluster."""

    def __init__(self, folder: Path, needs: Needs, options: SlurmOptions) -> None:
        """folder: shared by all nodes; logs go there.

        Raises:
            NoSlurm: it is not installed here.
        """
        self._folder = folder.absolute()
        out = str(self._folder.parent)
        words = shlex.split(options.command) or [sys.executable]
        self._command = [word.replace("{out}", out) for word in words]
        self._at_once = options.at_once
        try:
            self._slurm = submitit.SlurmExecutor(self._folder / "%j")
            self._slurm.update_parameters(**_parameters(needs, options))
        except (RuntimeError, ValueError) as error:
            raise NoSlurm(f"Slurm cannot be used: {error}") from None
        self._waiting: deque[Place] = deque()
        self._jobs: dict[Place, str] = {}
        self._ours: set[str] = set()  # of the jobs: not those of a batch before
        self._missing: dict[Place, int] = {}
        self._states: dict[str, str] = {}
        self._looked = self._again = 0.0

    def submit(self, places: Sequence[Place]) -> None:
        """Raises NoSlurm when Slurm refuses, and nothing runs that may end first."""
        if not places:
            return
        queue = self._queue()
        for place in places:
            job = _noted(place)
            if job and queue is not None and job in queue:
                self._jobs[place] = job
            else:
                self._waiting.append(place)
        self._hand_in()

    def _hand_in(self) -> None:
        """What waits, as far as there is room; what Slurm refuses waits on."""
        if time.monotonic() < self._again:
            return
        while self._waiting and (room := self._room()):
            places = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
            try:
                self._submit(places)
            except (FailedJobError, FailedSubmissionError, OSError) as error:
                self._waiting.extendleft(reversed(places))
                if not self._jobs:
                    raise NoSlurm(f"Slurm refuses the jobs: {error}") from None
                self._again = time.monotonic() + _AGAIN
                return

    def _room(self) -> int:
        """For how many jobs; Slurm itself limits those of one array alone."""
        most = self._at_once - len(self._jobs) if self._at_once else _ARRAY
        return max(0, min(_ARRAY, most))

    def _submit(self, places: Sequence[Place]) -> None:
        paths = [str(place.path.absolute()) for place in places]
        jobs = self._slurm.map_array(run_one, paths, [self._command] * len(paths))
        for place, job in zip(places, jobs, strict=True):
            self._jobs[place] = job.job_id
            self._ours.add(job.job_id)
            replace(place.path / JOB, job.job_id)

    def running(self) -> list[Place]:
        return [place for place, job in self._jobs.items() if self._states.get(job) == "RUNNING"]

    def wait(self, seconds: float) -> list[Ended]:
        time.sleep(seconds)
        if time.monotonic() - self._looked < _LOOK:
            return []
        self._looked = time.monotonic()
        queue = self._queue()
        if queue is not None:
            self._states = queue
        ended = []
        for place, job in list(self._jobs.items()):
            if self._is_at_it(place, job, queue):
                continue
            del self._jobs[place]
            self._missing.pop(place, None)
            ended.append(self._ended(place, job))
        self._hand_in()
        return ended

    def _is_at_it(self, place: Place, job: str, queue: Mapping[str, str] | None) -> bool:
        """A job that has just ended may still be in the queue, and its state be late by NFS."""
        if is_over(place):
            return False
        if queue is None or job in queue:
            self._missing[place] = 0
            return True
        self._missing[place] = self._missing.get(place, 0) + 1
        return self._missing[place] < _GONE

    def _ended(self, place: Place, job: str) -> Ended:
        status = place.state().status
        if status in (Status.DONE, Status.FAULT):
            return Ended(place)
        if place.is_locked():
            return Ended(place, elsewhere=True)
        logs = sorted((self._folder / job.partition("_")[0]).glob(f"{job}_*.err"))
        logs += sorted(self._folder.glob(f"{job.partition('_')[0]}*/{job}_*.err"))
        printed = "".join(log.read_text(errors="replace") for log in dict.fromkeys(logs))[-2000:]
        return Ended(place, died=f"job {job} has ended before the grading had\n{printed}".strip())

    def close(self) -> None:
        """Cancels what is in the queue: what runs is told, and waits again.

        Not what another batch has handed in, which may still run.
        """
        self._waiting.clear()
        jobs = [
            job for place, job in self._jobs.items() if job in self._ours and not is_over(place)
        ]
        for first in range(0, len(jobs), _ARRAY):
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                subprocess.run(
                    ["scancel", *jobs[first : first + _ARRAY]], capture_output=True, timeout=60
                )
        deadline = time.monotonic() + 20
        while jobs and time.monotonic() < deadline:
            queue = self._queue()
            if queue is None or not set(jobs) & set(queue):
                break
            time.sleep(0.5)

    def _queue(self) -> dict[str, str] | None:
        """Our jobs that wait or run, with their states; None when Slurm does not answer."""
        command = ["squeue", "--noheader", "--array", "--user", str(os.geteuid())]
        try:
            done = subprocess.run(
                [*command, "--format", "%i %T"],
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        pairs = [line.split() for line in done.stdout.splitlines()]
        return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and pair[1] != "COMPLETING"}


def _parameters(needs: Needs, options: SlurmOptions) -> dict[str, object]:
    """What is asked of Slurm for each job."""
    asked: dict[str, object] = {
        "job_name": "autograder",
        "time": needs.minutes,
        "cpus_per_task": needs.cpus,
        "mem": f"{needs.memory >> 20}MB",
        "array_parallelism": _ARRAY,
    }
    if needs.gpus:
        asked["gpus_per_node"] = needs.gpus
    if options.partition:
        asked["partition"] = options.partition
    known = submitit.SlurmExecutor._valid_parameters()
    further = {}
    for name, value in options.extra.items():
        plain = name.lstrip("-").replace("-", "_")
        if plain in known:
            asked[plain] = value or True
        else:
            further[plain] = value or True
    if further:
        asked["additional_parameters"] = further
    return asked


def run_one(path: str, command: Sequence[str]) -> None:
    """What a job does. Its directory says what came of it."""
    subprocess.run([*command, "-m", "autograder.batch.grader", path], cwd=_cwd(command))


def _cwd(command: Sequence[str]) -> Path | None:
    """Here the grader may lie in a checkout; where a container has its own, that one counts."""
    return ROOT if command[0] == sys.executable else None


def _noted(place: Place) -> str:
    with contextlib.suppress(OSError):
        return (place.path / JOB).read_text().strip()
    return ""
