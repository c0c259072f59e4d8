"""Curves of time and bandwidth against size: modelled, and measured."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from handouts import modelled
from handouts.drawing import RULE, Canvas
from handouts.figures import MEASURED
from handouts.numbers import binary
from multirank import INFINIBAND, NVLINK
from reference.bandwidth import bus_factor
from reference.bandwidth_report import collect

_LOOKS = (("", "o"), ("6 3", "s"), ("2 2", "t"), ("8 3 2 3", "d"), ("4 4", "x"))
_FILE = "bandwidth.json"
Points = Sequence[tuple[float, float]]


def draw() -> dict[str, str]:
    """Both figures."""
    return {"algorithms": _algorithms(), "bandwidth": _bandwidth()}


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
    canvas = Canvas(210)
    ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10]
    _panel(canvas, (44, 10, 320, 150), lines, ticks, lambda tick: f"{tick:g}", "time / ring's")
    _legend(canvas, lines, 400, 24)
    return canvas.svg()


def _bandwidth() -> str:
    sizes = [4**k for k in range(5, 16)]
    lines = {
        f"{fabric.name}, {n} ranks": [
            (
                float(size),
                bus_factor("all_reduce", n)
                * size
                / modelled.seconds(modelled.ring, n, size, fabric),
            )
            for size in sizes
        ]
        for fabric in (NVLINK, INFINIBAND)
        for n in (2, 8)
    }
    canvas = Canvas(296)
    ticks = [10.0**k for k in range(7, 13)]
    _panel(canvas, (72, 10, 240, 170), lines, ticks, _rate, "bus bandwidth")
    _legend(canvas, lines, 72, 236, 17)
    measured = json.loads((MEASURED / _FILE).read_text(encoding="utf-8"))
    ticks = [10.0**k for k in range(6, 11)]
    _panel(canvas, (390, 10, 230, 170), measured, ticks, _rate, "bus bandwidth")
    _legend(canvas, measured, 390, 236, 17)
    return canvas.svg()


def measure() -> dict[str, str]:
    """The curves of real time: a size and a bandwidth for each point, in bytes (per second)."""
    found = collect(["all_reduce"], [4**k for k in range(5, 13)], [2])
    assert found is not None
    names = {"yours": "the reference's ring, 2 ranks", "torch": "gloo, 2 ranks"}
    curves = {
        told: [(row.asked, round(row.bandwidth)) for row in found[0] if row.library == library]
        for library, told in names.items()
    }
    return {_FILE: json.dumps(curves, indent=1) + "\n"}


def _rate(rate: float) -> str:
    for unit, name in ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s")):
        if rate >= unit:
            return f"{rate / unit:g} {name}"
    return f"{rate / 1e3:g} kB/s"


def _panel(
    canvas: Canvas,
    place: tuple[float, float, float, float],
    lines: Mapping[str, Points],
    ticks: Sequence[float],
    told: Callable[[float], str],
    y_title: str,
) -> None:
    """A chart with both axes logarithmic. place: left, top, width and height of its plot."""
    left, top, w, h = place
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
    every = 2 if w > 250 else 3
    for number, size in enumerate(sorted(set(xs))):
        canvas.line(x(size), top, x(size), top + h, color=RULE, width=0.4)
        if number % every == 0:
            canvas.text(x(size), top + h + 16, binary(round(size)), at="middle", size=10.5)
    canvas.text(left + w / 2, top + h + 35, f"size S (up: {y_title})", at="middle", size=11.5)
    for (dashes, sign), points in zip(_LOOKS, lines.values(), strict=False):
        canvas.path([(x(a), y(b)) for a, b in points], dashes)
        for a, b in points:
            canvas.mark(x(a), y(b), sign, 3.2)


def _legend(
    canvas: Canvas, names: Iterable[str], left: float, top: float, step: float = 21
) -> None:
    """Which line is which."""
    for number, (name, (dashes, sign)) in enumerate(zip(names, _LOOKS, strict=False)):
        at = top + step * number
        canvas.path([(left, at), (left + 30, at)], dashes)
        canvas.mark(left + 15, at, sign, 3.2)
        canvas.text(left + 37, at + 4, name, size=11.5)
