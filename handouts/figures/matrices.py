"""A product cut by columns and by rows, and the pair of both that Megatron makes of an MLP."""

from __future__ import annotations

from handouts.drawing import DARK, PALE, Canvas

_FILLS = (DARK, "hatch")  # of rank 0's part, and of rank 1's


def draw() -> dict[str, str]:
    """The one figure."""
    canvas = Canvas(350)
    canvas.text(0, 14, "by columns", bold=True)
    x = _matrix(canvas, 0, 30, 46, 56, "X", None)
    x = _sign(canvas, x, "×")
    x = _matrix(canvas, x, 24, 64, 68, "A", "columns")
    x = _sign(canvas, x, "=")
    _matrix(canvas, x, 30, 64, 56, "Y", "columns")
    canvas.text(0, 128, "each rank has columns of Y", size=11)
    canvas.text(330, 14, "by rows", bold=True)
    x = _matrix(canvas, 330, 30, 46, 56, "X", "columns")
    x = _sign(canvas, x, "×")
    x = _matrix(canvas, x, 24, 64, 68, "A", "rows")
    x = _sign(canvas, x, "=")
    x = _matrix(canvas, x, 30, 44, 56, "Y", "0")
    x = _sign(canvas, x, "+")
    _matrix(canvas, x, 30, 44, 56, "Y", "1")
    canvas.text(330, 128, "each rank has a partial sum of all of Y", size=11)

    top = 186.0
    canvas.text(0, top - 16, "the two together: an MLP", bold=True)
    stations: list[tuple[str, str | None, float]] = [
        *(("x", None, 34), ("f", "", 0), ("fc1", "columns", 70), ("gelu", "columns", 44)),
        *(("fc2", "rows", 60), ("g", "", 0), ("y", None, 34)),
    ]
    x = 0.0
    for name, split, width in stations:
        if split == "":
            canvas.box(x, top + 2, 26, 80, "#fff")
            canvas.text(x + 13, top + 46, name, at="middle", size=14, bold=True)
            x += 26
        else:
            x = _matrix(canvas, x, top + 10, width, 64, name, split)
        if name != "y":
            canvas.line(x + 6, top + 42, x + 40, top + 42, arrow=True)
            x += 46
    for line, told in enumerate(
        (
            "f: forward nothing, backward an all-reduce of the gradient of x",
            "g: forward an all-reduce of the partial sums, backward nothing",
            "between f and g nothing is sent, in either direction",
        )
    ):
        canvas.text(0, top + 122 + 17 * line, told, size=12)
    return {"columns_rows": canvas.svg()}


def _matrix(
    canvas: Canvas, x: float, y: float, w: float, h: float, name: str, split: str | None
) -> float:
    """A matrix; where its right side is. split: how, or whose alone it is, or None for whole."""
    if split is None:
        canvas.box(x, y, w, h, PALE)
    elif split == "columns":
        for rank, fill in enumerate(_FILLS):
            canvas.box(x + rank * w / 2, y, w / 2, h, fill)
    elif split == "rows":
        for rank, fill in enumerate(_FILLS):
            canvas.box(x, y + rank * h / 2, w, h / 2, fill)
    else:
        canvas.box(x, y, w, h, _FILLS[int(split)])
    canvas.text(x + w / 2, y + h + 17, name, at="middle", size=11)
    return x + w


def _sign(canvas: Canvas, x: float, sign: str) -> float:
    canvas.text(x + 11, 62, sign, at="middle", size=14)
    return x + 22
