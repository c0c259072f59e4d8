"""What counts is the busiest rank, in its busier direction, in steps over the bound."""

from __future__ import annotations

from fractions import Fraction

import pytest

from autograder.paths import REFERENCE
from autograder.traffic import BANDS, Moved, busiest, credit
from multirank import Operation, Trace

BOUND = 1000 * 4


def operation(rank: int, name: str, nbytes: int) -> Operation:
    return Operation(
        rank=rank,
        id=0,
        name=name,
        group=(0, 1, 2),
        peer=0,
        tag=0,
        reduce_op=None,
        dtype="float32",
        shape=(nbytes // 4,),
        nbytes=nbytes,
        issued=0.0,
        file="collectives.py",
        line=1,
    )


def moved(elements: float, messages: int = 0) -> Moved:
    return Moved(0, "sent", round(4 * elements), messages)


def test_sending_and_receiving_are_counted_apart() -> None:
    trace = Trace([operation(0, "send", 40), operation(0, "recv", 60), operation(1, "send", 60)])
    assert busiest(trace, 3) == Moved(0, "received", 60, 1)


def test_the_messages_of_one_rank_and_direction_add_up() -> None:
    trace = Trace([operation(2, "recv", 40), operation(2, "recv", 40), operation(1, "send", 60)])
    assert busiest(trace, 3) == Moved(2, "received", 80, 2)


def test_nobody_having_moved_anything_is_nothing_moved() -> None:
    assert busiest(Trace(), 2).nbytes == 0


@pytest.mark.parametrize(
    ("ratio", "part"),
    [
        *((0.0, "1"), (0.5, "1"), (1.0, "1"), (1.05, "1"), (1.051, "3/4"), (1.6, "3/4")),
        *((1.601, "1/2"), (2.2, "1/2"), (2.201, "1/4"), (3.2, "1/4"), (3.201, "0"), (7, "0")),
    ],
)
def test_credit_falls_in_the_steps_that_the_docstring_states(ratio: float, part: str) -> None:
    assert credit(moved(1000 * ratio), BOUND, 4) == Fraction(part)


def test_one_element_a_message_is_free() -> None:
    assert credit(moved(1051 * 1.05 // 1, messages=51), BOUND, 4) == 1
    assert credit(moved(1051 * 1.05 // 1, messages=0), BOUND, 4) < 1


def test_the_bands_are_those_of_the_docstring() -> None:
    text = " ".join((REFERENCE / "collectives.py").read_text().split())
    assert (
        "Up to 1.05 times the bound earns all points for cost, 1.6 times three quarters, 2.2 times "
        "half, and 3.2 times a quarter."
    ) in text
    assert [(float(limit), float(part)) for limit, part in BANDS] == [
        *((1.05, 1), (1.6, 0.75), (2.2, 0.5), (3.2, 0.25))
    ]
