"""Probes say what is right; what ranks give in place of numbers and events is never trusted."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from autograder.bandwidth import (
    OPERATIONS,
    Measured,
    factor,
    measured,
    require_measurement,
    wrong_bandwidth,
    wrong_factor,
    wrong_size,
)
from autograder.failure import CheckFailed
from autograder.timing import Probe, checked_events, is_close, launched
from multirank.modelling.virtual_device import LAUNCH

EVENTS = [["clock", 0.0, 1000.0], ["launch", 0.0, 64], ["kernel", 0.1, "aten.fill_"]]
TOLD: dict[str, Any] = {
    **{"op": "all_reduce", "dtype": "float32", "world_size": 4, "own": None},
    **{"size_bytes": 64.0, "seconds": 0.5, "bandwidth": 192.0},
}


def test_the_slowest_rank_of_each_timed_call_and_their_median_are_right() -> None:
    probe = Probe([{"durations": [9.0, 1.0, 2.0, 3.0]}, {"durations": [9.0, 5.0, 1.0]}])
    assert probe.seconds() == 3.0 + LAUNCH


def test_bytes_come_on_top_where_a_device_says_so() -> None:
    probe = Probe([{"durations": [1.0], "seconds_per_byte": 0.5}])
    assert probe.seconds(4) == 3.0 + LAUNCH


def test_ranks_outside_the_group_get_no_inputs() -> None:
    probe = Probe([{"durations": [1.0]}] * 2, members=(1, 3))
    assert [given is None for given in probe.inputs()] == [True, False, True, False]


def test_events_are_taken_as_they_are_noted_down() -> None:
    assert checked_events(0, EVENTS) == EVENTS
    assert launched(EVENTS) == [64]


@pytest.mark.parametrize(
    "found",
    [
        None,
        "events",
        ["clock"],
        [["clock", 0.0]],
        [["clock", 0.0, "noon"]],
        [["clock", "noon", 0.0]],
        [["clock", 10**400, 0.0]],
        [["launch", 0.0, "64"]],
        [["barrier", 0.0, 1.0]],
        [EVENTS[0]] * 10_001,
    ],
)
def test_anything_else_is_no_answer(found: object) -> None:
    with pytest.raises(CheckFailed, match="gave no answer"):
        checked_events(0, found)


def test_not_a_number_is_close_to_nothing() -> None:
    assert is_close(1.00001, 1.0)
    for found in (math.nan, math.inf, 1.001, 0.0):
        assert not is_close(found, 1.0)


def test_factors_are_those_of_nccl_tests() -> None:
    assert factor("all_reduce", 4) == Fraction(3, 2)
    assert factor("all_to_all", 4) == factor("gather", 4) == Fraction(3, 4)
    assert factor("broadcast", 1) == 1
    assert factor("all_reduce", 1) == 0
    assert len(OPERATIONS) == 8


def test_wrong_numbers_are_named_after_their_mistake() -> None:
    assert "half of an all_reduce" in wrong_factor(2 / 3, 3)[0]
    assert wrong_factor(0.123, 3) == []
    assert "elements" in wrong_size(16.0, 64, 4, 3)[0]
    assert wrong_bandwidth(192.0, "all_reduce", 64, 4, 0.5) is None
    assert wrong_bandwidth(192.0 * 8, "all_reduce", 64, 4, 0.5) == [
        "consistent with bits, where bytes are asked for"
    ]
    assert wrong_bandwidth(math.nan, "all_reduce", 64, 4, 1e300) == []


def test_the_submissions_own_formula_is_right_enough_where_another_thing_is_asked() -> None:
    assert wrong_bandwidth(7.0, "all_reduce", 64, 4, 0.5, own=7.0) is None
    assert wrong_bandwidth(7.0, "all_reduce", 64, 4, 0.5, own=8.0) == []


def test_a_measurement_is_taken_as_it_is_told() -> None:
    one = measured(0, TOLD)
    assert one == Measured("all_reduce", "float32", 4, 64.0, 0.5, 192.0, None)
    require_measurement("it", one, "all_reduce", "float32", 64, 4)


@pytest.mark.parametrize(
    "change", [{"op": 1}, {"world_size": "4"}, {"seconds": None}, {"bandwidth": [1.0]}]
)
def test_anything_else_is_no_measurement(change: dict[str, Any]) -> None:
    with pytest.raises(CheckFailed, match="gave no answer"):
        measured(0, TOLD | change)
    with pytest.raises(CheckFailed, match="gave no answer"):
        measured(0, None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"size_bytes": 16.0}, "another S"),
        ({"size_bytes": math.inf}, "another S"),
        ({"world_size": 2}, "another op, dtype or world_size"),
        ({"seconds": 0.0}, "a time that is not above 0"),
        ({"seconds": math.nan}, "a time that is not above 0"),
        ({"bandwidth": 1.0}, "another bandwidth"),
    ],
)
def test_what_is_wrong_with_a_measurement_is_said(change: dict[str, Any], said: str) -> None:
    with pytest.raises(CheckFailed, match=said):
        require_measurement("it", measured(0, TOLD | change), "all_reduce", "float32", 64, 4)
