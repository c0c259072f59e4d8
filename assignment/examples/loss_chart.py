"""Loss curves that should be one and the same, as SVG.

Curves that coincide hide one another, so each is drawn with dashes, at other places than the
others': where they coincide, their colours take turns; one that leaves the others is seen alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

COLORS = (
    *("#222222", "#0b6bcb", "#59b0ff", "#2b8a3e", "#d4541a", "#f2a65a"),
    *("#8e44ad", "#c2185b"),
)
CLOSE = 1e-3  # of the loss: so far apart are right ones, at most
_WIDTH, _HEIGHT = 620.0, 300.0  # of the plot, in pixels
_LEFT, _TOP, _BELOW, _LINE = 60.0, 40.0, 56.0, 20.0
_DASH = 12.0


def difference(losses: Sequence[float], right: Sequence[float]) -> tuple[float, int]:
    """The largest difference, relative to the right loss, and the first step, from 1, of those that
    are more than CLOSE apart (0: there is none)."""
    apart = [
        abs(one - other) / abs(other) if math.isfinite(one) else math.inf
        for one, other in zip(losses, right, strict=True)
    ]
    first = next((step for step, size in enumerate(apart, start=1) if size > CLOSE), 0)
    return max(apart), first


def told(losses: Sequence[float], right: Sequence[float]) -> str:
    """The same in words."""
    size, first = difference(losses, right)
    if not first:
        return f"the same as one process, to within {size:.1g}"
    return f"another loss from step {first} on" + (f", by up to {size:.1%}" if size < 10 else "")


def draw(curves: Mapping[str, Sequence[float]], missing: Sequence[str] = ()) -> str:
    """The curves by name, the first of which is right, and what there is no curve of."""
    names = list(curves)
    right = curves[names[0]]
    rows = len(names) + len(missing)
    width, height = _LEFT + _WIDTH + 40, _TOP + _HEIGHT + _BELOW + _LINE * rows
    highest = 1.1 * max(right)
    step = next(s for s in _steps() if s * 6 >= highest)
    top = step * math.ceil(highest / step)

    def x(number: int) -> float:
        return _LEFT + _WIDTH * number / max(len(right) - 1, 1)

    def y(loss: float) -> float:
        return _TOP + _HEIGHT * (1 - loss / top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="12" '
        'fill="#222">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="22" font-weight="bold">Loss of the whole batch, step by step</text>',
        f'<clipPath id="plot"><rect x="{_LEFT - 4}" y="{_TOP - 4}" width="{_WIDTH + 8}" '
        f'height="{_HEIGHT + 8}"/></clipPath>',
    ]
    for tick in range(round(top / step) + 1):
        at = y(tick * step)
        parts += [
            f'<path d="M{_LEFT} {at:.1f}h{_WIDTH}" stroke="#e4e4e4"/>',
            f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{tick * step:.3g}</text>',
        ]
    every = math.ceil(len(right) / 15)
    for number in range(0, len(right), every):
        parts.append(
            f'<text x="{x(number):.1f}" y="{_TOP + _HEIGHT + 18}" text-anchor="middle">'
            f"{number + 1}</text>"
        )
    gap = _DASH * (len(names) - 1)
    for place, name in enumerate(names):
        finite = [min(max(loss, -top), 3 * top) for loss in curves[name] if math.isfinite(loss)]
        path = "L".join(f"{x(number):.1f} {y(loss):.1f}" for number, loss in enumerate(finite))
        look = f'stroke="{COLORS[place % len(COLORS)]}" stroke-width="4"'
        dashes = f'stroke-dasharray="{_DASH} {gap}" stroke-dashoffset="{-_DASH * place}"'
        if path:
            parts.append(f'<path d="M{path}" fill="none" {look} {dashes} clip-path="url(#plot)"/>')
        row = _TOP + _HEIGHT + _BELOW + _LINE * place
        words = f"{name}: {told(curves[name], right)}" if place else name
        parts += [
            f'<path d="M{_LEFT} {row - 4}h{2 * _DASH}" {look}/>',
            f'<text x="{_LEFT + 34}" y="{row}">{escape(words)}</text>',
        ]
    for place, name in enumerate(missing, start=len(names)):
        row = _TOP + _HEIGHT + _BELOW + _LINE * place
        parts.append(f'<text x="{_LEFT + 34}" y="{row}" fill="#777">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _steps() -> Sequence[float]:
    """Round numbers, from small to large."""
    return [size * 10.0**power for power in range(-9, 10) for size in (1, 2, 5)]
