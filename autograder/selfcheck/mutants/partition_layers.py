"""Mistakes in partition_layers."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

MUTANTS = [
    mutant(
        "partition_layers",
        "partition_layers loses the last layers",
        "num_layers // num_stages for each stage, and the remainder for none.",
        """
        size = num_layers // num_stages
        return [range(stage * size, (stage + 1) * size) for stage in range(num_stages)]
        """,
        ["*"],
        told="the last layers are on no stage",
    ),
    mutant(
        "partition_layers",
        "partition_layers gives the remainder to the last stage",
        "Simple, and the last stage is the slowest then.",
        """
        size = num_layers // num_stages
        starts = [stage * size for stage in range(num_stages)] + [num_layers]
        return [range(starts[stage], starts[stage + 1]) for stage in range(num_stages)]
        """,
        ["partition"],
        told="they must differ by at most one",
    ),
    mutant(
        "partition_layers",
        "partition_layers rounds up",
        "As torch.chunk does, so that stages may go empty.",
        """
        size = -(-num_layers // num_stages)
        return [
            range(min(stage * size, num_layers), min((stage + 1) * size, num_layers))
            for stage in range(num_stages)
        ]
        """,
        ["*"],
        told="they must differ by at most one",
    ),
    mutant(
        "partition_layers",
        "partition_layers deals the layers out like cards",
        "Layer i to stage i % p: balanced, but not contiguous.",
        "return [range(stage, num_layers, num_stages) for stage in range(num_stages)]",
        ["*"],
        told="not in order, from stage to stage",
    ),
    mutant(
        "partition_layers",
        "partition_layers lets neighbours share a layer",
        "Inclusive ends.",
        (
            "range(starts[stage], starts[stage + 1])",
            "range(starts[stage], min(starts[stage + 1] + 1, num_layers))",
        ),
        ["*"],
        told="a layer is on two stages",
    ),
    mutant(
        "partition_layers",
        "partition_layers allows empty stages",
        "The check was in the way.",
        ("1 <= num_stages <= num_layers", "1 <= num_stages"),
        ["refusals"],
        told="fewer layers than stages must raise ValueError",
    ),
]
