"""How long a function on fresh ranks takes: multirank, beside torch.multiprocessing.spawn.

Both start the ranks, form a gloo group through a FileStore, all-reduce four floats, and end the
ranks. They take turns, so that noise hits both alike. multirank's zygote is started once, before,
and its time is given apart. Prints a table and ends with one line of JSON. On a machine on which
all repeats would take two minutes it makes fewer, and says so.

    python benchmarks/launch.py [--repeats 3]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RANKS = (2, 4, 8)
LIMIT = 110.0  # seconds


def work() -> float:
    """What every rank does: the first element of the sum over the ranks of [1, 2, 3, 4]."""
    import torch
    import torch.distributed as dist

    tensor = torch.tensor([1.0, 2.0, 3.0, 4.0])
    dist.all_reduce(tensor)
    return tensor[0].item()


def spawned(rank: int, ranks: int, file: str) -> None:
    """One rank of torch.multiprocessing.spawn."""
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = "lo" if sys.platform == "linux" else "lo0"
    dist.init_process_group("gloo", f"file://{file}", rank=rank, world_size=ranks)
    assert work() == ranks
    dist.destroy_process_group()


def by_spawn(ranks: int) -> float:
    """Seconds of one run with torch.multiprocessing.spawn."""
    import torch.multiprocessing

    spawn: Any = torch.multiprocessing.spawn  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        spawn(spawned, args=(ranks, f"{directory}/store"), nprocs=ranks)
        return time.perf_counter() - started


def by_multirank(ranks: int) -> float:
    """Seconds of one run with multirank."""
    import multirank

    started = time.perf_counter()
    results = multirank.run(work, ranks).results
    seconds = time.perf_counter() - started
    assert results == [ranks] * ranks
    return seconds


def compare(repeats: int) -> dict[int, dict[str, float]]:
    """Median seconds of both, and the median of the ratios, by number of ranks."""
    pairs: dict[int, list[tuple[float, float]]] = {ranks: [] for ranks in RANKS}
    started = time.perf_counter()
    for done in range(repeats):
        if done and (time.perf_counter() - started) * (done + 1) / done > LIMIT:
            print(f"{done} of {repeats} repeats: this machine is slow today")
            break
        for ranks in RANKS:
            pairs[ranks].append((by_multirank(ranks), by_spawn(ranks)))
    return {
        ranks: {
            "repeats": len(times),
            "multirank": round(statistics.median(ours for ours, _ in times), 4),
            "spawn": round(statistics.median(theirs for _, theirs in times), 3),
            "ratio": round(statistics.median(theirs / ours for ours, theirs in times), 1),
        }
        for ranks, times in pairs.items()
    }


def show(rows: dict[int, dict[str, float]], zygote: float) -> None:
    """Prints the table, with rich where it is installed."""
    lines = [
        (str(ranks), f"{row['multirank']:.3f}", f"{row['spawn']:.2f}", f"{row['ratio']:.1f}")
        for ranks, row in rows.items()
    ]
    names = ("ranks", "multirank, s", "spawn, s", "times faster")
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        for line in (names, *lines):
            print("".join(f"{cell:>14}" for cell in line))
    else:
        table = Table()
        for name in names:
            table.add_column(name, justify="right")
        for line in lines:
            table.add_row(*line)
        Console().print(table)
    print(f"once, before the first run: {zygote:.1f} s until multirank's zygote is up")


def main() -> None:
    """Measures, and prints the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    repeats = parser.parse_args().repeats
    if repeats < 1:
        parser.error("--repeats must be at least 1")
    started = time.perf_counter()
    by_multirank(1)
    zygote = time.perf_counter() - started
    rows = compare(repeats)
    show(rows, zygote)
    print(json.dumps({"benchmark": "launch", "zygote_seconds": round(zygote, 2), "ranks": rows}))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # multirank, from a checkout
    main()
