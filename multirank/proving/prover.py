"""Watches a running call for a deadlock or a mismatch, and believes neither at first sight.

A deadlock is a proof over one snapshot of the ledger; it is believed when a second one, a moment
later, shows the same. While ranks are still under way, the moment is longer: they may come to wait,
too, and belong into the story; or what seems to be held up has only not been seen to go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from .ledger import Ledger
from .verdict import Verdict, deadlock, mismatch

TICK = 0.03  # seconds between looks
_PATIENCE = 0.25  # while records pour in, reading them would only slow the ranks down
_PAUSE = 0.3  # seconds that ranks under way are given


class Prover:
    """Judges one call of a world.

    Args:
        ledger: what the world's ranks have recorded.
        clock: seconds.
    """

    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._clock = clock
        self._next = self._last = clock()
        self._recorded = 0
        self._suspects: list[tuple[int, int]] = []
        self._since = 0.0

    def due(self, recorded: int) -> bool:
        """Whether it is time to read what the ranks have recorded, and to look at it.

        Args:
            recorded: how much there is by now, in bytes.
        """
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + TICK
        pouring, self._recorded = recorded != self._recorded, recorded
        if pouring and now - self._last < _PATIENCE:
            return False
        self._last = now
        return True

    def look(self, changed: bool) -> Verdict | None:
        """The verdict, if there is one.

        Args:
            changed: whether any rank has recorded anything since the last look.
        """
        stuck = self._ledger.doomed()
        misfit = self._ledger.mismatch
        if misfit is not None:
            suspects = [(one.rank, one.id) for one in misfit.operations]
        else:
            suspects = [(one.operation.rank, one.operation.id) for one in stuck]
        now = self._clock()
        if suspects != self._suspects:
            self._suspects, self._since = suspects, now
            return None
        withdrawn = any(one.need.withdrawn for one in stuck)
        settled = self._ledger.idle() and not changed and not withdrawn
        if not suspects or now - self._since < (0 if settled else _PAUSE):
            return None
        return deadlock(stuck) if misfit is None else mismatch(misfit)
