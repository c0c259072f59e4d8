"""Where things stand on the lanes of a panel, and which are too short to be drawn apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal

from .panel import Arrow, Bar, Kind, Panel, Point

MOST_ROWS, MOST_SPANS = 8, 4  # rows of a lane; what finds no free one is drawn in the last
_OPERATIONS = ("send", "receive", "collective")


@dataclass(slots=True)
class Shape:
    """What is drawn for a bar, or for `count` of them that follow on each other."""

    kind: Kind | Literal["several"]
    start: float
    end: float
    bar: Bar
    brief: bool
    count: int = 1
    nbytes: int = 0


@dataclass(slots=True)
class Lane:
    """One rank, from top to bottom: its points, its spans, what it does itself, its operations."""

    rank: int
    points: list[tuple[Point, int]] = field(default_factory=list)
    spans: list[list[Shape]] = field(default_factory=list)
    own: list[Shape] = field(default_factory=list)
    rows: list[list[Shape]] = field(default_factory=list)


@dataclass(slots=True)
class Layout:
    """All lanes of a panel, and its arrows, each with the rows of its ends and how many it is."""

    lanes: list[Lane]
    arrows: list[tuple[Arrow, int, int, int]]

    @property
    def size(self) -> int:
        """How many things are to be drawn."""
        lanes = (
            len(lane.points) + sum(map(len, [lane.own, *lane.spans, *lane.rows]))
            for lane in self.lanes
        )
        return len(self.arrows) + sum(lanes)


def lay_out(panel: Panel, brief: float, most: int) -> Layout:
    """Lays a panel out so that at most `most` things are drawn.

    brief: seconds; what is shorter and follows closely on another such is drawn together with it.
        Where there is too much, this becomes more; at last, arrows are left out.
    """
    by_rank: dict[int, list[Bar]] = defaultdict(list)
    for bar in sorted(panel.bars, key=attrgetter("start")):
        by_rank[bar.rank].append(bar)
    packed = {rank: _Packed(by_rank[rank]) for rank in range(panel.ranks)}
    while (layout := _lay_out(panel, packed, brief)).size > most and brief < panel.end:
        brief *= 4
    if (excess := layout.size - most) > 0:
        del layout.arrows[max(0, len(layout.arrows) - excess) :]
    return layout


class _Packed:
    """One rank's bars, in rows within which none overlap (but in the last)."""

    def __init__(self, bars: Sequence[Bar]) -> None:
        self.spans = pack((bar for bar in bars if bar.kind == "span"), MOST_SPANS)
        self.own = [bar for bar in bars if bar.kind in ("compute", "wait")]
        self.rows = pack((bar for bar in bars if bar.kind in _OPERATIONS), MOST_ROWS)
        self.row_of = {id(bar): n for n, row in enumerate(self.rows) for bar in row}


def pack(bars: Iterable[Bar], most: int | None = None) -> list[list[Bar]]:
    """Bars, in the order of their starts, each in the first row that is free; `most` rows."""
    rows: list[list[Bar]] = []
    for bar in bars:
        free = next((row for row in rows if row[-1].end <= bar.start), None)
        if free is not None:
            free.append(bar)
        elif most is None or len(rows) < most:
            rows.append([bar])
        else:
            rows[-1].append(bar)
    return rows


def _lay_out(panel: Panel, packed: dict[int, _Packed], brief: float) -> Layout:
    lanes = [
        Lane(
            rank,
            spans=[_together(row, brief) for row in of_rank.spans],
            own=_together(of_rank.own, brief),
            rows=[_together(row, brief) for row in of_rank.rows],
        )
        for rank, of_rank in packed.items()
    ]
    for point in panel.points:
        points = lanes[point.rank].points
        if points and point.time - points[-1][0].time < brief:
            points[-1] = points[-1][0], points[-1][1] + 1
        else:
            points.append((point, 1))
    alike: dict[tuple[int, ...], list[Arrow]] = defaultdict(list)
    for arrow in panel.arrows:
        rows = [packed[bar.rank].row_of[id(bar)] for bar in (arrow.sent, arrow.received)]
        times = [int(moment / brief) for moment in (arrow.start, arrow.end)]
        alike[arrow.sent.rank, arrow.received.rank, *rows, *times].append(arrow)
    arrows = [(some[0], key[2], key[3], len(some)) for key, some in alike.items()]
    return Layout(lanes, arrows)


def _together(row: Sequence[Bar], brief: float) -> list[Shape]:
    """The shapes of one row: bars that overlap, or are brief and close to each other, are one."""
    shapes: list[Shape] = []
    for bar in row:
        is_brief = bar.end - bar.start < brief
        last = shapes[-1] if shapes else None
        if last is not None and (
            bar.start < last.end or (is_brief and last.brief and bar.start - last.end < brief)
        ):
            last.end = max(last.end, bar.end)
            last.count += 1
            last.nbytes += bar.nbytes
            last.brief &= is_brief
            if last.kind != bar.kind:
                last.kind = "several"
            if bar.open:
                last.bar = bar
        else:
            shapes.append(Shape(bar.kind, bar.start, bar.end, bar, is_brief, nbytes=bar.nbytes))
    return shapes
