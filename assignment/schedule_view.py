"""Your pipeline schedules as pictures: in the terminal, and as SVG.

    python -m assignment.schedule_view gpipe
    python -m assignment.schedule_view 1f1b --stages 4 --microbatches 8
    python -m assignment.schedule_view 1f1b --run        # and beside it, what a real run did

What is planned is drawn in unit time: every forward (F) and backward (B) pass takes 1, messages
take nothing. What is measured is a run of your ``run_schedule``, on a process for each stage whose
passes only sleep: so they do not get in one another's way, however few cores there are, and what
is longer than planned is waiting.

All of it is given; what it uses of `pipeline_parallel.py` is yours.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import multirank
from multirank import Fabric, Mark, Operation, Run, Trace

from .examples.ranks import call
from .pipeline_parallel import (
    Action,
    PipelineStage,
    Schedule,
    bubble_fraction,
    gpipe,
    needs,
    one_f_one_b,
    peak_in_flight,
    run_schedule,
)

SCHEDULES = {"gpipe": gpipe, "1f1b": one_f_one_b}
TITLES = {"gpipe": "GPipe", "1f1b": "1F1B"}
PASS_SECONDS = 0.04  # that a pass of a real run sleeps
MOST_RANKS, MOST_ACTIONS = 16, 5000  # that are run, and drawn
SAMPLES, FEATURES = 2, 8  # of a micro-batch in a real run


@dataclass(frozen=True)
class Box:
    """An action of a stage, and when it ran, in units: what a pass takes."""

    stage: int
    action: Action
    start: float
    end: float


@dataclass(frozen=True)
class Panel:
    """A schedule to draw. peaks: of each stage the most micro-batches in flight, where known."""

    title: str
    boxes: Sequence[Box]
    peaks: Sequence[int] = ()

    @property
    def stages(self) -> int:
        """p."""
        return 1 + max(box.stage for box in self.boxes)

    @property
    def end(self) -> float:
        """When the last action is over."""
        return max(box.end for box in self.boxes)

    @property
    def bubble(self) -> float:
        """The idle part of it."""
        busy = sum(box.end - box.start for box in self.boxes)
        return 1 - busy / (self.stages * self.end)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m assignment.schedule_view",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("schedule", choices=list(SCHEDULES))
    parser.add_argument("--stages", type=int, default=4, metavar="P")
    parser.add_argument("--microbatches", type=int, default=8, metavar="M")
    parser.add_argument("--run", action="store_true", help="run it, too, and draw what happened")
    parser.add_argument("--out", type=Path, default=Path("schedule.svg"), help="the picture")
    asked = parser.parse_args(arguments)
    if min(asked.stages, asked.microbatches) < 1:
        parser.error("there must be at least one stage and one micro-batch")
    if 2 * asked.stages * asked.microbatches > MOST_ACTIONS:
        parser.error(f"that would be more than {MOST_ACTIONS:,} passes, too many to see anything")
    if asked.run and asked.stages > MOST_RANKS:
        parser.error(f"--run starts a process for each stage: at most {MOST_RANKS}")
    try:
        show(asked.schedule, asked.stages, asked.microbatches, asked.run, asked.out)
    except NotImplementedError as error:
        sys.exit(f"{error}. It is needed for this.")
    except multirank.RanksFailed as failed:
        sys.exit(str(failed))


def show(name: str, p: int, m: int, run: bool, out: Path) -> None:
    """Prints and draws a schedule."""
    schedule = [SCHEDULES[name](stage, p, m) for stage in range(p)]
    title = f"{TITLES[name]}, {_count(p, 'stage')}, {_count(m, 'micro-batch', 'es')}"
    print(f"{title}\n")
    try:
        panels = [plan(schedule, title)]
    except ValueError as error:
        print("\n".join(_as_lists(schedule)))
        sys.exit(f"\nThis cannot be run: {error}.")
    print("\n".join(text(panels[0], shutil.get_terminal_size((100, 24)).columns)))
    print("\n" + "\n".join(facts(schedule)))
    if run:
        done = run_for_real(schedule)
        panels.append(measured(done.trace))
        page = out.with_suffix(".html")
        multirank.timeline(done, titles=[f"{title}, a real run"]).save(page)
        print(
            f"\nA real run took {panels[1].end:.1f} passes of {PASS_SECONDS * 1e3:.0f} ms where "
            f"{panels[0].end:.0f} are planned, and idled {panels[1].bubble:.1%} of the time.\n"
            f"What was sent when: {page}"
        )
    out.write_text(draw(panels), encoding="utf-8")
    print(f"\nThe picture: {out}")


# --- What is planned -----------------------------------------------------------------------------


def plan(schedule: Schedule, title: str) -> Panel:
    """A schedule in unit time: its passes, and the messages between them, replayed by multirank.

    Raises:
        ValueError: it is not valid.
    """
    peaks = _or_else(lambda: peak_in_flight(schedule), [])
    for_free = Fabric("messages that take no time", latency=0.0, bandwidth=1e18)
    replay = multirank.replay(as_trace(schedule), for_free, world_size=len(schedule))
    boxes = [
        Box(one.rank, _action(one.label), one.start, one.end)
        for one in replay.activities
        if one.name == "compute"
    ]
    return Panel(f"{title}, as planned", boxes, peaks)


def as_trace(schedule: Schedule) -> Trace:
    """What a run of the schedule would record, as far as a replay looks at it."""
    p = len(schedule)
    everybody = tuple(range(p))
    trace = Trace()

    def message(name: str, stage: int, peer: int, place: float) -> None:
        number = len(trace.operations)
        waited = place + 0.1 if name == "recv" else None
        trace.operations.append(
            Operation(
                *(stage, number, name, everybody, peer, 0, None, None, (), 0, place, "", 0, waited)
            )
        )

    for stage, actions in enumerate(schedule):
        for place, action in enumerate(actions):
            for other, _ in needs(stage, action, p):
                if other != stage:
                    message("recv", stage, other, place)
            trace.marks.append(Mark(stage, "compute", str(action), place + 0.2, 1.0))
            after = stage + 1 if action.kind == "F" else stage - 1
            if 0 <= after < p:
                message("send", stage, after, place + 0.3)
    return trace


def facts(schedule: Schedule) -> list[str]:
    """Lines on bubble and memory, from the functions that count them."""
    p, m = len(schedule), len(schedule[0]) // 2
    peaks = _or_else(
        lambda: f"at most {', '.join(map(str, peak_in_flight(schedule)))} on the stages",
        "peak_in_flight is not written yet",
    )
    bubble = _or_else(
        lambda: f"{bubble_fraction(schedule):.1%} of the time",
        "bubble_fraction is not written yet",
    )
    rule = (p - 1) / (m + p - 1)
    return [
        f"bubble:     {bubble}   ((p-1)/(m+p-1) is {rule:.1%})",
        f"in flight:  {peaks}",
    ]


def text(panel: Panel, columns: int) -> list[str]:
    """The schedule as a table: a line for each stage, a column for each unit of time."""
    width = 1 + max(len(str(box.action)) for box in panel.boxes)
    length = round(panel.end)
    margin = len(f"stage {panel.stages - 1}  ")
    if margin + width * length > columns:
        return [f"(This terminal is too narrow for its {length} units of time; see the picture.)"]
    rows = [["."] * length for _ in range(panel.stages)]
    for box in panel.boxes:
        rows[box.stage][round(box.start)] = str(box.action)
    times = [str(tick) if tick % 5 == 0 else "" for tick in range(length)]
    names = ["time", *(f"stage {stage}" for stage in range(panel.stages))]
    return [
        f"{name:<{margin}}" + "".join(f"{cell:<{width}}" for cell in row).rstrip()
        for name, row in zip(names, [times, *rows], strict=True)
    ]


def _as_lists(schedule: Schedule) -> list[str]:
    return [
        f"stage {stage}  {' '.join(map(str, actions)) or 'nothing'}"
        for stage, actions in enumerate(schedule)
    ]


def _action(label: str) -> Action:
    return Action("F" if label[0] == "F" else "B", int(label[1:]))


def _or_else(function: Callable[[], Any], otherwise: Any) -> Any:
    """What the function gives, or something else as long as it is not written."""
    try:
        return function()
    except NotImplementedError:
        return otherwise


def _count(number: int, name: str, plural: str = "s") -> str:
    return f"{number} {name}{plural if number != 1 else ''}"


# --- What is measured ----------------------------------------------------------------------------


class TracedStage(PipelineStage):
    """A stage whose passes can be seen in the trace, with names such as "F0"."""

    def forward(self, microbatch: int, input: Tensor) -> Tensor:
        """As PipelineStage.forward."""
        with multirank.span(f"F{microbatch}"):
            return super().forward(microbatch, input)

    def backward(self, microbatch: int, output_grad: Tensor) -> Tensor | None:
        """As PipelineStage.backward."""
        with multirank.span(f"B{microbatch}"):
            return super().backward(microbatch, output_grad)


class Sleep(torch.autograd.Function):
    """The identity, which takes its time, in both directions."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """x."""
        time.sleep(PASS_SECONDS)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """The gradient."""
        time.sleep(PASS_SECONDS)
        return grad


class SleepingLayer(nn.Module):
    """A layer that takes as long as `Sleep`, and no processor."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(FEATURES))

    def forward(self, x: Tensor) -> Tensor:
        """x times a parameter."""
        output: Tensor = Sleep.apply(x * self.scale)  # type: ignore[no-untyped-call]
        return output


