"""One confined world, seen from the grader: its user, its hooks, and that nothing is left of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from autograder import uids
from autograder.confine.counters import NAME as COUNTERS
from autograder.confine.counters import Count, Counters
from autograder.confine.hooks import Plan
from autograder.confine.modes import Confinement, Isolation
from autograder.confine.privacy import rooms
from autograder.confine.watchdog import Watchdog
from autograder.paths import ROOT
from multirank import Source

_HERE = Path(__file__).parent
# What runs in the leader and the ranks, and so is sent there.
_SENT = (
    *("counters", "hooks", "kernel", "landlock", "limits", "namespaces"),
    *("process", "seccomp", "user"),
)


@dataclass
class Boundary:
    """What a world is started with, and what was noticed from outside.

    counters: makes what `moved` asks; None: nothing counts here.
    """

    before_ranks: Source | None = None
    before_user_code: Source | None = None
    watchdog: Watchdog | None = None
    counters: Callable[[], Counters] | None = None
    _counters: Counters | None = None

    @property
    def complaint(self) -> str:
        """What the world was ended for; empty if it was not."""
        return self.watchdog.complaint if self.watchdog else ""

    def moved(self, world_size: int) -> list[Count] | None:
        """What each rank has sent and received so far, as the kernel counts; None: unknown here.

        To be asked once before any code of the submission runs.
        """
        if self._counters is None and self.counters is not None:
            make, self.counters = self.counters, None
            with contextlib.suppress(OSError, StopIteration):
                self._counters = make()
        return None if self._counters is None else self._counters.read(world_size)

    def close(self) -> None:
        if self._counters is not None:
            self._counters.close()


@contextlib.contextmanager
def boundary(
    confinement: Confinement, world_size: int, listening: bool, gpus: bool = False
) -> Iterator[Boundary]:
    """The hooks of one world, which must live within the block.

    listening: its program makes its process groups itself.
    gpus: it runs on them.

    Raises:
        uids.NoUserLeft: no user is free.
        uids.SomethingLeft: at the end, a process could not be ended.
    """
    if confinement.mode is Isolation.NONE:
        yield Boundary()
        return
    full = confinement.mode is Isolation.FULL
    with uids.lease() as uid, Watchdog(uid, world_size, files=not full) as watchdog:
        plan = asdict(
            Plan(
                uid,
                namespaces=full,
                landlock=confinement.landlock,
                listening=listening,
                gpus=gpus,
                hidden=rooms(),
                readable=[str(ROOT / "multirank")],
            )
        )

        def counters() -> Counters:
            return Counters(uid, next(iter(uids.memory_held(uid))) if full else None)

        around = Boundary(
            _hook("leader", {"files": _files(), "plan": plan}),
            _hook("rank", {"plan": plan}),
            watchdog,
            None if gpus or COUNTERS not in confinement.layers else counters,
        )
        with contextlib.closing(around):
            yield around


@cache
def _files() -> dict[str, bytes]:
    return {f"{name}.py": (_HERE / f"{name}.py").read_bytes() for name in _SENT}


def _hook(function: str, arguments: dict[str, object]) -> Source:
    text = (_HERE / "entry.py").read_text()
    return Source(text, function, "<confine>", arguments)
