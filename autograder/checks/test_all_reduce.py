"""Checks of problem all_reduce."""

from __future__ import annotations

from dataclasses import replace

from autograder.agreement import require_values
from autograder.collective import (
    require_accuracy,
    require_agreement_with_torch,
    require_refusals,
    score_large,
)
from autograder.grading import Credit
from autograder.judge import Judge
from autograder.problem import problem
from autograder.scenario import Scenario, on

FOUR = Scenario("all_reduce", 4, (3, 8))


@problem("all_reduce", share="3/20")
def test_sum(judge: Judge) -> None:
    """The sum, on 1, 2, 3 and 4 ranks."""
    require_values(judge, on(Scenario("all_reduce", 4, (12,)), world_size=(2, 4, 4, 3, 1)))


@problem("all_reduce", share="1/20")
def test_other_operations(judge: Judge) -> None:
    """Minimum, maximum and product."""
    require_values(judge, on(FOUR, op=("max", "min", "product")))


@problem("all_reduce", share="1/10")
def test_average(judge: Judge) -> None:
    """The average, in a sub-group too."""
    require_values(judge, [replace(FOUR, op="avg")])
    require_values(judge, [Scenario("all_reduce", 4, (12,), "avg", members=(0, 2, 3))])
    require_accuracy(judge, "all_reduce", "AVG")


@problem("all_reduce", share="3/20")
def test_sizes_that_do_not_divide(judge: Judge) -> None:
    """Sizes that the ranks do not divide, and sizes below their number."""
    for world_size in (4, 3):
        some = Scenario("all_reduce", world_size)
        require_values(judge, on(some, shape=((13,), (5, 7), (2,), (1,), (), (3,))))


@problem("all_reduce", share="1/10")
def test_sub_group(judge: Judge) -> None:
    """A sub-group whose ranks are not 0, 1, ..."""
    require_values(judge, [Scenario("all_reduce", 4, (12,), members=(1, 3))])
    require_values(judge, [Scenario("all_reduce", 4, (12,), members=(0, 2, 3))])


@problem("all_reduce", share="1/20")
def test_agrees_with_torch(judge: Judge) -> None:
    """The same as torch.distributed gives, and rounding errors no larger than need be."""
    require_agreement_with_torch(judge, [Scenario("all_reduce", 4, (64, 3))])
    require_accuracy(judge, "all_reduce", "SUM")


@problem("all_reduce", share="1/20", kind="edges")
def test_layouts(judge: Judge) -> None:
    """Tensors that are not contiguous."""
    require_values(judge, on(Scenario("all_reduce", 3, (4, 6)), layout=("strided", "transposed")))


@problem("all_reduce", share="1/20", kind="edges")
def test_dtypes(judge: Judge) -> None:
    """Integers and bfloat16; tensors without elements."""
    three = Scenario("all_reduce", 3, (12,))
    require_values(judge, [*on(three, dtype=("int64", "bfloat16", "uint8", "float64"))])
    require_values(judge, on(three, shape=((0,), (3, 0))))


@problem("all_reduce", share="1/20", kind="edges")
def test_refusals(judge: Judge) -> None:
    """Bad arguments raise ValueError before anything is sent."""
    require_refusals(
        judge,
        Scenario("all_reduce", 2, (6,)),
        [
            (
                "all_reduce",
                {"tensor": {"zeros": [4], "dtype": "int64"}, "op": "op.AVG"},
                "the average of integers",
            ),
            ("all_reduce", {"tensor": {"zeros": [4]}, "op": "op.BXOR"}, "an op it does not have"),
            ("all_reduce", {"tensor": {"zeros": [1], "expand": [4]}}, "an expanded tensor"),
        ],
    )


@problem("all_reduce", share="1/4", kind="cost")
def test_traffic(judge: Judge, credit: Credit) -> None:
    """Bytes that the busiest rank moves, and modelled time, at 4 and 8 ranks and 64 MiB."""
    score_large(judge, credit, "all_reduce")
