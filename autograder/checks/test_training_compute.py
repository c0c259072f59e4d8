"""Checks of problem training_compute."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from autograder.closed_form import BadCall, Formula, Mistake, require_numbers
from autograder.judge import Judge
from autograder.problem import problem


def _flops(
    parameters: float, tokens: float, recomputation: bool = False, *, plain: int = 6, more: int = 2
) -> Fraction:
    """By how many FLOPs a parameter costs for a token, and how many more with recomputation."""
    return (plain + more * recomputation) * Fraction(parameters) * Fraction(tokens)


def _days(
    flops: float,
    devices: int,
    peak_flops_per_second: float,
    mfu: float | Fraction,
    *,
    seconds_in_unit: int = 24 * 60 * 60,
) -> Fraction:
    work, speed = Fraction(flops), devices * Fraction(peak_flops_per_second) * Fraction(mfu)
    return work / speed / seconds_in_unit


FLOPS = Formula(
    "training_flops",
    _flops,
    (
        Mistake(
            "2ND, the forward pass alone: the backward pass takes twice as much again",
            lambda **given: _flops(**given, plain=2),
        ),
        Mistake(
            "4ND: the backward pass alone, or one that takes no longer than the forward pass",
            lambda **given: _flops(**given, plain=4),
        ),
        Mistake("3ND: a multiply and an add counted as one FLOP", Fraction(1, 2)),
        Mistake(
            "6ND with recomputation too: it runs the forward pass a second time",
            lambda **given: _flops(**given, more=0),
        ),
        Mistake(
            "12ND with recomputation: it runs only the forward pass a second time",
            lambda **given: _flops(**given, more=6),
        ),
    ),
)
DAYS = Formula(
    "training_days",
    _days,
    (
        Mistake("seconds where days are asked for", 24 * 60 * 60),
        Mistake("hours where days are asked for", 24),
        Mistake("years where days are asked for", Fraction(4, 1461)),
        Mistake("years where days are asked for", Fraction(1, 365)),
        Mistake("mfu taken for a percentage, and divided by 100", 100),
        Mistake(
            "an mfu of 1: the peak is never reached", lambda **given: _days(**given | {"mfu": 1})
        ),
        Mistake(
            "mfu on the wrong side: less of the peak takes longer",
            lambda mfu, **given: _days(**given, mfu=1 / Fraction(mfu)),
        ),
        Mistake(
            "one device: all of them work at once", lambda **given: _days(**given | {"devices": 1})
        ),
    ),
)


@problem("training_compute", share="2/5")
def test_flops(judge: Judge) -> None:
    """FLOPs of a run, with and without recomputation."""
    rng = judge.seed.generator()
    require_numbers(
        judge,
        [
            (FLOPS, {"parameters": _billions(rng), "tokens": 1000 * _billions(rng)} | more)
            for more in ({}, {"recomputation": True}, {"recomputation": False})
        ],
    )


@problem("training_compute", share="9/20", function="training_days")
def test_days(judge: Judge) -> None:
    """Days that it takes, on one device and on many."""
    rng = judge.seed.generator()
    require_numbers(judge, [(DAYS, _run(rng, devices)) for devices in (1, 24, 1000)])


@problem("training_compute", share="3/20", kind="edges")
def test_refusals(judge: Judge) -> None:
    """Bad arguments raise ValueError."""
    rng = judge.seed.generator()
    run = _run(rng, devices=8)
    require_numbers(
        judge,
        [(FLOPS, {"parameters": 1, "tokens": 1}), (DAYS, run | {"mfu": 1})],
        [
            BadCall("training_flops", {"parameters": 0, "tokens": 1e9}, "no parameters"),
            BadCall("training_flops", {"parameters": 1e9, "tokens": -1}, "less than no token"),
            BadCall("training_days", run | {"mfu": 40}, "an mfu of 40, a percentage"),
            BadCall("training_days", run | {"devices": 0}, "no devices"),
        ],
    )


def _billions(rng: np.random.Generator) -> float:
    return int(rng.integers(10, 10000)) * 1e8


def _run(rng: np.random.Generator, devices: int) -> dict[str, Any]:
    return {
        "flops": int(rng.integers(10, 1000)) * 1e22,
        "devices": devices,
        "peak_flops_per_second": int(rng.integers(100, 3000)) * 1e12,
        "mfu": int(rng.integers(20, 60)) / 100,
    }
