"""Mistakes in bubble_ratio and microbatches_for."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

MUTANTS = [
    mutant(
        "pipeline_bubble",
        "bubble_ratio is a part of the total time",
        "That is what a picture of the pipeline shows.",
        "return (stages - 1) / (microbatches + stages - 1)",
        ["ratio", "edges"],
        function="bubble_ratio",
        told="(p-1)/(m+p-1), a part of the total time",
    ),
    mutant(
        "pipeline_bubble",
        "bubble_ratio counts a stage that waits for itself",
        "p stages, so p steps until the last one begins.",
        "return stages / microbatches",
        ["ratio", "edges"],
        function="bubble_ratio",
        told="p/m: nobody waits for its own stage",
    ),
    mutant(
        "pipeline_bubble",
        "bubble_ratio is a percentage",
        "22% is 22.",
        "return 100 * (stages - 1) / microbatches",
        ["ratio", "edges"],
        function="bubble_ratio",
        told="a percentage where a fraction is asked for",
    ),
    mutant(
        "pipeline_bubble",
        "microbatches_for rounds down",
        "int() makes a whole number.",
        ("math.ceil((stages - 1) / ratio)", "int((stages - 1) / ratio)"),
        ["microbatches"],
        function="microbatches_for",
        told="the number rounded down",
    ),
    mutant(
        "pipeline_bubble",
        "microbatches_for does not round",
        "Division gives the number.",
        "return (stages - 1) / ratio",
        ["microbatches", "edges"],
        function="microbatches_for",
        told="not rounded up to a whole one",
    ),
    mutant(
        "pipeline_bubble",
        "microbatches_for gives no micro-batch where there is no bubble",
        "0 divided by the ratio.",
        "return math.ceil((stages - 1) / ratio)",
        ["edges"],
        function="microbatches_for",
        told="no micro-batch where there is no bubble",
    ),
    mutant(
        "pipeline_bubble",
        "microbatches_for takes the ratio for a part of the total time",
        "(p-1)/(m+p-1), solved for m.",
        "return max(1, math.ceil((stages - 1) / ratio - (stages - 1)))",
        ["microbatches", "edges"],
        function="microbatches_for",
        told="(p-1)/(m+p-1), a part of the total time",
    ),
    mutant(
        "pipeline_bubble",
        "microbatches_for takes one and a half stages",
        "The check of the stages was thrown out as in the way.",
        ("_check_counts(stages=stages)", "pass"),
        ["edges"],
        function="microbatches_for",
        told="one and a half stages must raise ValueError",
    ),
]
