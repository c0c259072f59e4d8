"""A plain user, in namespaces that somebody else made: `python -m tests.autograder.attacks.plain
COMMAND...` runs the command as one.

The interpreter may lie where only root may look: then it is put back, alone, at the same place.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from autograder.confine import kernel

PLAIN_USER = 65_001

_BIND, _RECURSIVE = 4096, 16384
_MOST_TASKS = 600  # of the user's, whatever is tried


def open_up(path: Path) -> None:
    """Makes it readable for everybody; nothing else beside it is."""
    closed = [one for one in reversed(path.parents) if not one.stat().st_mode & 0o001]
    if not closed:
        return
    descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY)
    kernel.mount("empty", str(closed[0]), "tmpfs", 0, "size=1m,mode=755")
    path.mkdir(parents=True)
    kernel.mount(f"/proc/self/fd/{descriptor}", str(path), "", _BIND | _RECURSIVE)
    os.close(descriptor)


def main() -> None:
    open_up(Path(sys.base_prefix))
    resource.setrlimit(resource.RLIMIT_NPROC, (_MOST_TASKS, _MOST_TASKS))
    os.setgroups([])
    os.setresgid(PLAIN_USER, PLAIN_USER, PLAIN_USER)
    os.setresuid(PLAIN_USER, PLAIN_USER, PLAIN_USER)
    os.environ["HOME"] = "/nonexistent"
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
