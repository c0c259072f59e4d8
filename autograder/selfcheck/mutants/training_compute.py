"""Mistakes in training_flops and training_days."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

MUTANTS = [
    mutant(
        "training_compute",
        "training_flops forgets the backward pass",
        "2ND is what inference takes, and recomputation was not thought of.",
        "return 2 * parameters * tokens",
        ["flops", "refusals"],
        function="training_flops",
        told="2ND, the forward pass alone",
    ),
    mutant(
        "training_compute",
        "training_flops takes the backward pass for as long as the forward pass",
        "One pass forward, one backward.",
        ("backward = 2 * forward", "backward = forward"),
        ["flops", "refusals"],
        function="training_flops",
        told="4ND: the backward pass alone, or one that takes no longer",
    ),
    mutant(
        "training_compute",
        "training_flops counts a multiply and an add as one",
        "Hardware does both in one instruction.",
        ("forward = 2 * parameters", "forward = parameters"),
        ["flops", "refusals"],
        function="training_flops",
        told="a multiply and an add counted as one FLOP",
    ),
    mutant(
        "training_compute",
        "training_flops takes no notice of recomputation",
        "6ND is what everybody quotes.",
        ("(forward if recomputation else 0)", "0"),
        ["flops"],
        function="training_flops",
        told="6ND with recomputation too",
    ),
    mutant(
        "training_compute",
        "training_days gives seconds",
        "The conversion was forgotten.",
        ("return seconds / (24 * 60 * 60)", "return seconds"),
        ["days", "refusals"],
        function="training_days",
        told="seconds where days are asked for",
    ),
    mutant(
        "training_compute",
        "training_days gives hours",
        "A factor of 24 was forgotten.",
        ("24 * 60 * 60", "60 * 60"),
        ["days", "refusals"],
        function="training_days",
        told="hours where days are asked for",
    ),
    mutant(
        "training_compute",
        "training_days takes mfu for a percentage",
        "40% is 40.",
        ("peak_flops_per_second * mfu", "peak_flops_per_second * mfu / 100"),
        ["days", "refusals"],
        function="training_days",
        told="mfu taken for a percentage",
    ),
    mutant(
        "training_compute",
        "training_days forgets mfu",
        "The data sheet promises the peak.",
        ("peak_flops_per_second * mfu", "peak_flops_per_second"),
        ["days"],
        function="training_days",
        told="an mfu of 1",
    ),
    mutant(
        "training_compute",
        "training_days takes an mfu of 40",
        "The check of mfu was thrown out as in the way.",
        ('_check_fraction("mfu", mfu)', "pass"),
        ["refusals"],
        function="training_days",
        told="an mfu of 40, a percentage must raise ValueError",
    ),
]
