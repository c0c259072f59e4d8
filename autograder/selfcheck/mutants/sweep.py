"""Mistakes in sweep."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

CALL = "measure(op, numel, dtype, collectives=collectives, group=group, **timing)"
PART = "part = max(1, size // dtype.itemsize // world_size)"
LOOP = "    for size in sizes:\n"

MUTANTS = [
    mutant(
        "sweep",
        "sweep measures the first size alone, and reports all of them",
        "A lambda that holds on to a variable of the loop.",
        """
        world_size = dist.get_world_size(group)
        measurements = []
        first = None
        for size in sizes:
            numel = max(1, size // dtype.itemsize // world_size) * world_size
            first = first or numel
            one = measure(op, first, dtype, collectives=collectives, group=group, **timing)
            size_bytes = numel * dtype.itemsize
            bandwidth = effective_bandwidth(op, size_bytes, world_size, one.seconds)
            row = Measurement(op, dtype, world_size, size_bytes, one.seconds, bandwidth)
            measurements.append(row)
        return measurements
        """,
        ["each_size_is_measured"],
        told="calls the operation with tensors of another size",
    ),
    mutant(
        "sweep",
        "sweep takes sizes for numbers of elements",
        "measure wants elements, and got sizes.",
        (PART, "part = max(1, size // world_size)"),
        ["*"],
        told="of another size than was asked for",
        also=["consistent with"],
    ),
    mutant(
        "sweep",
        "sweep takes 4 bytes for every dtype",
        "Everything was float32 so far.",
        (PART, "part = max(1, size // 4 // world_size)"),
        ["sizes", "each_size_is_measured"],
        told="of another size than was asked for",
        also=["consistent with"],
    ),
    mutant(
        "sweep",
        "sweep gives every rank a part of that size",
        "Size for each rank, where S is the size of the whole.",
        (PART, "part = max(1, size // dtype.itemsize)"),
        ["*"],
        told="the whole of all ranks together, where S is that of one",
    ),
    mutant(
        "sweep",
        "sweep does not round sizes",
        "All of one's sizes were powers of two.",
        (
            f"{PART}  # elements for each rank\n        numel = part * world_size",
            "numel = size // dtype.itemsize",
        ),
        ["rounding_and_sub_group"],
        told="must be 0 or a multiple of the 3 ranks",
    ),
    mutant(
        "sweep",
        "sweep rounds sizes up",
        "Ceiling division.",
        (PART, "part = max(1, -(-size // (dtype.itemsize * world_size)))"),
        ["rounding_and_sub_group"],
        told="of another size than was asked for",
        also=["consistent with"],
    ),
    mutant(
        "sweep",
        "sweep measures nothing below one element for each rank",
        "0 elements are a multiple of n, too.",
        (PART, "part = size // dtype.itemsize // world_size"),
        ["rounding_and_sub_group"],
        told="of another size than was asked for",
        also=["consistent with"],
    ),
    mutant(
        "sweep",
        "sweep sorts the sizes",
        "For the chart.",
        (LOOP, "    for size in sorted(sizes):\n"),
        ["*"],
        told="the sizes being taken in another order",
        also=["consistent with"],
    ),
    mutant(
        "sweep",
        "sweep goes through the sizes twice",
        "Once to warm up: after which an iterator is empty.",
        (LOOP, "    largest = max(sizes)\n    for size in sizes:\n"),
        ["*"],
        told="returns 0 measurements for",
    ),
    mutant(
        "sweep",
        "sweep forgets warmup and iterations",
        "**timing was not passed on.",
        (
            "group=group, **timing)",
            "group=group, **{k: v for k, v in timing.items() "
            "if k not in ('warmup', 'iterations')})",
        ),
        ["each_size_is_measured"],
        told="calls the operation",
    ),
    mutant(
        "sweep",
        "sweep measures torch's collectives, whatever it was given",
        "collectives= was left out.",
        ("collectives=collectives, ", ""),
        ["each_size_is_measured"],
        told="calls the operation 0 times",
    ),
    mutant(
        "sweep",
        "sweep measures float32 alone",
        "dtype was left out.",
        ("measure(op, numel, dtype, ", "measure(op, numel, "),
        ["sizes", "each_size_is_measured"],
        told="of another size than was asked for",
        also=["consistent with"],
    ),
    mutant(
        "sweep",
        "sweep measures in the whole world",
        "group= was left out.",
        ("group=group, **timing", "**timing"),
        ["rounding_and_sub_group"],
    ),
]
