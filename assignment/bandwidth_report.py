"""Measures your collectives beside torch's: a table, and a chart of bandwidth against size.

    python -m assignment.bandwidth                                 # starts the ranks itself, on CPU
    python -m assignment.bandwidth --ranks 2 3 --operations all_reduce broadcast
    torchrun --nproc-per-node 8 -m assignment.bandwidth            # on GPUs, with your setup()

All of it is given; what it uses of `bandwidth.py` is yours.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from . import bandwidth, collectives, launch
from .loglog import Line, Panel, draw

# What makers promise for one direction of a device's links to its peers, in bytes per second. A
# switch that adds up by itself (NVLS) needs fewer bytes, so that bus bandwidth may exceed it.
PEAKS = {
    **{"V100": 150e9, "A100": 300e9, "H800": 200e9, "H100": 450e9, "H200": 450e9},
    **{"B200": 900e9, "B300": 900e9},
}
LIBRARIES = ("yours", "torch")
KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Row:
    """One measurement. library: "yours" or "torch"; asked: the size before it was rounded, in
    bytes; the rest as in `bandwidth.Measurement`."""

    library: str
    asked: int
    op: str
    world_size: int
    size_bytes: int
    seconds: float
    bandwidth: float


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m assignment.bandwidth", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="world sizes")
    parser.add_argument(
        "--operations",
        nargs="+",
        default=["all_reduce", "reduce_scatter", "all_gather"],
        choices=list(bandwidth.TORCH),
    )
    parser.add_argument(
        "--largest", type=float, default=16.0, metavar="MIB", help="the largest size, in MiB"
    )
    parser.add_argument("--out", type=Path, default=Path("bandwidth.svg"), help="the chart")
    asked = parser.parse_args()
    largest = max(KIB, round(asked.largest * MIB))
    found = collect(asked.operations, bandwidth.sizes_between(KIB, largest, 4), asked.ranks)
    if found is None:
        return  # another rank tells
    rows, device = found
    print("\n".join([*table(rows), "", *remarks(rows)]))
    asked.out.write_text(chart(rows, device), encoding="utf-8")
    print(f"\nThe chart: {asked.out}")


# --- Measuring -----------------------------------------------------------------------------------


def collect(
    operations: Sequence[str], sizes: Sequence[int], world_sizes: Sequence[int]
) -> tuple[list[Row], str] | None:
    """All measurements, and the device's name; None on the ranks that have nothing to tell."""
    if "RANK" in os.environ:  # torchrun has started us: these are the ranks there are
        launch.setup()
        try:
            found = measure_all(operations, sizes)
            tells = dist.get_rank() == 0
        finally:
            launch.cleanup()
        return (_rows(found["rows"]), found["device"]) if tells else None
    import multirank

    rows, device = [], ""
    for world_size in world_sizes:
        try:
            done = multirank.run(measure_all, world_size, operations, sizes, timeout=600)
        except multirank.RanksFailed as failed:
            sys.exit(str(failed))
        found = done.results[0]
        rows += _rows(found["rows"])
        device = found["device"]
    return rows, device


def measure_all(operations: Sequence[str], sizes: Sequence[int]) -> dict[str, Any]:
    """Runs on every rank: each operation of both libraries, as plain values."""
    rows = []
    for op in operations:
        for library, functions in zip(LIBRARIES, (vars(collectives), bandwidth.TORCH), strict=True):
            try:
                found = bandwidth.sweep(op, sizes, collectives=functions)
            except NotImplementedError as error:
                if library != "yours":
                    raise
                print(f"{op}: yours is not measured ({error})", flush=True)
                continue
            rows += [
                [library, asked, op, one.world_size, one.size_bytes, one.seconds, one.bandwidth]
                for asked, one in zip(sizes, found, strict=True)
            ]
    device = bandwidth.group_device(None)
    return {"rows": rows, "device": _name(device)}


def _rows(found: Sequence[Sequence[Any]]) -> list[Row]:
    return [Row(*one) for one in found]


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name() if device.type == "cuda" else device.type


