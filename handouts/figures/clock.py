"""What a clock sees around an operation, with and without synchronize and barrier."""

from __future__ import annotations

from handouts.drawing import DARK, LIGHT, Canvas

# For each rank: how long its other work takes, and when the operation begins and ends.
_RANKS = ((70.0, 200.0), (150.0, 200.0), (200.0, 200.0))
_TOOK = 90.0


def draw() -> dict[str, str]:
    """Both panels."""
    canvas = Canvas(250)
    _panel(canvas, 4, "the clock is started when a rank arrives", waits=False)
    _panel(canvas, 130, "synchronize, barrier, and only then the clock", waits=True)
    return {"clock": canvas.svg()}


def _panel(canvas: Canvas, top: float, title: str, waits: bool) -> None:
    left, row = 70.0, 30.0
    canvas.text(left, top + 12, title, bold=True)
    for rank, (arrives, begins) in enumerate(_RANKS):
        y = top + 24 + row * rank
        canvas.text(left - 10, y + 12, f"rank {rank}", at="end")
        canvas.box(left, y, arrives, 16, LIGHT)
        if begins > arrives:
            canvas.box(left + arrives, y, begins - arrives, 16, "hatch")
        canvas.box(left + begins, y, _TOOK, 16, DARK)
        start = begins if waits else arrives
        bracket, end = y + 20, left + begins + _TOOK
        canvas.line(left + start, bracket, end, bracket, width=1.6)
        canvas.line(left + start, bracket - 3, left + start, bracket + 3, width=1.6)
        canvas.line(end, bracket - 3, end, bracket + 3, width=1.6)
        canvas.text(end + 10, y + 13, f"{begins + _TOOK - start:.0f} µs", size=11.5)
    words = (
        ("all the same: that is what", "the operation takes")
        if waits
        else ("three ranks, three times:", "mostly the wait for rank 2")
    )
    for line, told in enumerate(words):
        canvas.text(left + 370, top + 50 + 16 * line, told, size=11.5, color="#444")
