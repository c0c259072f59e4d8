"""Mistakes in activation_bytes."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

MUTANTS = [
    mutant(
        "activation_memory",
        "activation_bytes forgets what attention keeps of size s by s",
        "34 sbh is what sticks in the mind.",
        ("shared += 5 * heads * sequence**2 * batch", "pass"),
        ["one_device", "parallel", "refusals"],
        function="activation_bytes",
        told="34 sbh, without the a s^2 of attention",
    ),
    mutant(
        "activation_memory",
        "activation_bytes takes the scores of a single head",
        "Heads share out the vector, so they were thought to share out the scores.",
        ("5 * heads * sequence**2", "5 * sequence**2"),
        ["one_device", "parallel"],
        function="activation_bytes",
        told="a single head",
    ),
    mutant(
        "activation_memory",
        "activation_bytes counts elements",
        "17 sbh, and half of the rest.",
        ("return whole + shared", "return whole / 2 + shared / 2"),
        ["*"],
        function="activation_bytes",
        told="elements where bytes are asked for",
    ),
    mutant(
        "activation_memory",
        "activation_bytes shares out everything with tensor parallelism",
        "t devices, so 1/t of the memory.",
        ("if sequence_parallel:", "if True:"),
        ["parallel", "recomputation"],
        function="activation_bytes",
        told="tensor parallelism leaves 10 sbh whole",
        also=["shares out the layer's input"],
    ),
    mutant(
        "activation_memory",
        "activation_bytes leaves 10 sbh whole with sequence parallelism too",
        "Sequence parallelism was thought to save time alone.",
        ("if sequence_parallel:", "if False:"),
        ["parallel", "recomputation"],
        function="activation_bytes",
        told="10 sbh left whole with sequence parallelism too",
    ),
    mutant(
        "activation_memory",
        "activation_bytes keeps nothing with full recomputation",
        "Everything is computed again.",
        ("whole, shared = 2.0 * sbh, 0.0", "whole, shared = 0.0, 0.0"),
        ["recomputation"],
        function="activation_bytes",
        told="full recomputation that keeps nothing",
    ),
    mutant(
        "activation_memory",
        "activation_bytes takes no notice of recomputation",
        "It was thought to cost time and nothing else.",
        {
            "activation_bytes": """
            sbh = sequence * batch * hidden
            whole = 10 * sbh / (tensor_parallel if sequence_parallel else 1)
            return whole + (24 * sbh + 5 * heads * sequence**2 * batch) / tensor_parallel
            """
        },
        ["recomputation"],
        told="no recomputation",
    ),
    mutant(
        "activation_memory",
        "activation_bytes takes an unknown word for selective recomputation",
        "The check of the word was thrown out as in the way.",
        ('_check_word("recomputation", recomputation, get_args(Recomputation))', "pass"),
        ["refusals"],
        function="activation_bytes",
        told="an unknown word must raise ValueError",
    ),
]
