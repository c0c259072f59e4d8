"""Measured ratios: pairs in turns, a good one of three counts, and noise costs nobody anything."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from autograder import collective
from autograder.cost import Score
from autograder.failure import CheckFailed
from autograder.grade import Outcome
from autograder.grading import Credit
from autograder.inputs import Seed, known_secret
from autograder.judge import Answer, Case, Judge
from autograder.measured import (
    LEADERBOARD,
    MODULUS,
    PAIRS,
    Setting,
    TooNoisy,
    _turn,
    best_ratio,
    paired_ratio,
    require_agreement,
    score_all_reduce,
)
from multirank import Operation, Trace

from .submissions import patched, reference_files


class FakeWorld:
    """Takes as long as it is told, and writes down when it ran."""

    def __init__(self, name: str, seconds: float, turns: list[str]) -> None:
        self.name, self.seconds, self.turns = name, seconds, turns

    @contextmanager
    def running(self) -> Iterator[None]:
        self.turns.append(self.name)
        yield

    def call(self, inputs: Any) -> Answer:
        return Answer([{"seconds": self.seconds}] * len(inputs), Trace())


def took(world: Any) -> float:
    return float(world.seconds)


def test_worlds_take_turns_and_alternate_who_begins() -> None:
    turns: list[str] = []
    ours: Any = FakeWorld("ours", 3.0, turns)
    theirs: Any = FakeWorld("theirs", 2.0, turns)
    assert paired_ratio(ours, theirs, took) == pytest.approx(1.5)
    assert turns[:4] == ["ours", "theirs", "theirs", "ours"]
    assert len(turns) == 2 * (PAIRS + 1)
    assert PAIRS >= 15


def test_single_slow_pairs_and_a_slow_beginning_do_not_count() -> None:
    turns: list[str] = []
    ours: Any = FakeWorld("ours", 1.0, turns)
    theirs: Any = FakeWorld("theirs", 1.0, turns)
    slow = iter([100.0] * 8 + [1.0] * PAIRS)
    assert paired_ratio(ours, theirs, lambda w: next(slow) if w is ours else 1.0) == 1.0


def test_the_first_good_ratio_counts_and_after_three_the_nearest_to_1() -> None:
    ratios = iter([3.0, 1.2, 9.0])
    assert best_ratio(lambda: next(ratios), 1.5) == 1.2
    ratios = iter([3.0, 0.48, 2.0])
    assert best_ratio(lambda: next(ratios), 1.5, 0.9) == 2.0


def test_what_is_far_from_right_is_not_measured_again() -> None:
    ratios = iter([3.01])
    assert best_ratio(lambda: next(ratios), 1.5) == 3.01
    ratios = iter([0.3])
    assert best_ratio(lambda: next(ratios), 1.5, 2 / 3) == 0.3


def judged(monkeypatch: pytest.MonkeyPatch, ours: float, reference: float) -> None:
    """require_agreement, where the grader's clock tells 1 s, and measure these."""
    turns: list[str] = []

    @contextmanager
    def live(self: Judge, case: Case, *, of_reference: bool = False) -> Iterator[Any]:
        clocked = case.function == "clocked_all_reduce"
        yield FakeWorld(
            case.function, 1.0 if clocked else reference if of_reference else ours, turns
        )

    monkeypatch.setattr(Judge, "live", live)
    require_agreement(Judge({}, {}, Seed.of(known_secret(), "x"), lambda: 100.0))


@pytest.mark.parametrize("ours", [0.67, 1.0, 1.49])
def test_a_measurement_within_half_as_much_again_either_way_agrees(
    monkeypatch: pytest.MonkeyPatch, ours: float
) -> None:
    judged(monkeypatch, ours, math.nan)


@pytest.mark.parametrize("ours", [0.6, 1.6, 1000.0])
def test_another_one_fails_where_the_reference_agrees(
    monkeypatch: pytest.MonkeyPatch, ours: float
) -> None:
    with pytest.raises(CheckFailed, match="times the seconds that the grader's own clock") as told:
        judged(monkeypatch, ours, 1.2)
    assert told.value.outcome is Outcome.FAILED


@pytest.mark.parametrize("reference", [0.7, 1.3])
def test_where_the_reference_does_not_agree_either_nothing_is_scored(
    monkeypatch: pytest.MonkeyPatch, reference: float
) -> None:
    with pytest.raises(TooNoisy, match="not scored: the machine was too noisy") as told:
        judged(monkeypatch, 1.6, reference)
    assert told.value.outcome is Outcome.TOO_NOISY


