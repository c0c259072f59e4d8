"""Mistakes in state_bytes."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

SIZES = "weight, gradient, optimizer = 2.0, 2.0, 4.0 + 4.0 + 4.0"


def sized(weight: str, gradient: str, optimizer: str) -> tuple[str, str]:
    """The patch to other bytes per parameter."""
    return SIZES, f"weight, gradient, optimizer = {weight}, {gradient}, {optimizer}"


MUTANTS = [
    mutant(
        "state_memory",
        "state_bytes forgets the master copy of the weights",
        "Adam has two moments: 12 bytes for a parameter in all.",
        sized("2.0", "2.0", "8.0"),
        ["*"],
        function="state_bytes",
        told="an optimizer of 8 bytes a parameter",
        also=["moments of 16 bits"],
    ),
    mutant(
        "state_memory",
        "state_bytes takes gradients of 32 bits",
        "Some frameworks keep them like that: 18 bytes for a parameter.",
        sized("2.0", "4.0", "12.0"),
        ["*"],
        function="state_bytes",
        told="gradients of 32 bits",
        also=["weights of 32 bits"],  # where nothing is sharded
    ),
    mutant(
        "state_memory",
        "state_bytes forgets the gradients",
        "They are gone when the step is over.",
        sized("2.0", "0.0", "12.0"),
        ["*"],
        function="state_bytes",
        told="no gradients",
    ),
    mutant(
        "state_memory",
        "state_bytes counts in GiB",
        "What nvidia-smi shows.",
        ("return parameters *", "return parameters / 2**30 *"),
        ["*"],
        function="state_bytes",
        told="GiB (1024**3 bytes)",
    ),
    mutant(
        "state_memory",
        "state_bytes counts in bits",
        "16 for a weight in 16 bits.",
        ("return parameters *", "return 8 * parameters *"),
        ["*"],
        function="state_bytes",
        told="bits where bytes are asked for",
    ),
    mutant(
        "state_memory",
        "state_bytes gives the total over all devices",
        "The cluster's memory was in mind.",
        ("return parameters *", "return world_size * parameters *"),
        ["*"],
        function="state_bytes",
        told="the total over all devices",
        also=["nothing sharded"],  # where everything is
    ),
    mutant(
        "state_memory",
        "state_bytes shards nothing with ZeRO-1",
        "The stages were counted from 0.",
        {
            "state_bytes": """
            weight, gradient, optimizer = 2.0, 2.0, 12.0
            if sharding in ("zero2", "zero3"):
                optimizer /= world_size
            if sharding == "zero3":
                gradient /= world_size
            return parameters * (weight + gradient + optimizer)
            """
        },
        ["zero1", "zero2", "zero3", "edges"],
        told="one thing too few sharded",
        also=["nothing sharded"],
    ),
    mutant(
        "state_memory",
        "state_bytes keeps the gradients whole with ZeRO-2",
        "Only the optimizer was thought to be sharded before ZeRO-3.",
        ('if sharding in ("zero2", "zero3")', 'if sharding == "zero3"'),
        ["zero2"],
        function="state_bytes",
        told="one thing too few sharded",
    ),
    mutant(
        "state_memory",
        "state_bytes shards the gradients with ZeRO-1 already",
        "A device only needs the gradients of what it updates.",
        ('if sharding in ("zero2", "zero3")', 'if sharding != "ddp"'),
        ["zero1"],
        function="state_bytes",
        told="one thing too many sharded",
    ),
    mutant(
        "state_memory",
        "state_bytes keeps the weights whole with ZeRO-3",
        "Every device needs them for its forward pass.",
        ("weight /= world_size", "pass"),
        ["zero3", "edges"],
        function="state_bytes",
        told="one thing too few sharded",
    ),
    mutant(
        "state_memory",
        "state_bytes shards everything, always",
        "Many devices have much memory.",
        "return 16 * parameters / world_size",
        ["ddp", "zero1", "zero2"],
        function="state_bytes",
        told="everything sharded",
        also=["one thing too many sharded"],
    ),
    mutant(
        "state_memory",
        "state_bytes takes an unknown sharding for ZeRO-3",
        "The check of the word was thrown out, and everything else is an else.",
        ('_check_word("sharding", sharding, get_args(Sharding))', "pass"),
        ["edges"],
        function="state_bytes",
        told="a sharding that there is not must raise ValueError",
    ),
]
