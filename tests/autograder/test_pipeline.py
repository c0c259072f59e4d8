"""What the grader itself says of schedules and of small models cut into stages."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autograder.failure import CheckFailed
from autograder.pipeline import (
    Net,
    Schedule,
    Training,
    bubble,
    differs,
    drawn_schedule,
    even_net,
    gpipe,
    one_at_a_time,
    one_f_one_b,
    peaks,
    plain_net,
    require_neighbours,
    require_valid,
    score_boundaries,
    score_makespan,
    what_is_invalid,
)
from multirank import Mark, Operation, Trace

counts = st.integers(1, 8)


@given(p=counts, m=counts)
def test_the_usual_schedules_have_the_figures_of_the_papers(p: int, m: int) -> None:
    idle = Fraction(p - 1, m + p - 1)
    assert bubble(gpipe(p, m)) == bubble(one_f_one_b(p, m)) == idle
    assert peaks(gpipe(p, m)) == [m] * p
    assert peaks(one_f_one_b(p, m)) == [min(m, p - stage) for stage in range(p)]
    assert bubble(one_at_a_time(p, m)) == 1 - Fraction(1, p)


@given(p=counts, m=counts, seed=st.integers(0, 99))
def test_what_is_drawn_at_random_is_valid(p: int, m: int, seed: int) -> None:
    schedule = drawn_schedule(np.random.default_rng(seed), p, m)
    assert what_is_invalid(schedule, m) == ""
    assert bubble(schedule) >= bubble(gpipe(p, m))


F0, F1, B0, B1 = ("F", 0), ("F", 1), ("B", 0), ("B", 1)


@pytest.mark.parametrize(
    ("schedule", "m", "told"),
    [
        ([[F0, B0]], 2, "B1 is missing"),
        ([[F0, B0, B0]], 1, "more than once"),
        ([[F0, ("?", -1)]], 1, "not F or B"),
        ([[F0, F1, B0, B1]], 1, "not F or B"),
        ([[B0, F0]], 1, "B0 comes before F0"),
        ([[F0, F1, B0, B1], [F1, F0, B0, B1]], 2, "another order of F"),
        ([[F0, F1, B0, B1], [F0, F1, B1, B0]], 2, "another order of B"),
        ([[F0, B0, F1, B1], [F0, F1, B0, B1]], 2, "wait for one another (stage 0 at B0"),
    ],
)
def test_what_is_wrong_with_a_schedule_is_told(schedule: Schedule, m: int, told: str) -> None:
    assert told in what_is_invalid(schedule, m)
    with pytest.raises(CheckFailed, match="is not valid"):
        require_valid("gpipe", schedule, len(schedule), m)


def test_a_warm_up_that_is_not_clamped_is_recognized() -> None:
    unclamped: Schedule = [[F0, F1, B0, B1], [F0, F1, B0, B1], [F0, B0, F1, B1]]
    with pytest.raises(CheckFailed) as failed:
        require_valid("one_f_one_b", unclamped, 3, 1)
    assert failed.value.causes == ("consistent with a warm-up longer than there are micro-batches",)


def test_shapes_are_known_where_they_enter_a_stage() -> None:
    net = Net(
        ((("embedding", 6), ("transpose", 0)), (("linear", 5), ("float32", 0))), (3,), "int64"
    )
    assert net.boundaries == [((3,), "int64"), ((6, 3), "float64"), ((6, 5), "float32")]
    weights = net.draw_weights(np.random.default_rng(0))
    assert [tuple(one.shape) for of_stage in weights for one in of_stage] == [(11, 6), (5, 3)]
    assert plain_net(3).boundaries[1:3] == [((3, 5), "float64"), ((3, 8), "float64")]


def test_close_is_close_for_the_precision_of_the_net() -> None:
    right = torch.ones(3, dtype=torch.float64)
    single = Net(((("float32", 0),),))
    assert differs(right + 1e-7, right, single) == ""
    assert differs(right + 1e-7, right, plain_net(1)) == "all 3 elements are wrong"
    assert differs(None, right, plain_net(1)) == "there is no tensor"
    assert differs(right * torch.nan, right, single) != ""


# --- Cost, on traces made by hand ---------------------------------------------------------------

TRAINING = Training(even_net(2), gpipe(2, 1), (1,))
NBYTES = 3 * 64 * 8


def message(source: int, target: int, nbytes: int, at: float) -> list[Operation]:
    common = {"tag": 0, "reduce_op": None, "dtype": "float64", "shape": (), "nbytes": nbytes}
    both = ((source, "send", target), (target, "recv", source))
    return [
        Operation(
            rank=rank,
            id=int(at * 10),
            name=name,
            group=(0, 1),
            peer=peer,
            issued=at,
            file="a.py",
            line=1,
            waited=at + 0.01,
            completed=at + 0.02,
            **common,  # type: ignore[arg-type]
        )
        for rank, name, peer in both
    ]


def test_bytes_count_once_and_metadata_not_at_all() -> None:
    forth, back = message(0, 1, NBYTES, 1.0), message(1, 0, NBYTES, 2.0)
    header = message(0, 1, 256, 0.5)
    once = Trace([*header, *forth, *back], [])
    assert score_boundaries(TRAINING, once, both_ways=True).part == 1
    twice = Trace([*forth, *message(0, 1, NBYTES, 1.5), *back], [])
    score = score_boundaries(TRAINING, twice, both_ways=True)
    assert score.part == Fraction(1, 4)
    assert "stage 0 sends 2.00 times the bytes of its outputs to stage 1" in score.why


def test_who_is_no_neighbour_must_not_talk() -> None:
    training = Training(even_net(3), gpipe(3, 1), (1,))
    require_neighbours(training, Trace(message(0, 1, 8, 1.0), []))
    with pytest.raises(CheckFailed, match="not its neighbour"):
        require_neighbours(training, Trace(message(0, 2, 8, 1.0), []))


def test_time_is_that_of_messages_and_of_declared_compute() -> None:
    computes = [Mark(0, "compute", "F", 0.5, 1.0), Mark(1, "compute", "F", 1.5, 1.0)]
    trace = Trace(message(0, 1, NBYTES, 1.0), computes)
    assert score_makespan(TRAINING, trace, 0.5, 2.5, "so").part == 1
    late = score_makespan(TRAINING, trace, 0.5, 2.0, "so")
    assert late.part == Fraction(3, 4)
    assert "1.25 times as long as it must" in late.why
