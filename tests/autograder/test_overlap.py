"""What a step sends, and when: by traces that are written down here."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from autograder.failure import CheckFailed
from autograder.inputs import Seed, known_secret
from autograder.judge import Answer
from autograder.overlap import (
    FORWARD,
    best_times,
    fabric,
    require_buckets,
    require_messages,
    require_overlap,
    require_quiet,
    score_step,
    step_times,
)
from autograder.training import Training, Weight
from multirank import Mark, Operation, Trace

WEIGHTS = (Weight("first", (10,)), Weight("second", (10,)), Weight("third", (10,)))
TRAINING = Training(WEIGHTS, world_size=1, cap=40, steps=1, micro_batches=2)
DRAWN = TRAINING.draw(Seed.of(known_secret(), "test").generator())
# A step from 0 to 10: no_sync from 1 to 3, and backward from 5 to 8.
MARKS = [
    Mark(0, "begin", "step 0", 0.0),
    Mark(0, "begin", "no_sync 0", 1.0),
    Mark(0, "compute", "backward first", 2.0),
    Mark(0, "end", "no_sync 0", 3.0),
    Mark(0, "compute", "backward third", 5.0),
    Mark(0, "compute", "backward second", 6.0),
    Mark(0, "compute", "backward first", 7.0),
    Mark(0, "end", "step 0", 10.0),
]
ONE_BACKWARD = [one for one in MARKS if one.time > 3.5 or one.time < 0.5]


def message(issued: float, nbytes: int = 40, **more: Any) -> Operation:
    given: dict[str, Any] = {"group": (0,), "waited": 9.0, "completed": 9.5} | more
    return Operation(
        rank=0,
        id=0,
        name="all_reduce",
        peer=None,
        tag=None,
        reduce_op="SUM",
        dtype="float32",
        shape=(nbytes // 4,),
        nbytes=nbytes,
        issued=issued,
        file="ddp.py",
        line=7,
        **given,
    )


GOOD = [message(5.5), message(6.5), message(7.5)]


def answer(operations: list[Operation], marks: list[Mark] = MARKS) -> Answer:
    return Answer([{"buckets": [40, 40, 40]}], Trace(operations, marks))


# --- How much -------------------------------------------------------------------------------------


def test_a_message_for_each_bucket_is_right() -> None:
    require_buckets(DRAWN, answer(GOOD), 0)
    require_quiet(DRAWN, answer(GOOD), 0)


def test_a_byte_for_each_parameter_is_free_once() -> None:
    require_messages("it", [*GOOD, message(9.0, 3)], WEIGHTS, 3, "")
    with pytest.raises(CheckFailed, match="123 bytes are communicated"):
        require_messages("it", [*GOOD, message(9.0, 3), message(9.0, 3)], WEIGHTS, 3, "")


def test_gradients_that_travel_twice_are_named() -> None:
    with pytest.raises(CheckFailed, match="240 bytes") as told:
        require_buckets(DRAWN, answer([*GOOD, *GOOD]), 0)
    assert "communicated 2 times" in told.value.causes[0]


def test_a_wider_dtype_is_named() -> None:
    wide = [replace(one, dtype="float64", nbytes=80) for one in GOOD]
    with pytest.raises(CheckFailed) as told:
        require_messages("it", wide, WEIGHTS, 3, "")
    assert "a wider dtype" in told.value.causes[0]


def test_what_is_sent_for_frozen_parameters_is_named() -> None:
    frozen = (*WEIGHTS, Weight("frozen", (10,), trainable=False))
    with pytest.raises(CheckFailed) as told:
        require_messages("it", [*GOOD, message(7.6)], frozen, 4, "")
    assert "not trainable" in told.value.causes[0]


def test_too_many_calls_and_too_large_ones_are_refused() -> None:
    with pytest.raises(CheckFailed, match="6 calls; 4 are enough"):
        require_buckets(DRAWN, answer([message(5.5, 20)] * 6), 0)
    with pytest.raises(CheckFailed, match="more than a bucket may hold"):
        require_buckets(DRAWN, answer([message(7.5, 120)]), 0)


def test_the_own_partition_counts_where_it_is_another() -> None:
    own = Answer([{"buckets": [120]}], Trace([message(7.5, 120)], MARKS))
    require_buckets(DRAWN, own, 0)


def test_whatever_is_sent_in_no_sync_is_found() -> None:
    with pytest.raises(CheckFailed, match=r"inside no_sync \(ddp.py, line 7\)"):
        require_quiet(DRAWN, answer([message(2.5)]), 0)


# --- When -----------------------------------------------------------------------------------------


def overlap(operations: list[Operation]) -> None:
    require_overlap(DRAWN, answer(operations, ONE_BACKWARD), 0)


def test_what_is_issued_while_backward_runs_and_waited_for_after_it_is_right() -> None:
    overlap(GOOD)
    overlap([replace(one, waited=7.2) for one in GOOD[:2]])


@pytest.mark.parametrize(
    ("operations", "told"),
    [
        ([message(7.5), message(8.0)], "issues nothing before the last gradient is ready"),
        ([], "issues nothing"),
        ([replace(GOOD[0], waited=5.6), *GOOD[1:]], "while backward has gradients yet"),
        ([replace(GOOD[0], completed=None), *GOOD[1:]], "has not waited"),
        ([replace(GOOD[0], completed=10.5), *GOOD[1:]], "has not waited"),
    ],
)
def test_anything_else_is_not(operations: list[Operation], told: str) -> None:
    with pytest.raises(CheckFailed, match=told):
        overlap(operations)


def test_a_trace_without_the_marks_is_no_answer() -> None:
    with pytest.raises(CheckFailed, match="gave no answer"):
        require_overlap(DRAWN, answer(GOOD, MARKS[:-1]), 0)
    with pytest.raises(CheckFailed, match="gave no answer"):
        require_overlap(DRAWN, answer(GOOD, [*ONE_BACKWARD, MARKS[2], MARKS[6]]), 0)


# --- How long -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [1e-3, 4e-3])
def test_the_networks_take_what_the_docstring_says(seconds: float) -> None:
    assert fabric(seconds, 256, 4).collective("all_reduce", 4, 256) == pytest.approx(seconds)


def test_the_best_step_hides_all_that_can_be_hidden() -> None:
    best = best_times(8, 256, 4)
    assert best == pytest.approx({"the faster network": 25e-3, "the slower network": 42e-3})


def test_a_step_without_overlap_takes_as_long_as_the_docstring_says() -> None:
    marks = [Mark(0, "begin", "step 1", 0.0)]
    marks += [Mark(0, "compute", f"{i}", 1.0 + i, FORWARD) for i in range(8)]
    marks += [Mark(0, "compute", f"{i}", 11.0 + i, 2 * FORWARD) for i in range(8)]
    marks += [Mark(0, "end", "step 1", 30.0)]
    sent = [message(20.0 + i / 10, 256, waited=22.0 + i / 10, group=(0, 1, 2, 3)) for i in range(8)]
    everybody = Trace(
        [replace(one, rank=rank, id=i) for rank in range(4) for i, one in enumerate(sent)],
        [replace(one, rank=rank) for rank in range(4) for one in marks],
    )
    found = step_times(everybody, range(4), "step 1", 256)
    assert found == pytest.approx({"the faster network": 32e-3, "the slower network": 56e-3})
    score = score_step(found, best_times(8, 256, 4))
    assert score.part == 0
    assert "1.33 times" in score.why


@pytest.mark.parametrize(
    ("times", "part"), [(1.0, "1"), (1.1, "1"), (1.11, "1/2"), (1.2, "1/2"), (1.21, "0")]
)
def test_the_worse_network_counts(times: float, part: str) -> None:
    best = {"a": 1.0, "b": 2.0}
    assert score_step({"a": 1.0, "b": 2 * times}, best).part == Fraction(part)
