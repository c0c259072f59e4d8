"""What a function that runs on a rank may ask for, and the labels it may put into the trace."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from .recording.trace import Recorder


@dataclass
class RankContext:
    """Where the calling function runs.

    Attributes:
        rank, world_size: of the default group.
        device: where this rank's tensors belong.
        groups: the sub-groups that the world declared, by name; None where this rank is not a
            member.
        group_ranks: their global ranks.
        state: kept between the calls of one world; a function may put anything there.
        rendezvous: the file through which the ranks found each other.
    """

    rank: int
    world_size: int
    device: torch.device
    groups: dict[str, dist.ProcessGroup | None] = field(default_factory=dict)
    group_ranks: dict[str, list[int]] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    rendezvous: str = ""


_context: RankContext | None = None
_recorder: Recorder | None = None


def context() -> RankContext:
    """The calling rank's context.

    Raises:
        RuntimeError: this process is not a rank that multirank started.
    """
    if _context is None:
        raise RuntimeError("multirank.context() works inside a function that multirank runs")
    return _context


def enter(context: RankContext, recorder: Recorder) -> None:
    """Makes this process a rank (called once, by `multirank.rank`)."""
    global _context, _recorder
    _context, _recorder = context, recorder


def is_rank() -> bool:
    """Whether this process is a rank that multirank started."""
    return _context is not None


def mark(label: str) -> None:
    """Puts a point called `label` (its first 1,000 characters) into the trace.

    Like `span` and `compute`, it does nothing outside a rank.
    """
    _write("mark", label)


def compute(label: str, seconds: float) -> None:
    """Declares `seconds` of work at this point, for replays of the trace; it does not wait.

    Raises:
        ValueError: `seconds` is negative or not finite.
    """
    if not 0 <= seconds < math.inf:
        raise ValueError(f"compute({label!r}, {seconds}): seconds must be finite and at least 0")
    _write("compute", label, float(seconds))


@contextlib.contextmanager
def span(label: str) -> Iterator[None]:
    """Marks the beginning and the end of a block in the trace."""
    _write("begin", label)
    try:
        yield
    finally:
        _write("end", label)


def _write(kind: str, label: str, *fields: Any) -> None:
    if _recorder is not None:
        _recorder.write(kind, str(label)[:1000], *fields)
