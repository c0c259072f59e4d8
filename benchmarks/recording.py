"""What it costs that every operation is recorded: 1,000 all_reduces of 1 KiB, watched or not.

The same two ranks do both, by turns of 100, so that noise hits both alike: in a process group as
multirank makes it, while the parent follows, and in one of torch's own, of which it sees nothing.
The time is that of the slower rank. Prints a table and ends with one line of JSON.

    python -m benchmarks.recording [--pairs 15]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

RANKS, REPEATS, TURN, ELEMENTS = 2, 1000, 100, 256
BOUND = 1.15


def make_plain_group() -> None:
    """In a rank: a group of all ranks that is not watched."""
    import torch.distributed as dist
    from torch._C._distributed_c10d import ProcessGroupGloo

    import multirank

    c10d: Any = dist.distributed_c10d
    watched = c10d.ProcessGroupGloo
    c10d.ProcessGroupGloo = ProcessGroupGloo
    multirank.context().state["plain"] = dist.new_group()
    c10d.ProcessGroupGloo = watched


def reduce_often() -> list[float]:
    """In a rank: seconds of all repeats, watched and not."""
    import torch
    import torch.distributed as dist

    import multirank

    tensor = torch.ones(ELEMENTS)
    watched, plain = dist.group.WORLD, multirank.context().state["plain"]
    seconds = {watched: 0.0, plain: 0.0}
    for turn in range(2 * REPEATS // TURN):
        group = (watched, plain, plain, watched)[turn % 4]
        dist.barrier(group=plain)
        started = time.perf_counter()
        for _ in range(TURN):
            dist.all_reduce(tensor, group=group)
        seconds[group] += time.perf_counter() - started
    return [seconds[watched], seconds[plain]]


def compare(pairs: int) -> list[tuple[float, float]]:
    """Seconds watched and not watched, of each pair."""
    import multirank

    with multirank.World(RANKS) as world:
        world.call(make_plain_group)
        runs = [world.call(reduce_often) for _ in range(pairs)]
    return [(max(a for a, _ in run.results), max(b for _, b in run.results)) for run in runs]


def main() -> None:
    """Measures, and prints the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=15, metavar="N")
    pairs = parser.parse_args().pairs
    if pairs < 1:
        parser.error("--pairs must be at least 1")
    rows = compare(pairs)
    print(
        f"{'watched':>10}{'not':>10}{'ratio':>8}   ({REPEATS} all_reduces of {ELEMENTS * 4} bytes)"
    )
    for watched, plain in rows:
        print(f"{watched * 1e3:>7.0f} ms{plain * 1e3:>7.0f} ms{watched / plain:>8.2f}")
    ratio = statistics.median(watched / plain for watched, plain in rows)
    print(f"median ratio {ratio:.2f}; at most {BOUND} is wanted")
    figures = {"benchmark": "recording", "pairs": pairs, "ratio": round(ratio, 3), "bound": BOUND}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
