"""Which processes still run, as /proc tells it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path


def state(pid: int) -> str:
    """Of a process, as a letter (proc(5)): "T" is stopped.

    Raises OSError where there is none.
    """
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()


def is_running(pid: int) -> bool:
    """Whether the process exists and has not ended (a dead one that nobody has reaped has)."""
    try:
        return state(pid) not in ("Z", "X")
    except OSError:
        return False


def still_running(pids: Iterable[int], within: float = 0.0) -> list[int]:
    """Those of `pids` that run even after `within` seconds."""
    pids = list(pids)
    wait_until(lambda: not any(is_running(pid) for pid in pids), within)
    return [pid for pid in pids if is_running(pid)]


def wait_until(condition: Callable[[], bool], within: float) -> bool:
    """Whether the condition came true within so many seconds."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
