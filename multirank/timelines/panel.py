"""One run as a picture needs it: bars, arrows between them, and points; in seconds from its start.

Texts in here can be shown: they are short, in one line, and clean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

PART = " · "  # between the parts of a label

Kind = Literal["send", "receive", "collective", "compute", "wait", "span"]


@dataclass(frozen=True, slots=True, eq=False)
class Bar:
    """Something that takes time on one rank.

    Attributes:
        kind: a communication operation under way ("send", "receive", "collective"), what the rank
            itself does meanwhile ("compute", "wait"), or a labelled block ("span").
        start, end: `end` is the panel's where it has none.
        label: what to write on it, in parts (see `PART`), the most important first.
        detail: what else there is to say.
        nbytes: of a communication operation.
        open: it was never seen to end.
    """

    rank: int
    kind: Kind
    start: float
    end: float
    label: str
    detail: str
    nbytes: int = 0
    open: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Arrow:
    """A message, from its send at `start` to its receive at `end`."""

    sent: Bar
    received: Bar
    start: float
    end: float
    detail: str


@dataclass(frozen=True, slots=True)
class Point:
    """A label at a moment of one rank."""

    rank: int
    time: float
    label: str


@dataclass(frozen=True)
class Panel:
    """One run.

    Attributes:
        ranks: how many.
        modelled: whether times are a model's; else they are the clock's.
        end: when the last thing ended; where something never ended, a little later.
        endings: how each rank of a run ended, if the run failed.
        notes: what to know about the whole, a sentence each.
        story: what a failed run says of itself.
    """

    title: str
    ranks: int
    modelled: bool
    end: float
    bars: Sequence[Bar]
    arrows: Sequence[Arrow] = ()
    points: Sequence[Point] = ()
    endings: Mapping[int, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    story: str = ""

    @property
    def operations(self) -> int:
        """How many communication operations it has."""
        return sum(bar.kind in ("send", "receive", "collective") for bar in self.bars)
