"""Turns on this machine: what is measured in seconds runs while no other grading does anything.

Gradings side by side would time each other. So every check takes part in a lock that all graders of
one user on a machine share, and what measures has it to itself. Who waits is not charged for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PATIENCE = 180.0  # seconds; then it goes on, and what it measures may be too noisy to count
_PAUSE = 0.01


def _folder() -> Path:
    if os.geteuid() == 0:
        return Path("/run/autograder-turns")
    return Path(tempfile.gettempdir()) / f"autograder-turns-{os.geteuid()}"


class Turns:
    """One grading's side of the lock.

    waited: seconds that it has waited for others so far. measured: seconds that it was alone.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.waited = self.measured = 0.0
        self._folder = folder or _folder()
        self._held: int | None = None

    @contextlib.contextmanager
    def beside_others(self) -> Iterator[None]:
        """Others run, too, while the block does; but nobody who measures."""
        self._held = self._wait_for(fcntl.LOCK_SH)
        try:
            yield
        finally:
            self._let_go()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else runs a check while the block does. It stands within `beside_others`."""
        self._let_go()
        self._held = self._wait_for(fcntl.LOCK_EX)
        started = time.monotonic()
        try:
            yield
        finally:
            self.measured += time.monotonic() - started
            self._let_go()
            self._held = self._wait_for(fcntl.LOCK_SH)

    def _wait_for(self, kind: int) -> int | None:
        """The lock's descriptor; None where there can be no lock, or after much patience.

        Whoever waits holds a gate, through which everybody goes: so nobody new comes in while one
        waits to be alone, and it does not wait for ever.
        """
        started = time.monotonic()
        gate = lock = -1
        try:
            gate, lock = self._open("gate"), self._open("lock")
            if _locked(gate, fcntl.LOCK_EX, started) and _locked(lock, kind, started):
                held, lock = lock, -1
                return held
        except OSError:
            pass  # such as a file system that is read-only: then nobody else has a turn either
        finally:
            for descriptor in (gate, lock):
                if descriptor >= 0:
                    os.close(descriptor)
            self.waited += time.monotonic() - started
        return None

    def _open(self, name: str) -> int:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        status = self._folder.lstat()
        if status.st_uid != os.geteuid() or not stat.S_ISDIR(status.st_mode):
            raise PermissionError(f"{self._folder} belongs to another user")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self._folder / name, flags, 0o600)

    def _let_go(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None


def _locked(descriptor: int, kind: int, started: float) -> bool:
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() - started > PATIENCE:
                return False
            time.sleep(_PAUSE)
