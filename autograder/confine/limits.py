"""Resource limits: what one process may use, so that a bomb of any kind ends in an exception.

Each is below what hurts the machine and far above what a right solution needs. Memory that several
processes hold together is the watchdog's affair.
"""

from __future__ import annotations

import resource
from pathlib import Path

NAME = "resource limits"
FILE_BYTES = 64 << 20
DESCRIPTORS = 512
ADDRESS_SPACE = 12 << 30  # beyond what the rank has mapped already; threads reserve 0.2 GiB each
TASKS, TASKS_PER_RANK = 64, 64  # processes and threads of the user; a rank has about ten


def lower(world_size: int, gpus: bool = False) -> None:
    """Lowers the limits of the calling process for good.

    gpus: it uses GPUs, whose memory takes addresses, and pages that stay in memory.
    """
    limits = {
        resource.RLIMIT_NPROC: TASKS + TASKS_PER_RANK * world_size,
        resource.RLIMIT_FSIZE: FILE_BYTES,
        resource.RLIMIT_NOFILE: DESCRIPTORS,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if not gpus:
        limits |= {
            resource.RLIMIT_AS: _mapped() + ADDRESS_SPACE,
            resource.RLIMIT_MEMLOCK: 1 << 20,
        }
    for which, wanted in limits.items():
        _, most = resource.getrlimit(which)
        limit = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(which, (limit, limit))


def go_first() -> None:
    """Has the kernel end this process, and what it starts, before others for want of memory."""
    Path("/proc/self/oom_score_adj").write_text("1000")


def probe() -> str:
    """Why this layer does not work here, or "". It changes the process that calls it."""
    try:
        go_first()
        lower(1)
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def _mapped() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()
