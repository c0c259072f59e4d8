"""GPipe and 1F1B in unit time, from the reference's schedules."""

from __future__ import annotations

from handouts.drawing import LIGHT, MIDDLE, PALE, Canvas
from reference.pipeline_parallel import gpipe, one_f_one_b
from reference.schedule_view import plan

STAGES, MICROBATCHES = 4, 8


def draw() -> dict[str, str]:
    """Both, one below the other."""
    left, unit, row, height = 56.0, 23.2, 22.0, 150.0
    canvas = Canvas(2 * height - 6)
    for place, (title, schedule) in enumerate((("GPipe", gpipe), ("1F1B", one_f_one_b))):
        top = 8 + height * place
        actions = [schedule(stage, STAGES, MICROBATCHES) for stage in range(STAGES)]
        panel = plan(actions, title)
        canvas.text(
            left, top + 11, f"{title}: {panel.end:.0f} units, {panel.bubble:.1%} idle", bold=True
        )
        canvas.text(left + unit * panel.end + 8, top + 11, "in flight", size=10.5, color="#555")
        for stage in range(STAGES):
            y = top + 20 + row * stage
            canvas.text(left - 6, y + 15, f"stage {stage}", at="end", size=11)
            canvas.box(left, y, unit * panel.end, row, PALE, "#ccc")
            canvas.text(left + unit * panel.end + 30, y + 15, str(panel.peaks[stage]), at="middle")
        for box in panel.boxes:
            fill = LIGHT if box.action.kind == "F" else MIDDLE
            y = top + 20 + row * box.stage
            canvas.cell(left + unit * box.start, y, unit, row, str(box.action.microbatch), fill)
    return {"schedules": canvas.svg()}
