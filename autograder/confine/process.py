"""The process itself: it gains no rights by running a program, shows its memory to nobody, and dies
with its leader."""

from __future__ import annotations

import signal
import sys

from . import kernel

NAME = "no new privileges"


def harden() -> None:
    """Applies all three to the calling process. Raises OSError."""
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)


def hide() -> None:
    """Hides the calling process's memory, environment and descriptors from its own user."""
    if sys.platform == "linux":
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)


def probe() -> str:
    """Why this layer does not work here, or "". It changes the process that calls it."""
    try:
        harden()
    except OSError as error:
        return str(error)
    return ""
