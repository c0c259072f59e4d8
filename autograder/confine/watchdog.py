"""The watchdog: ends a world that holds too much memory, or has written too many files.

It works where there are no control groups to be had, such as in most containers: it adds up what
the processes of the world's user hold, ten times a second; and every second its files, unless they
lie in file systems of the world's own, which are small.
"""

from __future__ import annotations

import itertools
import threading
from types import TracebackType

from autograder import uids
from autograder.machine import free_memory

NAME = "memory watchdog"
MOST = 6 << 30  # bytes that the ranks of one world may hold, all together ...
SHARED = 256 << 20  # ... besides what each shares with the process that it was forked from
MOST_DISK, MOST_FILES = 1 << 30, 20_000  # bytes and files in public directories
_PERIOD, _FILES_EVERY = 0.1, 10  # seconds; periods
_PART = 0.7  # of the memory that is free


class Watchdog:
    """Watches the processes of a user, and its files if `files` is true; a context manager.

    Attributes:
        complaint: what it has ended the world for; empty if it has not.
    """

    def __init__(self, uid: int, world_size: int, files: bool) -> None:
        self.complaint = ""
        self._uid, self._files = uid, files
        self._most = min(MOST, int(_PART * free_memory())) + world_size * SHARED
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=NAME, daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        for turn in itertools.count(1):
            if self._over.wait(_PERIOD):
                return
            reason = self._too_much_memory()
            if self._files and turn % _FILES_EVERY == 0:
                reason = reason or self._too_many_files()
            if reason:
                self.complaint = f"your program was ended: its ranks {reason}"
                uids.end_processes(self._uid)

    def _too_much_memory(self) -> str:
        if sum(uids.memory_held(self._uid).values()) <= self._most:
            return ""
        return f"used more than {self._most / 2**30:.1f} GiB of memory together"

    def _too_many_files(self) -> str:
        count, size = uids.files_held(self._uid)
        if count <= MOST_FILES and size <= MOST_DISK:
            return ""
        return f"wrote more than {MOST_DISK >> 20} MiB, or {MOST_FILES:,} files"


def probe() -> str:
    """Why this layer does not work here, or ""."""
    try:
        uids.memory_held(0)
        free_memory()
    except (OSError, ValueError) as error:
        return str(error)
    return ""
