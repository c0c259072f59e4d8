"""The other right solutions, a file for each part of the assignment."""

from __future__ import annotations

from autograder.selfcheck.alternatives import accounting, bandwidth, collectives, ddp
from autograder.selfcheck.variant import Alternative

ALTERNATIVES: tuple[Alternative, ...] = (
    *collectives.ALTERNATIVES,
    *bandwidth.ALTERNATIVES,
    *ddp.ALTERNATIVES,
    *accounting.ALTERNATIVES,
)
