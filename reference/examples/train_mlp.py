"""Trains the lecture's MLP with what you have written: `python -m assignment.examples.train_mlp`.

    python -m assignment.examples.train_mlp                       # every kind of parallelism
    python -m assignment.examples.train_mlp --parallel ddp        # one, or several
    python -m assignment.examples.train_mlp --parallel ddp --collectives own

One process trains first, and the others must find the same losses: `losses.svg` shows whether they
do. For each kind of parallelism a timeline is written (`ddp.html` and so on), of the last step:
what each rank sent when, and what it waited for. In that of ddp, look for the all-reduces that
begin while backward still runs.

What is not written yet, or fails, is left out, and named. All of it is given; what it uses is
yours.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import multirank
from multirank import Run

from . import loss_chart
from .mlp_modes import MODES, Settings, prepare, step
from .ranks import call

BASELINE = "none"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m assignment.examples.train_mlp",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--parallel",
        nargs="+",
        choices=list(MODES),
        default=list(MODES),
        metavar="KIND",
        help=f"some of {', '.join(MODES)}; all of them by default",
    )
    parser.add_argument(
        "--collectives",
        choices=["torch", "own"],
        default="torch",
        help="what naive and flat ddp communicate with; own: your collectives.py (not graded)",
    )
    parser.add_argument("--steps", type=int, default=10, metavar="N")
    parser.add_argument("--ranks", type=int, default=4, metavar="N")
    parser.add_argument("--batch", type=int, default=128, metavar="N", help="samples of a batch")
    parser.add_argument("--width", type=int, default=1024, metavar="N", help="of each layer")
    parser.add_argument("--layers", type=int, default=4, metavar="N")
    parser.add_argument("--out", type=Path, default=Path("training"), help="a folder for pictures")
    asked = parser.parse_args(arguments)
    settings = Settings(
        asked.ranks, asked.batch, asked.width, asked.layers, own=asked.collectives == "own"
    )
    if asked.steps < 1:
        parser.error("--steps must be at least 1")
    if wrong := _wrong(settings):
        parser.error(wrong)
    if not train_all(asked.parallel, settings, asked.steps, asked.out):
        sys.exit(1)


def _wrong(settings: Settings) -> str:
    """Why these settings do not fit together; "" if they do."""
    n = settings.ranks
    if min(n, settings.batch, settings.width, settings.layers) < 1:
        return "--ranks, --batch, --width and --layers must be at least 1"
    if settings.batch % n or settings.width % n:
        return f"--batch and --width must be multiples of --ranks, {n}"
    if settings.layers < n or settings.layers % 2:
        return f"--layers must be even, and at least as many as --ranks, {n}"
    if settings.batch < settings.microbatches:
        return f"--batch must be at least {settings.microbatches}: so many are the micro-batches"
    return ""


def train_all(kinds: Sequence[str], settings: Settings, steps: int, out: Path) -> bool:
    """Trains in each way, and writes the pictures. Whether no rank failed."""
    curves: dict[str, list[float]] = {}
    missing: list[str] = []
    fine = True
    out.mkdir(parents=True, exist_ok=True)
    for kind in [BASELINE, *(kind for kind in MODES if kind in kinds and kind != BASELINE)]:
        runs: dict[str, Run] = {}
        for name in MODES[kind]:
            try:
                curves[name], runs[name] = train(kind, name, settings, steps)
            except NotImplementedError as error:
                missing.append(f"{name}: left out ({error})")
                print(missing[-1])
            except multirank.RanksFailed as failed:
                runs[name] = failed.run
                missing.append(f"{name}: left out (it fails)")
                print(f"{name} fails:\n{failed}")
                fine = False
        if runs:
            multirank.timeline(*runs.values(), titles=list(runs)).save(out / f"{kind}.html")
            print(f"The last step as a timeline: {out / f'{kind}.html'}\n")
    right, *others = curves
    for name in others:
        print(f"{name}: {loss_chart.told(curves[name], curves[right])}")
    (out / "losses.svg").write_text(loss_chart.draw(curves, missing), encoding="utf-8")
    print(f"All losses: {out / 'losses.svg'}")
    return fine


def train(kind: str, name: str, settings: Settings, steps: int) -> tuple[list[float], Run]:
    """Trains in one way, and prints the losses of each rank as they come.

    Returns:
        the loss of the whole batch before each step; and the last step.

    Raises:
        NotImplementedError: it needs something that is not written yet.
        multirank.RanksFailed: a rank failed otherwise.
    """
    ranks = 1 if kind == BASELINE else settings.ranks
    losses = []
    seconds = []
    with multirank.World(ranks) as world:
        call(world, prepare, kind, name, settings)
        for number in range(1, steps + 1):
            done = call(world, step)
            if number == 1:
                print(_row(f"{name}, step", "batch", [f"rank {rank}" for rank in range(ranks)]))
            known = [loss for loss in done.results if loss is not None]
            losses.append(math.fsum(known) / len(known))
            own = ["-" if loss is None else f"{loss:.5f}" for loss in done.results]
            print(_row(str(number), f"{losses[-1]:.5f}", own), flush=True)
            seconds.append(done.seconds)
    print(f"{'':>4}a step took {median(seconds) * 1e3:.0f} ms")
    return losses, done


def _row(name: str, batch: str, ranks: Sequence[str]) -> str:
    return f"{name:>32}{batch:>11}" + "".join(f"{rank:>11}" for rank in ranks)


if __name__ == "__main__":
    main()
