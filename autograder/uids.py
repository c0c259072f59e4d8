"""One unprivileged user for each world, leased under a lock: graders side by side differ."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Nobody's: above what distributions give to people and services, below systemd's dynamic users.
_FIRST, _COUNT = 20000, 1000


class NoUserLeft(RuntimeError):
    """All users of the range are leased: too many worlds at once on this machine."""


@contextlib.contextmanager
def lease() -> Iterator[int]:
    """A user id that no other world on this machine has, for the duration of the block.

    Raises:
        NoUserLeft: there is none.
    """
    directory = Path(tempfile.gettempdir()) / "autograder-users"
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.lstat().st_uid != os.getuid():
        raise NoUserLeft(f"{directory} belongs to another user; remove it, then grade again")
    for uid in range(_FIRST, _FIRST + _COUNT):
        descriptor = os.open(directory / str(uid), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield uid
            return
        finally:
            os.close(descriptor)
    raise NoUserLeft(f"all {_COUNT} users from {_FIRST} on are in use; grade fewer at once")
