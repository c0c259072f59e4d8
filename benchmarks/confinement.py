"""What the boundary around a submission costs: the same world of four ranks, confined and not.

The modes that work on this machine take turns, so that noise hits all alike; a world is started,
called once, and closed. Prints a table and ends with one line of JSON.

    python -m benchmarks.confinement [--repeats 15]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time

from rich.console import Console
from rich.table import Table

import multirank
from autograder.confine.boundary import boundary
from autograder.confine.modes import MODES, Isolation, choose, why_not

RANKS = 4


def world(mode: Isolation) -> float:
    """Seconds from before a world of that mode is started until nothing of it is left."""
    started = time.perf_counter()
    with (
        boundary(choose(mode), RANKS, listening=False) as around,
        multirank.World(
            RANKS,
            before_ranks=around.before_ranks,
            before_user_code=around.before_user_code,
            import_path=(),
        ) as ranks,
    ):
        ranks.call(os.getpid)
    return time.perf_counter() - started


def compare(repeats: int) -> dict[str, dict[str, float]]:
    """Median seconds of each mode, and the median of what it takes longer than `none`."""
    modes = [mode for mode in MODES if not why_not(mode)]
    for mode in modes:
        world(mode)
    rounds = [{mode: world(mode) for mode in modes} for _ in range(repeats)]
    return {
        mode.value: {
            "seconds": round(statistics.median(one[mode] for one in rounds), 4),
            "more": round(statistics.median(one[mode] - one[Isolation.NONE] for one in rounds), 4),
        }
        for mode in modes
    }


def main() -> None:
    """Measures, and prints the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=15, metavar="N")
    repeats = parser.parse_args().repeats
    if repeats < 1:
        parser.error("--repeats must be at least 1")
    multirank.start()
    rows = compare(repeats)
    table = Table("isolation")
    table.add_column("a world of 4 ranks, s", justify="right")
    table.add_column("more than none, s", justify="right")
    for mode, row in rows.items():
        table.add_row(mode, f"{row['seconds']:.3f}", f"{row['more']:+.3f}")
    Console().print(table)
    print(json.dumps({"benchmark": "confinement", "ranks": RANKS, "modes": rows}))


if __name__ == "__main__":
    main()