@pytest.mark.parametrize("ours", [0.0, math.nan, math.inf, -1.0])
def test_times_that_there_cannot_be_are_refused(
    monkeypatch: pytest.MonkeyPatch, ours: float
) -> None:
    with pytest.raises(CheckFailed, match="not above 0"):
        judged(monkeypatch, ours, 1.0)


# --- The student's all_reduce -------------------------------------------------------------------


CALLS = 2  # in a turn
MESSAGES = CALLS * 4 * 6  # 4 ranks, a ring of 6 steps
MESSAGE = Operation(
    *(0, 1, "send", (0, 1, 2, 3), 1, 0, None, "float32", (1 << 20,), 4 << 20, 0.0),
    *("collectives.py", 7),
    completed=1.0,
)


class FakeAllReduce(FakeWorld):
    """Of four ranks, which sum right unless it is told otherwise.

    sends: how many messages of 4 MiB each call records. given: the numbers of every turn.
    """

    def __init__(
        self, seconds: float, right: bool = True, sends: Mapping[str, int] | None = None
    ) -> None:
        super().__init__("", seconds, [])
        self.right = right
        self.sends = {"sum": MESSAGES} if sends is None else sends
        self.given: list[Any] = []

    def call(self, inputs: Any) -> Answer:
        do = inputs[0]["do"]
        outputs: list[dict[str, Any]] = [{}] * 4
        if do == "fill":
            self.given.append([own["numbers"] for own in inputs])
        if do == "show":
            outputs = [{"pieces": [self.sums(call, inputs[0]) for call in range(CALLS)]}] * 4
        trace = Trace([MESSAGE] * self.sends.get(do, 0))
        return Answer(outputs, trace, self.seconds if do == "sum" else 99.0)

    def sums(self, call: int, asked: Any) -> torch.Tensor:
        index = torch.tensor(asked["starts"])[:, None] + torch.arange(asked["length"])
        total = sum((own[call][0] * index + own[call][1]) % MODULUS for own in self.given[-1])
        return torch.as_tensor(total).float() + (0.0 if self.right or call + 1 < CALLS else 1.0)


def all_reduce(
    monkeypatch: pytest.MonkeyPatch,
    ours: float,
    again: float = 1.0,
    right: bool = True,
    sends: Mapping[str, int] | None = None,
) -> tuple[Fraction | None, dict[str, float]]:
    """What an all_reduce earns, and puts on the leaderboard, where the reference takes 1 s.

    ours: what it takes. again: what the reference takes when it is compared with itself.
    """
    references = iter([1.0, again])

    @contextmanager
    def live(self: Judge, case: Case, *, of_reference: bool = False) -> Iterator[Any]:
        if of_reference:
            yield FakeAllReduce(next(references))
        else:
            yield FakeAllReduce(ours, right, sends)

    monkeypatch.setattr(Judge, "live", live)
    judge = Judge({}, {}, Seed.of(known_secret(), "x"), lambda: 100.0)
    score = score_all_reduce(judge)
    return None if score is None else score.part, judge.leaderboard


def test_half_as_much_time_again_as_the_reference_is_all_right_whatever_the_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert all_reduce(monkeypatch, 1.5, again=math.nan)[0] == 1


def test_more_earns_less_where_the_reference_agrees_with_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert all_reduce(monkeypatch, 2.0, again=1.2)[0] == Fraction(3, 4)


def test_the_class_may_compare_bandwidths_where_one_could_be_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert all_reduce(monkeypatch, 0.8)[1] == {LEADERBOARD: 1.25}
    assert all_reduce(monkeypatch, 4.0)[1] == {LEADERBOARD: 0.25}
    assert all_reduce(monkeypatch, 4.0, again=1.3)[1] == {}


@pytest.mark.parametrize("again", [0.79, 1.26])
def test_where_it_does_not_measured_time_is_left_out(
    monkeypatch: pytest.MonkeyPatch, again: float
) -> None:
    assert all_reduce(monkeypatch, 2.0, again=again)[0] is None


