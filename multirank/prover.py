"""Watches a running call for a deadlock or a mismatch, and believes neither at first sight.

A deadlock is a proof over one snapshot of the ledger. Because a rank writes down what it is about
to do before it does it, a snapshot may be a moment old; so the same ranks must be doomed in two
looks with nothing new in between.
"""

from __future__ import annotations

import time

from .ledger import Ledger
from .verdict import Verdict, deadlock, mismatch

TICK = 0.03  # seconds between looks


class Prover:
    """Judges one call of a world.

    Args:
        ledger: what the world's ranks have recorded.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._suspects: list[tuple[int, int]] = []
        self._next_look = time.monotonic() + TICK

    @property
    def due(self) -> bool:
        """Whether it is time for a look."""
        return time.monotonic() >= self._next_look

    def look(self, changed: bool) -> Verdict | None:
        """The verdict, if there is one.

        Args:
            changed: whether any rank has recorded anything, or ended, since the last look.
        """
        self._next_look = time.monotonic() + TICK
        if self._ledger.mismatch is not None:
            return mismatch(self._ledger.mismatch)
        stuck = self._ledger.doomed()
        suspects = [(one.operation.rank, one.operation.id) for one in stuck]
        confirmed = suspects and suspects == self._suspects and not changed
        self._suspects = suspects
        return deadlock(stuck) if confirmed else None
