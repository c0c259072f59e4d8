"""Checks of problem reduce."""

from __future__ import annotations

from dataclasses import replace

from autograder.agreement import require_untouched, require_values
from autograder.collective import (
    require_agreement_with_torch,
    require_refusals,
    score_either_size,
)
from autograder.grading import Credit
from autograder.judge import Judge
from autograder.problem import problem
from autograder.scenario import Scenario, on

FOUR = Scenario("reduce", 4, (3, 8))


@problem("reduce", share="3/20")
def test_to_rank_0(judge: Judge) -> None:
    """The sum to rank 0, on 1, 2, 3 and 4 ranks."""
    require_values(judge, on(FOUR, world_size=(2, 4, 4, 3, 1)))


@problem("reduce", share="3/20")
def test_to_other_ranks(judge: Judge) -> None:
    """The sum to every other rank, one call after another."""
    require_values(judge, on(FOUR, root=(1, 3, 2)))
    require_values(judge, on(Scenario("reduce", 3, (7,)), root=(2, 1)))


@problem("reduce", share="1/20")
def test_other_operations(judge: Judge) -> None:
    """Minimum, maximum and product."""
    require_values(judge, on(FOUR, op=("max", "min", "product")))


@problem("reduce", share="1/10")
def test_average(judge: Judge) -> None:
    """The average, in a sub-group too."""
    require_values(judge, on(replace(FOUR, op="avg"), root=(0, 2)))
    require_values(judge, [Scenario("reduce", 4, (9,), "avg", root=2, members=(0, 2, 3))])


@problem("reduce", share="1/10")
def test_sub_group(judge: Judge) -> None:
    """In a sub-group; the root is a global rank."""
    pair = Scenario("reduce", 4, (9,), root=3, members=(1, 3))
    require_values(judge, on(pair, root=(3, 1)))
    require_values(judge, [Scenario("reduce", 4, (9,), root=2, members=(0, 2, 3))])


@problem("reduce", share="1/20")
def test_agrees_with_torch(judge: Judge) -> None:
    """The root gets what torch.distributed gives it, on 5 ranks."""
    require_agreement_with_torch(judge, [Scenario("reduce", 5, (64, 3), root=4)])


@problem("reduce", share="1/20", kind="edges")
def test_layouts(judge: Judge) -> None:
    """Tensors that are not contiguous."""
    three = Scenario("reduce", 3, (4, 5))
    require_values(judge, on(three, layout=("strided", "transposed")))


@problem("reduce", share="1/20", kind="edges")
def test_others_untouched(judge: Judge) -> None:
    """The others keep their tensors."""
    require_untouched(judge, on(FOUR, root=(0, 3)))


@problem("reduce", share="1/40", kind="edges")
def test_dtypes(judge: Judge) -> None:
    """Integers, bfloat16, single numbers, and tensors without elements."""
    three = Scenario("reduce", 3, (10,))
    require_values(judge, on(three, dtype=("int64", "bfloat16")))
    require_values(judge, on(three, shape=((0,), (), (1,))))


@problem("reduce", share="1/40", kind="edges")
def test_refusals(judge: Judge) -> None:
    """Bad arguments raise ValueError before anything is sent."""
    whole = {"zeros": [4], "dtype": "int32"}
    require_refusals(
        judge,
        Scenario("reduce", 2),
        [
            ("reduce", {"tensor": {"zeros": [4]}, "dst": 2}, "a root outside the group"),
            ("reduce", {"tensor": whole, "dst": 0, "op": "op.AVG"}, "the average of integers"),
        ],
    )


@problem("reduce", share="1/4", kind="cost")
def test_traffic(judge: Judge, credit: Credit) -> None:
    """Bytes that the busiest rank moves, and modelled time, at 8 ranks and 64 KiB or 64 MiB."""
    score_either_size(judge, credit, "reduce")