def run_for_real(schedule: Schedule) -> Run:
    """Runs the schedule once, on a process for each stage."""
    with multirank.World(len(schedule)) as world:
        return call(world, run_on_rank, schedule)


def run_on_rank(schedule: Schedule) -> None:
    """What each rank does."""
    p, m = len(schedule), len(schedule[0]) // 2
    stage = TracedStage(SleepingLayer(), multirank.context().rank, p, input_shape=(FEATURES,))
    batch = [torch.ones(SAMPLES, FEATURES) for _ in range(m)]
    run_schedule(stage, schedule, [SAMPLES] * m, batch, batch, nn.functional.mse_loss)


def measured(trace: Trace) -> Panel:
    """The passes of a run of `TracedStage`s, in units of a pass, from the first one on."""
    begun: dict[tuple[int, str], float] = {}
    found: list[tuple[Mark, float]] = []
    for mark in trace.marks:
        if mark.kind == "begin":
            begun[mark.rank, mark.label] = mark.time
        elif mark.kind == "end":
            found.append((mark, begun[mark.rank, mark.label]))
    zero = min(start for _, start in found)
    boxes = [
        Box(
            mark.rank,
            _action(mark.label),
            (start - zero) / PASS_SECONDS,
            (mark.time - zero) / PASS_SECONDS,
        )
        for mark, start in found
    ]
    return Panel(f"A real run, in units of {PASS_SECONDS * 1e3:.0f} ms", boxes)


