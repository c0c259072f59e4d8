"""Checks of problem pipeline_bubble."""

from __future__ import annotations

import math
from fractions import Fraction

from autograder.closed_form import PERCENT, BadCall, Formula, Mistake, require_numbers
from autograder.judge import Judge
from autograder.problem import problem


def _ratio(stages: int, microbatches: int) -> Fraction:
    return Fraction(stages - 1, microbatches)


def _microbatches(stages: int, ratio: float) -> int:
    return max(1, math.ceil((stages - 1) / Fraction(ratio)))


RATIO = Formula(
    "bubble_ratio",
    _ratio,
    (
        Mistake(
            "(p-1)/(m+p-1), a part of the total time: the bubble ratio is one of the time in which "
            "the pipeline works",
            lambda stages, microbatches: Fraction(stages - 1, microbatches + stages - 1),
        ),
        Mistake(
            "p/m: nobody waits for its own stage",
            lambda stages, microbatches: Fraction(stages, microbatches),
        ),
        Mistake(
            "a bubble of 2(p-1) micro-batches, counted both ways, over one way's time",
            2,
        ),
        PERCENT,
    ),
)
MICROBATCHES = Formula(
    "microbatches_for",
    _microbatches,
    (
        Mistake(
            "the number rounded down: the bubble is too large then",
            lambda stages, ratio: max(1, math.floor((stages - 1) / Fraction(ratio))),
        ),
        Mistake(
            "the number rounded to the nearest: the bubble may be too large then",
            lambda stages, ratio: max(1, round((stages - 1) / Fraction(ratio))),
        ),
        Mistake(
            "a number that is not rounded up to a whole one",
            lambda stages, ratio: (stages - 1) / Fraction(ratio),
        ),
        Mistake(
            "(p-1)/(m+p-1), a part of the total time: the bubble ratio is one of the time in which "
            "the pipeline works",
            lambda stages, ratio: max(1, math.ceil((stages - 1) / Fraction(ratio) - (stages - 1))),
        ),
        Mistake(
            "p/m: nobody waits for its own stage",
            lambda stages, ratio: math.ceil(stages / Fraction(ratio)),
        ),
        Mistake(
            "a ratio taken for a percentage",
            lambda stages, ratio: max(1, math.ceil(100 * (stages - 1) / Fraction(ratio))),
        ),
        Mistake(
            "no micro-batch where there is no bubble: something has to be computed",
            lambda stages, ratio: math.ceil((stages - 1) / Fraction(ratio)),
        ),
        Mistake(
            "one micro-batch more than needed",
            lambda stages, ratio: _microbatches(stages, ratio) + 1,
        ),
    ),
)


@problem("pipeline_bubble", share="2/5")
def test_ratio(judge: Judge) -> None:
    """The bubble ratio."""
    rng = judge.seed.generator()
    pairs = [(int(rng.integers(2, 33)), int(rng.integers(2, 200))) for _ in range(8)]
    require_numbers(judge, [(RATIO, {"stages": p, "microbatches": m}) for p, m in pairs])


@problem("pipeline_bubble", share="9/20", function="microbatches_for")
def test_microbatches(judge: Judge) -> None:
    """The fewest micro-batches for a bubble ratio."""
    rng = judge.seed.generator()
    # Where the number comes out whole, the ratio is a power of 2, and floats are exact.
    whole = [(int(rng.integers(2, 33)), 2.0 ** -int(rng.integers(1, 6))) for _ in range(4)]
    # Elsewhere it lies between two whole ones, so that floats cannot decide.
    needed = [(int(rng.integers(2, 33)), int(rng.integers(3, 99))) for _ in range(8)]
    between = [
        (p, (p - 1) / (m - rest)) for (p, m), rest in zip(needed, 4 * (0.2, 0.8), strict=True)
    ]
    require_numbers(
        judge,
        [(MICROBATCHES, {"stages": p, "ratio": ratio}) for p, ratio in (*whole, *between)],
    )


@problem("pipeline_bubble", share="3/20", kind="edges")
def test_edges(judge: Judge) -> None:
    """One stage, one micro-batch, ratios above 1; bad arguments raise ValueError."""
    require_numbers(
        judge,
        [
            *((RATIO, {"stages": p, "microbatches": m}) for p, m in ((4, 8), (1, 4), (6, 1))),
            *(
                (MICROBATCHES, {"stages": p, "ratio": r})
                for p, r in ((4, 0.5), (1, 0.5), (4, 16.0))
            ),
        ],
        [
            BadCall("bubble_ratio", {"stages": 0, "microbatches": 4}, "no stages"),
            BadCall("bubble_ratio", {"stages": 4, "microbatches": 0}, "no micro-batches"),
            BadCall("microbatches_for", {"stages": 4, "ratio": 0}, "a ratio of 0"),
            BadCall("microbatches_for", {"stages": 1.5, "ratio": 0.5}, "one and a half stages"),
        ],
    )
