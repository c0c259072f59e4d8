"""Times and sizes in words, the steps of an axis, and texts of programs made safe to show."""

from __future__ import annotations

import math

_LONGEST = 60  # characters of a label
_WIDE = "\u2e80"  # about where they begin
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def clean(text: str, most: int = _LONGEST) -> str:
    """A program's text in one line of at most `most` characters, each of which can be shown.

    What is replaced would break XML, move the line, or turn the direction of what follows.
    """
    shown = text[:most]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in shown)
    return shown if len(text) <= most else f"{shown[:-1]}…"


def letters(text: str) -> int:
    """How wide a text is, in letters; what stands from the East Asian scripts on counts twice."""
    return len(text) + sum(character >= _WIDE for character in text)


def duration(seconds: float) -> str:
    """A length of time with three digits: `1.25 ms`."""
    size, unit = _unit(seconds)
    value = seconds / size
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def nbytes_text(nbytes: int) -> str:
    """A number of bytes with three digits: `1.5 MiB`."""
    value, units = float(nbytes), iter(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))
    unit = next(units)
    while value >= 1000:
        value, unit = value / 1024, next(units)
    return f"{value:.0f} {unit}" if value >= 100 or unit == "B" else f"{value:.3g} {unit}"


def ticks(end: float, about: int = 10) -> list[tuple[float, str]]:
    """Round moments from 0 to `end` with their texts; some five to ten of them."""
    if end <= 0:
        return [(0.0, "0")]
    power = 10.0 ** math.floor(math.log10(end / about))
    step = next(m * power for m in (1, 2, 5, 10) if m * power * about >= end * (1 - 1e-9))
    size, unit = _unit(end)
    moments = [n * step for n in range(math.floor(end / step * (1 + 1e-9)) + 1)]
    return [(moment, f"{moment / size:.6g} {unit}" if moment else "0") for moment in moments]


def _unit(seconds: float) -> tuple[float, str]:
    return next((one for one in _UNITS if seconds >= one[0]), _UNITS[-1] if seconds else _UNITS[0])
