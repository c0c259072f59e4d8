"""Bus bandwidth of all_reduce on this machine's GPUs: torch's, and the reference's, over NCCL.

Measured with the reference's own `measure`, on 1, 2, 4, ... GPUs. On one nothing has to move, and
bus bandwidth is 0 by definition. Prints a table and ends with one line of JSON.

    python -m benchmarks.gpus [--mib 64]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from typing import Any

import torch

import multirank

MIB = 1 << 20


def measured(nbytes: int) -> dict[str, list[float]]:
    """On a rank: for each implementation, seconds and bus bandwidth in bytes per second."""
    from reference import bandwidth, collectives

    used = {"torch": bandwidth.TORCH, "reference": vars(collectives)}
    found = {
        name: bandwidth.measure(
            "all_reduce", nbytes // 4, collectives=implementation, warmup=5, iterations=20
        )
        for name, implementation in used.items()
    }
    return {name: [one.seconds, one.bandwidth] for name, one in found.items()}


def rows(world_sizes: Iterable[int], nbytes: int, **world: Any) -> list[dict[str, Any]]:
    """A row for each implementation and world size; `world`: further arguments of the worlds."""
    made = []
    for ranks in world_sizes:
        with multirank.World(ranks, backend="nccl", **world) as gpus:
            found = gpus.call(measured, nbytes).results[0]
        made += [
            {
                "ranks": ranks,
                "of": name,
                "ms": round(seconds * 1e3, 3),
                "gb_s": round(speed / 1e9, 3),
            }
            for name, (seconds, speed) in found.items()
        ]
    return made


def main() -> None:
    """Measures, and prints the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=64, help="the size of the tensor")
    mib = parser.parse_args().mib
    count = torch.cuda.device_count()
    if not count:
        sys.exit("There is no GPU here.")
    found = rows([n for n in (1, 2, 4, 8) if n <= count], mib * MIB)
    print(f"{'ranks':>5}  {'all_reduce of':<14}{'ms':>9}{'bus bandwidth, GB/s':>21}")
    for row in found:
        print(f"{row['ranks']:>5}  {row['of']:<14}{row['ms']:>9}{row['gb_s']:>21}")
    device = torch.cuda.get_device_name(0)
    print(json.dumps({"benchmark": "gpus", "device": device, "mib": mib, "rows": found}))


if __name__ == "__main__":
    main()
