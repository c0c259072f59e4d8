"""Log-log charts side by side, as SVG: no library needed, and any browser shows them.

On both axes every decade is as wide as the next, so that what grows in proportion is a straight
line, and latency at one end can be seen beside bandwidth at the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 330, 260  # of one panel's plot, in pixels
LEFT, TOP, BOTTOM, GAP = 80, 64, 52, 48
COLORS = ("#0b6bcb", "#d4541a", "#2b8a3e", "#8e44ad", "#7a5c00", "#c2185b")

Label = Callable[[float], str]


@dataclass(frozen=True)
class Line:
    """Points that belong together. dashed, color (an index): what tells it from other lines."""

    label: str
    points: Sequence[tuple[float, float]]
    color: int = 0
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """One chart. limit: a height that nothing should exceed, with its label."""

    title: str
    lines: Sequence[Line]
    limit: tuple[float, str] | None = None


@dataclass(frozen=True)
class _Axis:
    """From values to pixels, by their logarithm."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + part * (self.end - self.start)


def draw(
    panels: Sequence[Panel], x_title: str, y_title: str, x_label: Label, y_label: Label
) -> str:
    """The panels, with the same axes, and one legend for all. Values must be above 0.

    x_label, y_label: what stands at a tick, such as "1 MiB". The ticks are powers of 4 and of 10.
    """
    points = [point for panel in panels for line in panel.lines for point in line.points]
    limits = [panel.limit[0] for panel in panels if panel.limit]
    xs, ys = [x for x, _ in points], [y for _, y in points] + limits
    if not points or min(xs + ys) <= 0:
        raise ValueError("there is nothing to draw, or something that is not above 0")
    x_ticks, y_ticks = _ticks(xs, 4), _ticks(ys, 10)
    width = LEFT + len(panels) * (WIDTH + GAP)
    height = TOP + HEIGHT + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11" fill="#222">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        *_legend([line for panel in panels for line in panel.lines]),
        f'<text transform="translate(14 {TOP + HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_title)}</text>",
    ]
    y = _Axis(y_ticks[0], y_ticks[-1], TOP + HEIGHT, TOP)
    for place, panel in enumerate(panels):
        start = LEFT + place * (WIDTH + GAP)
        x = _Axis(x_ticks[0], x_ticks[-1], start, start + WIDTH)
        parts += _grid(x, y, x_ticks, y_ticks, x_label, y_label if place == 0 else None)
        middle = start + WIDTH / 2
        parts += [
            f'<text x="{middle}" y="{TOP - 10}" text-anchor="middle" font-weight="bold">'
            f"{escape(panel.title)}</text>",
            f'<text x="{middle}" y="{height - 12}" text-anchor="middle">{escape(x_title)}</text>',
        ]
        if panel.limit is not None:
            at, label = panel.limit
            parts += [
                f'<path d="M{start} {y(at):.1f}h{WIDTH}" stroke="#888" stroke-dasharray="2 3"/>',
                f'<text x="{start + 4}" y="{y(at) - 4:.1f}" fill="#666">{escape(label)}</text>',
            ]
        for line in panel.lines:
            parts += _line(line, x, y)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _ticks(values: Sequence[float], base: int) -> list[float]:
    """Powers of the base, from the last below all values to the first above them."""
    low = math.floor(math.log(min(values), base) + 1e-9)
    high = math.ceil(math.log(max(values), base) - 1e-9)
    return [float(base) ** k for k in range(low, max(high, low + 1) + 1)]


def _grid(
    x: _Axis,
    y: _Axis,
    x_ticks: Sequence[float],
    y_ticks: Sequence[float],
    x_label: Label,
    y_label: Label | None,
) -> list[str]:
    parts = []
    every = math.ceil(len(x_ticks) / 6)  # labels that do not run into one another
    for place, tick in enumerate(x_ticks):
        parts.append(f'<path d="M{x(tick):.1f} {TOP}v{HEIGHT}" stroke="#e4e4e4"/>')
        if place % every == 0:
            parts.append(
                f'<text x="{x(tick):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">'
                f"{escape(x_label(tick))}</text>"
            )
    for tick in y_ticks:
        parts.append(f'<path d="M{x.start} {y(tick):.1f}h{WIDTH}" stroke="#e4e4e4"/>')
        if y_label is not None:
            parts.append(
                f'<text x="{x.start - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">'
                f"{escape(y_label(tick))}</text>"
            )
    return parts


def _line(line: Line, x: _Axis, y: _Axis) -> list[str]:
    color, places = COLORS[line.color % len(COLORS)], [(x(a), y(b)) for a, b in line.points]
    path = "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
    fill = "#fff" if line.dashed else color
    return [
        f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="1.8"{_dashes(line)}/>',
        *(
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.6" fill="{fill}" stroke="{color}"/>'
            for a, b in places
        ),
    ]


def _legend(lines: Sequence[Line]) -> list[str]:
    parts, at = [], float(LEFT)
    by_label = {line.label: line for line in lines}
    for line in sorted(by_label.values(), key=lambda line: (line.color, line.dashed)):
        color = COLORS[line.color % len(COLORS)]
        parts += [
            f'<path d="M{at} 20h26" stroke="{color}" stroke-width="1.8"{_dashes(line)}/>',
            f'<text x="{at + 32}" y="24">{escape(line.label)}</text>',
        ]
        at += 52 + 6.5 * len(line.label)
    return parts


def _dashes(line: Line) -> str:
    return ' stroke-dasharray="5 4"' if line.dashed else ""