# --- Telling -------------------------------------------------------------------------------------


def table(rows: Sequence[Row]) -> list[str]:
    """Lines: a block for each operation; world sizes and libraries side by side."""
    measured = {(row.world_size, row.library) for row in rows}
    columns = sorted(measured, key=lambda column: (column[0], LIBRARIES.index(column[1])))
    lines = ["time, and bus bandwidth (1 GB/s is 10^9 bytes per second)"]
    for op in dict.fromkeys(row.op for row in rows):
        heads = "".join(f"{_column(n, library):>24}" for n, library in columns)
        lines += ["", f"{op:<16}{heads}"]
        own = {(row.asked, row.world_size, row.library): row for row in rows if row.op == op}
        for size in sorted({size for size, _, _ in own}):
            cells = [own.get((size, n, library)) for n, library in columns]
            lines.append(f"{size_text(size):>12}    " + "".join(_cell(cell) for cell in cells))
    return lines


def _column(world_size: int, library: str) -> str:
    return f"{world_size} rank{'s' if world_size != 1 else ''}, {library}"


def _cell(row: Row | None) -> str:
    if row is None:
        return f"{'-':>24}"
    return f"{row.seconds * 1e3:>11.3f} ms{rate_text(row.bandwidth):>10}"


def remarks(rows: Sequence[Row]) -> list[str]:
    """Lines on all_reduce against reduce_scatter, at the largest size."""
    lines = []
    by_op = {(row.library, row.op, row.world_size, row.asked): row for row in rows}
    for library in LIBRARIES:
        for n in sorted({row.world_size for row in rows if row.library == library}):
            sizes = [key[3] for key in by_op if key[:3] == (library, "reduce_scatter", n)]
            whole = by_op.get((library, "all_reduce", n, max(sizes, default=0)))
            if whole is None or n == 1:
                continue
            half = by_op[library, "reduce_scatter", n, whole.asked]
            lines.append(
                f"{_column(n, library)}, {size_text(whole.asked)}: all_reduce takes "
                f"{whole.seconds / half.seconds:.2f} times as long as reduce_scatter, at "
                f"{whole.bandwidth / half.bandwidth:.2f} times its bus bandwidth"
            )
    if lines:
        lines += [
            "A reduce_scatter is the first of the two phases of an all_reduce: as a ring it takes",
            "half the messages, about half the time, at about the same bus bandwidth.",
            "torch's on CPU (gloo's) is an all_reduce, of which each rank then keeps its part: it",
            "moves twice the bytes that it would have to, and so need not be any faster than that.",
        ]
    return lines


def chart(rows: Sequence[Row], device: str) -> str:
    """An SVG: a panel for each operation, a line for each world size and library."""
    peak = next((PEAKS[name] for name in PEAKS if name in device), None)
    world_sizes = sorted({row.world_size for row in rows})
    panels = []
    for op in dict.fromkeys(row.op for row in rows):
        lines = []
        for color, n in enumerate(world_sizes):
            for library in LIBRARIES:
                points = [
                    (float(row.asked), row.bandwidth)
                    for row in rows
                    if (row.op, row.world_size, row.library) == (op, n, library)
                    and row.bandwidth > 0
                ]
                if points:
                    label = _column(n, library)
                    lines.append(Line(label, points, color, dashed=library == "torch"))
        limit = (peak, f"{peak / 1e9:g} GB/s, the links' peak") if peak is not None else None
        panels.append(Panel(op, lines, limit))
    return draw(panels, "size S", "bus bandwidth", size_text, rate_text)


def size_text(size: float) -> str:
    """Such as "64 KiB"."""
    for unit, name in ((MIB << 10, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size:.4g} B"


def rate_text(rate: float) -> str:
    """Such as "10 GB/s"."""
    for unit, name in ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if rate >= 0.999 * unit:
            return f"{rate / unit:.3g} {name}"
    return f"{rate:.4g} B/s"
