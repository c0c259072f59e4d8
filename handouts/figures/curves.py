"""Curves of time and bandwidth against size: modelled, and measured on this machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from handouts import modelled
from handouts.drawing import RULE, Canvas
from handouts.numbers import binary
from multirank import INFINIBAND, NVLINK
from reference.bandwidth import bus_factor
from reference.bandwidth_report import collect

_MARKS = ("o", "s", "t", "d", "x")
_DASHES = ("", "6 3", "2 2", "8 3 2 3", "4 4")
Points = Sequence[tuple[float, float]]


def draw() -> dict[str, str]:
    """The three figures."""
    return {"algorithms": _algorithms(), "bandwidth": _bandwidth(), "measured": _measured()}


def _algorithms() -> str:
    sizes = [4**k for k in range(5, 14)]
    n, fabric = 8, modelled.GRADED
    lines = {
        name: [
            (
                float(size),
                modelled.seconds(program, n, size, fabric)
                / modelled.seconds(modelled.ring, n, size, fabric),
            )
            for size in sizes
        ]
        for name, program in modelled.ALGORITHMS.items()
    }
    return _chart(lines, [0.1, 0.2, 0.5, 1, 2, 5, 10], lambda tick: f"{tick:g}", "time / ring's")


def _bandwidth() -> str:
    sizes = [4**k for k in range(5, 16)]
    lines = {}
    for fabric in (NVLINK, INFINIBAND):
        for n in (2, 8):
            lines[f"{fabric.name}, {n} ranks"] = [
                (
                    float(size),
                    bus_factor("all_reduce", n)
                    * size
                    / modelled.seconds(modelled.ring, n, size, fabric),
                )
                for size in sizes
            ]
    ticks = [10.0**k for k in range(7, 13)]
    return _chart(lines, ticks, _rate, "bus bandwidth")


def _measured() -> str:
    found = collect(["all_reduce"], [4**k for k in range(5, 13)], [2])
    assert found is not None
    names = {"yours": "the reference's ring", "torch": "gloo"}
    lines = {
        told: [(float(row.asked), row.bandwidth) for row in found[0] if row.library == library]
        for library, told in names.items()
    }
    ticks = [10.0**k for k in range(6, 11)]
    return _chart(lines, ticks, _rate, "bus bandwidth")


def _rate(rate: float) -> str:
    for unit, name in ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s")):
        if rate >= unit:
            return f"{rate / unit:g} {name}"
    return f"{rate / 1e3:g} kB/s"


def _chart(
    lines: Mapping[str, Points], ticks: Sequence[float], told: Callable[[float], str], y_title: str
) -> str:
    """Both axes logarithmic."""
    left, top, w, h = 84.0, 12.0, 330.0, 220.0
    canvas = Canvas(top + h + 48)
    xs = [x for points in lines.values() for x, _ in points]

    def along(value: float, low: float, high: float) -> float:
        return math.log(value / low) / math.log(high / low)

    def x(size: float) -> float:
        return left + w * along(size, min(xs), max(xs))

    def y(value: float) -> float:
        return top + h * (1 - along(value, ticks[0], ticks[-1]))

    for tick in ticks:
        canvas.line(left, y(tick), left + w, y(tick), color=RULE, width=0.4)
        canvas.text(left - 7, y(tick) + 4, told(tick), at="end", size=11)
    for place, size in enumerate(sorted(set(xs))):
        canvas.line(x(size), top, x(size), top + h, color=RULE, width=0.4)
        if place % 2 == 0:
            canvas.text(x(size), top + h + 17, binary(round(size)), at="middle", size=10.5)
    canvas.text(left + w / 2, top + h + 38, f"size S (up: {y_title})", at="middle", size=11.5)
    for place, (name, points) in enumerate(lines.items()):
        canvas.path([(x(a), y(b)) for a, b in points], _DASHES[place % len(_DASHES)])
        for a, b in points:
            canvas.mark(x(a), y(b), _MARKS[place % len(_MARKS)], 3.4)
        at = top + 16 + 22 * place
        canvas.path([(left + w + 14, at), (left + w + 44, at)], _DASHES[place % len(_DASHES)])
        canvas.mark(left + w + 29, at, _MARKS[place % len(_MARKS)], 3.4)
        canvas.text(left + w + 50, at + 4, name, size=11.5)
    return canvas.svg()
