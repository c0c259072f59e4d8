"""Panels in the Trace Event format, which ui.perfetto.dev and chrome://tracing open.

A process for each rank, a thread for each of its rows: slices of one thread must not overlap. Times
are microseconds, exact to a nanosecond. A message is a flow from its send to its receive.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from .layout import pack
from .panel import Arrow, Bar, Panel

_THREADS = (
    ("blocks", ("span",)),
    ("itself", ("compute", "wait")),
    ("operations", ("send", "receive", "collective")),
)


def trace_events(panels: Sequence[Panel]) -> str:
    """All panels, as JSON; with several, a rank's process has its panel's title in its name."""
    events: list[dict[str, Any]] = []
    flows = iter(range(1, 1 << 62))
    for place, panel in enumerate(panels):
        title = f"{panel.title}: " if len(panels) > 1 else ""
        events += _panel(panel, 1 + sum(one.ranks for one in panels[:place]), title, flows)
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": events}, allow_nan=False)


def _panel(panel: Panel, first: int, title: str, flows: Iterator[int]) -> Iterator[dict[str, Any]]:
    by_rank: list[list[Bar]] = [[] for _ in range(panel.ranks)]
    for bar in sorted(panel.bars, key=attrgetter("start")):
        by_rank[bar.rank].append(bar)
    threads: dict[int, int] = {}
    for rank, bars in enumerate(by_rank):
        yield _name("process_name", first + rank, 0, f"{title}rank {rank}")
        thread = 1
        for told, kinds in _THREADS:
            for row in pack(bar for bar in bars if bar.kind in kinds):
                yield _name("thread_name", first + rank, thread, told)
                threads.update((id(bar), thread) for bar in row)
                yield from (_slice(bar, first + rank, thread) for bar in row)
                thread += 1
    for point in panel.points:
        at = {"pid": first + point.rank, "tid": 1, "ts": _ns(point.time) / 1000}
        yield {"ph": "i", "s": "p", "name": point.label, **at}
    for arrow in panel.arrows:
        yield from _flow(arrow, first, threads, next(flows))


def _name(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _slice(bar: Bar, pid: int, tid: int) -> dict[str, Any]:
    start, end = _extent(bar)
    return {
        "ph": "X",
        "name": bar.label,
        "cat": bar.kind,
        "pid": pid,
        "tid": tid,
        "ts": start / 1000,
        "dur": (end - start) / 1000,
        "args": {"detail": bar.detail, "bytes": bar.nbytes, "never ended": bar.open},
    }


def _flow(
    arrow: Arrow, first: int, threads: dict[int, int], number: int
) -> Iterable[dict[str, Any]]:
    """Its ends must lie within their slices, and in this order."""
    for phase, bar, moment in (("s", arrow.sent, arrow.start), ("f", arrow.received, arrow.end)):
        start, end = _extent(bar)
        yield {
            "ph": phase,
            **({"bp": "e"} if phase == "f" else {}),
            "id": number,
            "name": "message",
            "cat": "message",
            "pid": first + bar.rank,
            "tid": threads[id(bar)],
            "ts": max(start, min(_ns(moment), end - 1)) / 1000,
        }


def _extent(bar: Bar) -> tuple[int, int]:
    return _ns(bar.start), max(_ns(bar.end), _ns(bar.start) + 1)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
