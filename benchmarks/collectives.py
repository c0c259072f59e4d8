"""How long the reference's collectives take, as a ratio to gloo's own.

Prints a table and ends with one line of JSON.

    python -m benchmarks.collectives [--pairs 15]
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.pairs import paired, use

MIB = 1 << 20
ALL_REDUCE = [(ranks, size * MIB) for ranks in (2, 4) for size in (1, 16)]
OTHERS = [
    (function, 4, 16 * MIB)
    for function in ("broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all")
]
GLOO = {
    "all_gather": "all_gather_into_tensor",
    "reduce_scatter": "reduce_scatter_tensor",
    "all_to_all": "all_to_all_single",
}


def prepare(implementation: str, function: str, size: int) -> None:
    """Makes one call of `function` ready in the rank; `size` is the full tensor's, in bytes."""
    world_size = dist.get_world_size()
    full = torch.zeros(size // 4)
    part = torch.zeros(size // 4 // world_size)
    arguments = {
        "all_reduce": (full,),
        "broadcast": (full, 0),
        "reduce": (full, 0),
        "all_gather": (full, part),
        "reduce_scatter": (part, full),
        "all_to_all": (full, torch.zeros_like(full)),
    }[function]
    module: Any = dist if implementation == "gloo" else importlib.import_module(implementation)
    name = GLOO.get(function, function) if implementation == "gloo" else function
    call: Callable[..., Any] = getattr(module, name)
    use(lambda: call(*arguments))


def compare(function: str, ranks: int, size: int, pairs: int) -> dict[str, Any]:
    """The median ratio of the reference's time to gloo's, and gloo's median time in ms."""
    ours = partial(prepare, "reference.collectives", function, size)
    found = paired(ours, partial(prepare, "gloo", function, size), ranks, pairs)
    return {
        "function": function,
        "ranks": ranks,
        "mib": size // MIB,
        "ratio": found.ratio,
        "gloo_ms": found.theirs,
    }


def main() -> None:
    """Measures, and prints the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=15)
    pairs = parser.parse_args().pairs
    cases = [("all_reduce", *case) for case in ALL_REDUCE] + OTHERS
    print(f"{'function':<15}{'ranks':>6}{'MiB':>6}{'gloo, ms':>10}{'ratio':>8}")
    rows = []
    for function, ranks, size in cases:
        row = compare(function, ranks, size, pairs)
        rows.append(row)
        print(
            f"{row['function']:<15}{row['ranks']:>6}{row['mib']:>6}{row['gloo_ms']:>10}"
            f"{row['ratio']:>8}"
        )
    print(json.dumps({"benchmark": "collectives", "pairs": pairs, "rows": rows}))


if __name__ == "__main__":
    main()
