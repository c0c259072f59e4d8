"""Mistakes in measure."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

CALL = "lambda: function(*arguments, group=group)"
SIZE = "size_bytes = numel * dtype.itemsize"

MUTANTS = [
    mutant(
        "measure",
        "measure counts elements for bytes",
        "numel was there already.",
        (SIZE, "size_bytes = numel"),
        ["bandwidth", "sub_group"],
        told="elements, where bytes are asked for",
    ),
    mutant(
        "measure",
        "measure takes 4 bytes for every dtype",
        "Everything was float32 so far.",
        (SIZE, "size_bytes = numel * 4"),
        ["bandwidth"],
        told="4 bytes for an element of any dtype",
    ),
    mutant(
        "measure",
        "measure takes the first tensor for S",
        "reduce_scatter's output comes first, and is but a part.",
        (SIZE, "size_bytes = arguments[0].nbytes"),
        ["bandwidth"],
        told="the part of one rank, where S is the size of the whole",
    ),
    mutant(
        "measure",
        "measure takes the part of one rank for S",
        "Per-rank sizes everywhere.",
        (SIZE, "size_bytes = numel // world_size * dtype.itemsize"),
        ["bandwidth", "sub_group"],
        told="the part of one rank, where S is the size of the whole",
    ),
    mutant(
        "measure",
        "measure reports the algorithm bandwidth",
        "Bytes over seconds.",
        (
            "bandwidth = effective_bandwidth(op, size_bytes, world_size, seconds)",
            "bandwidth = size_bytes / seconds",
        ),
        ["bandwidth", "sub_group"],
        told="the algorithm bandwidth, without the bus factor",
        also=["a division by the bus factor"],
    ),
    mutant(
        "measure",
        "measure makes its tensors in every call",
        "So that each iteration has fresh ones.",
        (CALL, "lambda: function(*make_arguments(op, numel, dtype, group), group=group)"),
        ["nothing_else_is_timed"],
        told="more than the operation between start and stop",
    ),
    mutant(
        "measure",
        "measure fills its tensor in every call",
        "Zeros would have been too easy.",
        (CALL, "lambda: (arguments[0].normal_(), function(*arguments, group=group))"),
        ["nothing_else_is_timed", "agrees_with_the_graders_clock"],
        told="more than the operation between start and stop",
    ),
    mutant(
        "measure",
        "measure looks at a result in every call",
        "To be sure that it has arrived.",
        (CALL, "lambda: (function(*arguments, group=group), arguments[0][0].item())"),
        ["nothing_else_is_timed"],
        told="more than the operation between start and stop",
    ),
    mutant(
        "measure",
        "measure keeps warmup and iterations for itself",
        "**timing was not passed on.",
        (
            "group=group, **timing)",
            "group=group, **{k: v for k, v in timing.items() "
            "if k not in ('warmup', 'iterations')})",
        ),
        ["nothing_else_is_timed"],
        told="calls the operation 13 times, not 3 + 3",
    ),
    mutant(
        "measure",
        "measure measures torch's collectives, whatever it was given",
        "TORCH[op] was quicker to write.",
        ("function = collectives[op]", "function = TORCH[op]"),
        ["bandwidth", "nothing_else_is_timed", "sub_group"],
        told="does not call the operation of the collectives it was given",
    ),
    mutant(
        "measure",
        "measure calls the operation in the whole world",
        "group=group was left out.",
        (CALL, "lambda: function(*arguments)"),
        ["sub_group"],
        told="without the group that it was given",
    ),
    mutant(
        "measure",
        "measure counts the ranks of the whole world",
        "dist.get_world_size() without the group.",
        ("dist.get_world_size(group)", "dist.get_world_size()"),
        ["sub_group"],
        told="another op, dtype or world_size",
    ),
    mutant(
        "measure",
        "measure times three calls as one",
        "To be more exact; and forgot to divide.",
        (
            CALL,
            "lambda: [function(*arguments, group=group) for _ in range(3)]",
        ),
        ["nothing_else_is_timed", "agrees_with_the_graders_clock"],
        told="times the seconds that the grader's own clock tells",
        also=["too many calls", "one reading of the clock", "not being read after each call"],
    ),
    mutant(
        "measure",
        "measure reports milliseconds",
        "As tables do; the bandwidth is right.",
        (
            "size_bytes, seconds, bandwidth)",
            "size_bytes, seconds * 1e3, bandwidth)",
        ),
        ["*"],
        told="times the seconds that the grader's own clock tells",
        also=["milliseconds", "consistent with"],
    ),
]
