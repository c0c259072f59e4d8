"""Measured for real, in seconds: ratios alone, of two worlds that take turns on the machine.

Nothing else in a grade depends on how fast a computer is. A ratio of two times does not either, if
noise hits both alike: so both worlds are alive all the time, one is stopped while the other runs,
who begins alternates, and the median of the pairs counts. It is tried again before anybody loses
points, and before they do, the reference has to agree with itself.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch

from autograder import traffic
from autograder.backend import Backend
from autograder.cost import Score, score_measured, size_in_words
from autograder.failure import CheckFailed
from autograder.grade import Outcome
from autograder.judge import Answer, Case, Judge, LiveWorld, refuse_late
from autograder.scenario import ALLOWED

PAIRS = 15
ATTEMPTS = 3
HOPELESS = 2
QUIET = (0.8, 1.25)  # of the reference to itself; else the machine says nothing
AGREES = (1 / 1.5, 1.5)
MODULUS = 4093  # of the numbers that are summed: prime, so that no chunk is like another
_SAMPLES, _SAMPLE = 16, 64  # so many pieces of each result are looked at, each so long
LEADERBOARD = "Bus bandwidth of all_reduce, over the reference's"

Turn = Callable[[LiveWorld], float]
"""What a world, which is running then, takes for one turn, in seconds."""


@dataclass(frozen=True)
class Setting:
    """What is measured.

    ranks: how many. numel: elements, of float32. calls: in a turn, so that what it costs besides is
    little. room: how many times the reference's time is as good.
    """

    ranks: int
    numel: int
    calls: int
    room: Fraction

    @property
    def facts(self) -> dict[str, str]:
        """What a student is told about it."""
        size = size_in_words(4 * self.numel)
        return {"world size": str(self.ranks), "dtype": "float32", "size": size}


def setting(backend: Backend) -> Setting:
    """In main memory 16 MiB on 4 ranks; on GPUs 64 MiB on all that there are, or on two."""
    if backend.on_gpus:
        return Setting(max(2, backend.gpus), (64 << 20) // 4, 20, Fraction(5, 4))
    return Setting(4, (16 << 20) // 4, 2, Fraction(3, 2))


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


def best_ratio(measure: Callable[[], float], most: float, least: float = 0.0) -> float:
    """The first ratio from `least` to `most` of up to `ATTEMPTS`, or else the one nearest to 1.

    A ratio beyond `HOPELESS` times those is no noise, and not measured again.
    """
    ratios = []
    for _ in range(ATTEMPTS):
        ratio = measure()
        if least <= ratio <= most:
            return ratio
        ratios.append(ratio)
        if not least / HOPELESS <= ratio <= most * HOPELESS:
            break
    return min(ratios, key=lambda ratio: abs(math.log(ratio)))


def require_agreement(judge: Judge) -> None:
    """What `measure` says of torch's all_reduce must be what the grader's own clock says.

    Raises:
        CheckFailed: it does not.
        TooNoisy: the reference's does not either.
    """
    used = setting(judge.backend)
    clock, measure = (
        Case("bandwidth", function, used.ranks)
        for function in ("clocked_all_reduce", "measure_for_real")
    )
    judge.note(used.facts | {"operation": "torch's all_reduce"})
    with judge.live(clock, of_reference=True) as clocked:

        def turn(world: LiveWorld) -> float:
            answer = world.call([{"numel": used.numel}] * used.ranks)
            return _seconds(answer, used.ranks, "measure reports")

        with judge.live(measure) as ours, judge.alone():
            ratio = best_ratio(lambda: paired_ratio(ours, clocked, turn), AGREES[1], AGREES[0])
        if AGREES[0] <= ratio <= AGREES[1]:
            return
        with judge.live(measure, of_reference=True) as reference, judge.alone():
            if not is_quiet(paired_ratio(reference, clocked, turn)):
                raise TooNoisy
    raise CheckFailed(
        f"measure reports {ratio:.2g} times the seconds that the grader's own clock tells; it "
        f"should be within {AGREES[0]:.2f} and {AGREES[1]:.2f} times"
    )


def is_quiet(ratio: float) -> bool:
    """Whether a ratio of the reference to itself is near enough to 1."""
    return QUIET[0] <= ratio <= QUIET[1]


def score_all_reduce(judge: Judge) -> Score | None:
    """What the submission's all_reduce takes, as a ratio to the reference's; None: too noisy.

    Each rank has other numbers, and new ones for each call; what comes out of each must be right.

    Raises:
        CheckFailed: it is not.
    """
    used = setting(judge.backend)
    case = Case("collectives", "timed", used.ranks, allowed=ALLOWED)
    judge.note(used.facts)
    rng = judge.seed.generator("timed")

    def turn(world: LiveWorld) -> float:
        return _turn(world, used, rng, by_ranks=judge.backend.on_gpus)

    def scored(ratio: float) -> Score:
        return score_measured(ratio, used.ranks, 4 * used.numel, used.room)

    with judge.live(case, of_reference=True) as reference:
        with judge.live(case) as ours, judge.alone():
            ratio = best_ratio(lambda: paired_ratio(ours, reference, turn), float(used.room))
        judge.leaderboard[LEADERBOARD] = round(1 / ratio, 2)
        if scored(ratio).part == 1:
            return scored(ratio)
        with judge.live(case, of_reference=True) as again, judge.alone():
            if is_quiet(paired_ratio(again, reference, turn)):
                return scored(ratio)
        del judge.leaderboard[LEADERBOARD]
        return None


def _turn(world: LiveWorld, used: Setting, rng: np.random.Generator, by_ranks: bool) -> float:
    """Seconds of some all_reduces of new numbers, whose results are right.

    All of their messages must be sent while the clock runs: the traces are looked at when it has
    been read.

    by_ranks: by the ranks' own clocks; else by ours.

    Raises:
        CheckFailed: a result is wrong, or was made at another time.
    """
    calls = used.calls + by_ranks  # GPUs meet in one that is not timed
    numbers = rng.integers(1, MODULUS, size=(used.ranks, calls, 2))
    filled = world.call(
        [
            {"do": "fill", "elements": used.numel, "modulus": MODULUS, "numbers": own.tolist()}
            for own in numbers
        ]
    )
    timed = world.call([{"do": "sum"}] * used.ranks)
    last = used.numel - _SAMPLE
    starts = [0, *rng.integers(0, last + 1, size=_SAMPLES - 2).tolist(), last]
    shown = world.call([{"do": "show", "starts": starts, "length": _SAMPLE}] * used.ranks)
    refuse_late(filled.trace)
    refuse_late(shown.trace)
    index = np.array(starts)[:, None] + np.arange(_SAMPLE)
    for rank in range(used.ranks):
        pieces = shown.get(rank, "pieces", list)
        for place in range(calls):
            terms = (index * a + b for a, b in numbers[:, place])
            expected = torch.from_numpy(sum(one % MODULUS for one in terms)).float()
            found = pieces[place] if place < len(pieces) else None
            if not isinstance(found, torch.Tensor) or not torch.equal(found, expected):
                raise CheckFailed(
                    f"rank {rank}'s result is wrong in one of many calls, so its cost does not "
                    "count"
                )
    for odd in traffic.too_little(timed.trace, "all_reduce", used.ranks, calls * 4 * used.numel):
        raise CheckFailed(f"{odd}; its cost does not count")
    return _seconds(timed, used.ranks, "the ranks report") if by_ranks else timed.seconds


def _seconds(answer: Answer, ranks: int, who: str) -> float:
    """What the slowest rank reports.

    Raises:
        CheckFailed: that is no time, or one does not report any.
    """
    took = float(np.max([answer.get(rank, "seconds", float) for rank in range(ranks)]))
    if not 0 < took < math.inf:
        raise CheckFailed(f"{who} a time that is not above 0")
    return took
