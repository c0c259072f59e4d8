"""The order in which a world is confined: its leader first, then each rank.

Runs in the leader and the ranks, to which this package is sent as source; `Plan` says what to do.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import counters, landlock, limits, namespaces, process, seccomp, user


@dataclass(frozen=True)
class Plan:
    """How one world is confined.

    Attributes:
        uid: the user that its ranks become.
        namespaces, landlock: whether these layers are on; all others always are.
        listening: whether the program will make its process groups itself.
        gpus: whether it runs on them. NCCL connects when it first sends, and CUDA reserves far more
            addresses than it uses, so neither is refused then.
        hidden: directories that nobody in the world may see into.
        readable: directories that it must be able to read, besides the system's and Python's.
    """

    uid: int
    namespaces: bool
    landlock: bool
    listening: bool
    gpus: bool
    hidden: Sequence[str]
    readable: Sequence[str]


def confine_leader(plan: Plan) -> None:
    """Before the ranks exist: what they inherit."""
    if plan.namespaces:
        namespaces.enter(plan.hidden)
    limits.go_first()
    if plan.landlock:
        landlock.restrict(plan.readable, plan.gpus)


def confine_rank(context: Any, plan: Plan) -> None:
    """When the process groups exist, and before a byte of the submission is parsed."""
    home = tempfile.mkdtemp(prefix="autograder-home-")  # removed with all that is the user's
    os.chown(context.rendezvous, plan.uid, plan.uid)  # which torch opens once more at the end
    counters.mark(plan.uid, context.rank)
    limits.lower(context.world_size, plan.gpus)
    user.drop(plan.uid, home)
    process.harden()
    seccomp.install(plan.listening, plan.gpus)
