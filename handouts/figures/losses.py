"""The losses of one MLP, trained in four ways with the reference: they must be the same.

With what `train_mlp` does by itself, so that students can compare.
"""

from __future__ import annotations

import math

from handouts.drawing import RULE, Canvas
from reference.examples.mlp_modes import MODES, Settings
from reference.examples.train_mlp import train

STEPS = 10
_SETTINGS = Settings()
_TICK = 0.25
_SHOWN = {
    "one process": ("none", "one process", "."),
    "data parallel, overlapped": ("ddp", "ddp, overlapped", "o"),
    "tensor parallel, columns and rows": ("tensor", "tensor, columns and rows", "s"),
    "pipeline parallel, 1F1B": ("pipeline", "pipeline, 1F1B", "d"),
}


def draw() -> dict[str, str]:
    """One line, and a sign for each way: larger and larger, so that they surround one another."""
    curves = {}
    for name, (kind, variant, _) in _SHOWN.items():
        assert variant in MODES[kind]
        curves[name], _ = train(kind, variant, _SETTINGS, STEPS)
    left, top, w, h = 50.0, 10.0, 320.0, 105.0
    canvas = Canvas(top + h + 46)
    ticks = math.ceil(max(max(losses) for losses in curves.values()) / _TICK)
    highest = _TICK * ticks

    def point(step: int, loss: float) -> tuple[float, float]:
        return left + w * step / (STEPS - 1), top + h * (1 - loss / highest)

    for tick in range(ticks + 1):
        _, y = point(0, _TICK * tick)
        canvas.line(left, y, left + w, y, color=RULE, width=0.4)
        canvas.text(left - 14, y + 4, f"{_TICK * tick:.2f}", at="end", size=11)
    for step in range(STEPS):
        canvas.text(point(step, 0)[0], top + h + 18, str(step + 1), at="middle", size=11)
    canvas.text(left + w / 2, top + h + 38, "step (up: loss of the whole batch)", at="middle")
    for place, (name, (_, _, sign)) in reversed(list(enumerate(_SHOWN.items()))):
        size = 2.2 + 2.2 * place
        for step, loss in enumerate(curves[name]):
            canvas.mark(*point(step, loss), sign, size)
        y = top + 16 + 24 * place
        canvas.mark(left + w + 30, y, sign, size)
        canvas.text(left + w + 46, y + 4, name, size=11.5)
    canvas.path([point(step, loss) for step, loss in enumerate(curves["one process"])], width=0.9)
    return {"losses": canvas.svg()}
