"""Measured for real, in seconds: ratios alone, of two worlds that take turns on the machine.

Nothing else in a grade depends on how fast a computer is. A ratio of two times does not either, if
noise hits both alike: so both worlds are alive all the time, one is stopped while the other runs,
who begins alternates, and the median of the pairs counts. It is tried again before anybody loses
points, and before they do, the reference has to agree with itself.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

from autograder.cost import Score, score_measured, size_in_words
from autograder.failure import CheckFailed
from autograder.grade import Outcome
from autograder.judge import Case, Judge, LiveWorld
from autograder.scenario import ALLOWED

PAIRS = 15
ATTEMPTS = 3
QUIET = (0.8, 1.25)  # of the reference to itself; else the machine says nothing
RANKS, NUMEL = 4, (16 << 20) // 4  # 16 MiB of float32
AGREES = (1 / 1.5, 1.5)
CALLS = 3  # in a turn, so that what a turn costs besides them is little
LEADERBOARD = "Bus bandwidth of all_reduce, over the reference's"
_TIMED = Case("collectives", "timed", RANKS, allowed=ALLOWED)
_CLOCKED = Case("bandwidth", "clocked_all_reduce", RANKS)
_MEASURE = Case("bandwidth", "measure_for_real", RANKS)

Turn = Callable[[LiveWorld], float]
"""What a world, which is running then, takes for one turn, in seconds."""


class TooNoisy(CheckFailed):
    """Nothing can be told on this machine now, about anybody."""

    def __init__(self) -> None:
        super().__init__(
            "not scored: the machine was too noisy for anything to be measured on it; the "
            "reference did not even agree with itself",
            outcome=Outcome.TOO_NOISY,
        )


def paired_ratio(ours: LiveWorld, theirs: LiveWorld, turn: Turn) -> float:
    """The median of `PAIRS` ratios of ours to theirs."""
    logs = []
    for pair in range(PAIRS + 1):
        took = {}
        for world in (ours, theirs) if pair % 2 == 0 else (theirs, ours):
            with world.running():
                took[world] = turn(world)
        logs.append(math.log(took[ours] / took[theirs]))
    return math.exp(statistics.median(logs[1:]))  # the first pair warms up


def best_ratio(good: Callable[[float], bool], measure: Callable[[], float]) -> float:
    """The first good ratio of up to `ATTEMPTS`, or else the one nearest to 1."""
    ratios = []
    for _ in range(ATTEMPTS):
        ratios.append(measure())
        if good(ratios[-1]):
            return ratios[-1]
    return min(ratios, key=lambda ratio: abs(math.log(ratio)))


def require_agreement(judge: Judge) -> None:
    """What `measure` says of torch's all_reduce must be what the grader's own clock says.

    Raises:
        CheckFailed: it does not.
        TooNoisy: the reference's does not either.
    """
    size = size_in_words(4 * NUMEL)
    judge.note({"world size": str(RANKS), "operation": "torch's all_reduce", "size": size})
    with judge.live(_CLOCKED, of_reference=True) as clocked:

        def turn(world: LiveWorld) -> float:
            answer = world.call([{"numel": NUMEL}] * RANKS)
            took = [answer.get(rank, "seconds", float) for rank in range(RANKS)]
            if not all(0 < one < math.inf for one in took):
                raise CheckFailed("measure reports a time that is not above 0")
            return max(took)

        with judge.live(_MEASURE) as ours:
            ratio = best_ratio(_agrees, lambda: paired_ratio(ours, clocked, turn))
        if _agrees(ratio):
            return
        with judge.live(_MEASURE, of_reference=True) as reference:
            if not is_quiet(paired_ratio(reference, clocked, turn)):
                raise TooNoisy
    raise CheckFailed(
        f"measure reports {ratio:.2g} times the seconds that the grader's own clock tells; it "
        f"should be within {AGREES[0]:.2f} and {AGREES[1]:.2f} times"
    )


def is_quiet(ratio: float) -> bool:
    """Whether a ratio of the reference to itself is near enough to 1."""
    return QUIET[0] <= ratio <= QUIET[1]


def _agrees(ratio: float) -> bool:
    return AGREES[0] <= ratio <= AGREES[1]


def score_all_reduce(judge: Judge) -> Score | None:
    """What the submission's all_reduce takes, as a ratio to the reference's; None: too noisy.

    On zeros, whose sums stay zeros however often; what the ranks hold after a last call, with
    other numbers, must be right.

    Raises:
        CheckFailed: it is not.
    """
    nbytes = 4 * NUMEL
    judge.note({"world size": str(RANKS), "dtype": "float32", "size": size_in_words(nbytes)})

    def turn(world: LiveWorld) -> float:
        return world.call(_inputs(CALLS, [None] * RANKS)).seconds

    def scored(ratio: float) -> Score:
        return score_measured(ratio, RANKS, nbytes)

    with judge.live(_TIMED, of_reference=True) as reference:
        with judge.live(_TIMED) as ours:
            ratio = best_ratio(
                lambda ratio: scored(ratio).part == 1, lambda: paired_ratio(ours, reference, turn)
            )
            _require_right_sums(judge, ours)
        judge.leaderboard[LEADERBOARD] = round(1 / ratio, 2)
        if scored(ratio).part == 1:
            return scored(ratio)
        with judge.live(_TIMED, of_reference=True) as again:
            if is_quiet(paired_ratio(again, reference, turn)):
                return scored(ratio)
        del judge.leaderboard[LEADERBOARD]
        return None


def _inputs(calls: int, fills: Sequence[float | None]) -> list[dict[str, Any]]:
    return [{"elements": NUMEL, "calls": calls, "fill": fill} for fill in fills]


def _require_right_sums(judge: Judge, world: LiveWorld) -> None:
    numbers = [int(one) for one in judge.seed.generator().integers(1, 1000, size=RANKS)]
    with world.running():
        answer = world.call(_inputs(1, [float(one) for one in numbers]))
    for rank in range(RANKS):
        sample = answer.get(rank, "sample", torch.Tensor)
        if not torch.equal(sample, torch.full((len(sample),), float(sum(numbers)))):
            raise CheckFailed(
                f"rank {rank}'s result is wrong after several calls with the same tensor, so its "
                "cost does not count"
            )