# --- The picture ---------------------------------------------------------------------------------

_COLORS = {"F": "#bcd9f7", "B": "#c9e7b5"}
_WIDEST, _UNIT, _ROW = 1100.0, 30.0, 26.0  # pixels: all of the time, one unit, one stage
_LEFT, _TOP, _BELOW = 70.0, 44.0, 30.0  # around a panel's plot


def draw(panels: Sequence[Panel]) -> str:
    """An SVG: panels one below the other, all with the same length for a unit of time."""
    longest = max(panel.end for panel in panels)
    unit = min(_UNIT, _WIDEST / longest)
    width = _LEFT + unit * longest + 100
    tops = [0.0]
    for panel in panels:
        tops.append(tops[-1] + _TOP + _ROW * panel.stages + _BELOW)
    height = tops[-1] + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="12" '
        'fill="#222">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>',
    ]
    for panel, top in zip(panels, tops, strict=False):
        parts += _panel(panel, top, unit)
    for place, (kind, told) in enumerate((("F", "forward"), ("B", "backward"))):
        x = _LEFT + 90 * place
        parts += [
            f'<rect x="{x}" y="{height - 26}" width="16" height="14" fill="{_COLORS[kind]}" '
            'stroke="#555"/>',
            f'<text x="{x + 22}" y="{height - 15}">{told}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(panel: Panel, top: float, unit: float) -> list[str]:
    y = top + _TOP
    bottom = y + _ROW * panel.stages
    title = f"{panel.title}: {panel.end:.3g} units of time, {panel.bubble:.1%} of it idle"
    parts = [f'<text x="{_LEFT}" y="{y - 24}" font-weight="bold">{escape(title)}</text>']
    if panel.peaks:
        x = _LEFT + unit * panel.end + 12
        parts.append(f'<text x="{x:.1f}" y="{y - 8}" fill="#555">most in flight</text>')
    for stage in range(panel.stages):
        row = y + _ROW * stage
        middle = row + _ROW / 2 + 4
        parts += [
            f'<text x="{_LEFT - 8}" y="{middle}" text-anchor="end">stage {stage}</text>',
            f'<rect x="{_LEFT}" y="{row}" width="{unit * panel.end:.1f}" height="{_ROW}" '
            'fill="#f1f1f1"/>',
        ]
        if panel.peaks:
            parts.append(f'<text x="{x:.1f}" y="{middle}">{panel.peaks[stage]}</text>')
    for box in panel.boxes:
        x, row = _LEFT + unit * box.start, y + _ROW * box.stage
        told = f"{box.action} on stage {box.stage}, from {box.start:.3g} to {box.end:.3g}"
        parts.append(
            f'<rect x="{x:.1f}" y="{row}" width="{unit * (box.end - box.start):.1f}" '
            f'height="{_ROW}" fill="{_COLORS[box.action.kind]}" stroke="#555" stroke-width="0.6">'
            f"<title>{told}</title></rect>"
        )
        label = str(box.action.microbatch)
        size = min(12.0, 1.6 * (unit - 2) / len(label))  # a digit is a little over half as wide
        if size >= 7:
            center = x + unit * (box.end - box.start) / 2
            parts.append(
                f'<text x="{center:.1f}" y="{row + _ROW / 2 + 4}" text-anchor="middle" '
                f'font-size="{size:.3g}">{label}</text>'
            )
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 1000) if unit * step >= 30)
    for tick in range(0, int(panel.end + 1e-9) + 1, step):
        x = _LEFT + unit * tick
        parts += [
            f'<path d="M{x:.1f} {bottom}v4" stroke="#888"/>',
            f'<text x="{x:.1f}" y="{bottom + 17}" text-anchor="middle" fill="#555">{tick}</text>',
        ]
    return parts


if __name__ == "__main__":
    main()