def test_the_pool_is_left_to_bytes_and_modelled_time_then(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {"bytes": Score(Fraction(3, 4), "bytes"), "time": Score(Fraction(1), "time")}
    monkeypatch.setattr(collective, "_score_call", lambda *_: tuple(scores.values()))
    judge = Judge({}, {}, Seed.of(known_secret(), "x"), lambda: 100.0)
    for measured, part in ((None, "3/4"), (Fraction(1), "3/4"), (Fraction(1, 4), "1/4")):
        score = None if measured is None else Score(measured, "measured")
        monkeypatch.setattr(collective, "score_all_reduce", lambda _, score=score: score)
        credit = Credit()
        collective.score_large(judge, credit, "all_reduce")
        assert credit.fraction == Fraction(part)


def test_wrong_sums_in_any_of_many_calls_earn_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckFailed, match="wrong in one of many calls"):
        all_reduce(monkeypatch, 1.0, right=False)


@pytest.mark.parametrize("do", ["fill", "show"])
def test_what_communicates_where_nothing_is_timed_earns_nothing(
    monkeypatch: pytest.MonkeyPatch, do: str
) -> None:
    late = r"rank 0 still sends or receives after the call has returned \(collectives.py, line 7\)"
    with pytest.raises(CheckFailed, match=late):
        all_reduce(monkeypatch, 1.0, sends={"sum": MESSAGES, do: 1})


def test_less_than_any_all_reduce_must_send_while_it_is_timed_earns_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert all_reduce(monkeypatch, 1.0, sends={"sum": MESSAGES - 2})[0] == 1
    with pytest.raises(CheckFailed, match=r"sent 168 MiB.*less than 192 MiB.*does not count"):
        all_reduce(monkeypatch, 1.0, sends={"sum": MESSAGES - 6})
    with pytest.raises(CheckFailed, match=r"sent 0 KiB.*less than 192 MiB.*does not count"):
        all_reduce(monkeypatch, 1.0, sends={})


@pytest.mark.parametrize("said", [0.0, -1.0, math.nan, math.inf, -math.inf])
def test_ranks_that_say_times_that_there_cannot_be_earn_nothing(said: float) -> None:
    """On GPUs, where their own clocks count."""

    class Saying(FakeAllReduce):
        def call(self, inputs: Any) -> Answer:
            answer = super().call(inputs)
            if inputs[0]["do"] == "sum":
                answer.outputs[:] = [{"seconds": said}] * 4
            return answer

    world: Any = Saying(1.0)
    used = Setting(4, (16 << 20) // 4, CALLS - 1, Fraction(5, 4))  # and one not timed
    with pytest.raises(CheckFailed, match="a time that is not above 0"):
        _turn(world, used, np.random.default_rng(1), by_ranks=True)


def test_every_call_of_every_rank_has_numbers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds: list[FakeAllReduce] = []

    @contextmanager
    def live(self: Judge, case: Case, *, of_reference: bool = False) -> Iterator[Any]:
        worlds.append(FakeAllReduce(1.0))
        yield worlds[-1]

    monkeypatch.setattr(Judge, "live", live)
    score_all_reduce(Judge({}, {}, Seed.of(known_secret(), "x"), lambda: 100.0))
    numbers = [
        tuple(pair) for world in worlds for turn in world.given for own in turn for pair in own
    ]
    assert len(numbers) == 2 * (PAIRS + 1) * 4 * CALLS
    assert len(set(numbers)) == len(numbers)


# --- Real worlds --------------------------------------------------------------------------------


def test_live_worlds_run_only_in_their_turns() -> None:
    judge = Judge(reference_files(), reference_files(), Seed.of(known_secret(), "x"), lambda: 60.0)
    inputs = [{"numel": 1024}] * 2
    measures = Case("bandwidth", "measure_for_real", 2)
    clocked = Case("bandwidth", "clocked_all_reduce", 2)
    with judge.live(measures) as ours, judge.live(clocked, of_reference=True) as theirs:
        for world in (ours, theirs, ours):
            with world.running():
                assert world.call(inputs).get(0, "seconds", float) > 0


def test_what_a_submission_raises_in_a_live_world_is_its_own_fault() -> None:
    broken = patched({"measure": "raise RuntimeError('oh')"}, file="bandwidth")
    judge = Judge(broken, reference_files(), Seed.of(known_secret(), "x"), lambda: 60.0)
    measures = Case("bandwidth", "measure_for_real", 1)
    with (
        pytest.raises(CheckFailed, match="oh"),
        judge.live(measures) as world,
        world.running(),
    ):
        world.call([{"numel": 1024}])
