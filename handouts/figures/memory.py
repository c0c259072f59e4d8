"""The state of training on each device, with DDP and the stages of ZeRO."""

from __future__ import annotations

from handouts.drawing import DARK, LIGHT, MIDDLE, Canvas
from reference.accounting import Sharding, state_bytes

PARAMETERS, DEVICES = 7e9, 8
_KINDS: tuple[Sharding, ...] = ("ddp", "zero1", "zero2", "zero3")


def draw() -> dict[str, str]:
    """Stacked bars: what each stage takes away shows how much it was."""
    of = {kind: state_bytes(PARAMETERS, kind, DEVICES) / 1e9 for kind in _KINDS}
    share = 1 - 1 / DEVICES
    optimizer = (of["ddp"] - of["zero1"]) / share
    gradients = (of["zero1"] - of["zero2"]) / share
    weights = (of["zero2"] - of["zero3"]) / share
    left, scale, row = 64.0, 4.3, 25.0
    canvas = Canvas(row * len(_KINDS) + 44)
    for place, kind in enumerate(_KINDS):
        y, x = 6 + row * place, left
        canvas.text(left - 8, y + 14, kind, at="end")
        for size, fill, first in (
            (weights, DARK, "zero3"),
            (gradients, MIDDLE, "zero2"),
            (optimizer, LIGHT, "zero1"),
        ):
            sharded = _KINDS.index(kind) >= _KINDS.index(first)
            width = scale * size / (DEVICES if sharded else 1)
            canvas.box(x, y, width, row - 6, fill)
            x += width
        canvas.text(x + 7, y + 14, f"{of[kind]:.4g} GB")
    names = ((DARK, "weights"), (MIDDLE, "gradients"), (LIGHT, "optimizer: master, moments"))
    for place, (fill, told) in enumerate(names):
        x = left + 110 * place
        canvas.box(x, canvas.height - 26, 18, 13, fill)
        canvas.text(x + 24, canvas.height - 15, told)
    return {"zero": canvas.svg()}
