"""The local executor: as many workers as the machine has room for, each a process that stays.

A worker serves one grading after the other, so that imports and the ranks' zygote are paid for
once. One that dies, hangs or reports a fault is replaced by a fresh one.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autograder.batch.executor import Ended
from autograder.batch.needs import Slot
from autograder.batch.store import Place, Status
from autograder.batch.worker import ELSEWHERE, PARENT
from autograder.paths import ROOT
from autograder.report import RESULTS

COMMAND = (sys.executable, "-m", "autograder.batch.grader")
STALLED = 600.0  # seconds without a check that ended: longer than any, and than its turns
_PATIENCE = 15.0  # seconds for a worker to leave things tidy


@dataclass
class _Worker:
    slot: Slot
    process: subprocess.Popen[bytes]
    log: Path
    place: Place | None = None
    since: float = 0.0


class LocalExecutor:
    """Workers on this machine."""

    def __init__(
        self,
        slots: Sequence[Slot],
        logs: Path,
        command: Sequence[str] = COMMAND,
        stalled: float = STALLED,
    ) -> None:
        """logs: a folder for what workers print, which nobody should. command: starts a worker."""
        self._free = deque(slots)
        self._logs = logs
        self._command = command
        self._stalled = stalled
        self._queue: deque[Place] = deque()
        self._workers: list[_Worker] = []
        self._answers = selectors.DefaultSelector()

    def submit(self, places: Sequence[Place]) -> None:
        self._queue.extend(places)

    def running(self) -> list[Place]:
        return [worker.place for worker in self._workers if worker.place is not None]

    def wait(self, seconds: float) -> list[Ended]:
        self._give_out()
        ended = []
        for key, _ in self._answers.select(seconds):
            ended += self._heard(key.data)
        ended += [self._gone(w, why) for w in list(self._workers) if (why := self._hangs(w))]
        self._give_out()
        return ended

    def close(self) -> None:
        self._queue.clear()
        for worker in self._workers:
            with contextlib.suppress(ProcessLookupError):
                worker.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + _PATIENCE
        for worker in list(self._workers):
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            self._end(worker)
        self._answers.close()

    def _give_out(self) -> None:
        """The next gradings to workers with nothing to do, and to new ones while there is room."""
        idle = [worker for worker in self._workers if worker.place is None]
        while self._queue and (idle or self._free):
            worker = idle.pop() if idle else self._start(self._free.popleft())
            worker.place, worker.since = self._queue.popleft(), time.time()
            assert worker.process.stdin is not None
            with contextlib.suppress(OSError):  # it has died; its answers say so
                worker.process.stdin.write(json.dumps(str(worker.place.path)).encode() + b"\n")
                worker.process.stdin.flush()

    def _start(self, slot: Slot) -> _Worker:
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._logs / f"worker-{os.getpid()}-{slot.number}.txt"
        environment = os.environ | {PARENT: str(os.getpid())}
        environment.pop("MULTIRANK_ZYGOTE", None)  # a worker has one of its own
        if slot.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(slot.gpus)
        with log.open("ab") as file:
            process = subprocess.Popen(
                list(self._command),
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,  # Ctrl-C is for the batch, which then tells its workers
            )
        worker = _Worker(slot, process, log)
        self._workers.append(worker)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._answers.register(process.stdout, selectors.EVENT_READ, worker)
        return worker

    def _heard(self, worker: _Worker) -> list[Ended]:
        """A worker's answer; or that it has died."""
        assert worker.process.stdout is not None
        line = worker.process.stdout.readline()
        if not line:
            code = worker.process.wait()
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            if worker.place is not None:
                return [self._gone(worker, f"the worker has died ({how})")]
            self._end(worker)
            return []
        place, worker.place = worker.place, None
        assert place is not None
        status = json.loads(line)[1]
        if status == Status.FAULT:
            self._end(worker)
        return [Ended(place, elsewhere=status == ELSEWHERE)]

    def _hangs(self, worker: _Worker) -> str:
        if worker.place is None:
            return ""
        latest = worker.since
        with contextlib.suppress(OSError):
            latest = max(latest, (worker.place.path / RESULTS).stat().st_mtime)
        quiet = time.time() - latest
        return f"no check has ended for {quiet:.0f} s" if quiet > self._stalled else ""

    def _gone(self, worker: _Worker, why: str) -> Ended:
        self._end(worker)
        assert worker.place is not None
        printed = worker.log.read_text(errors="replace")[-2000:] if worker.log.exists() else ""
        return Ended(worker.place, died=f"{why}\n{printed}".strip())

    def _end(self, worker: _Worker) -> None:
        """Its ranks end with it: their leaders notice."""
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        worker.process.kill()
        worker.process.wait()
        assert worker.process.stdin is not None
        assert worker.process.stdout is not None
        self._answers.unregister(worker.process.stdout)
        with contextlib.suppress(OSError):
            worker.process.stdin.close()
        worker.process.stdout.close()
        self._free.append(worker.slot)
