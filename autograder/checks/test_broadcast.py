"""Checks of problem broadcast."""

from __future__ import annotations

from autograder.agreement import require_values
from autograder.collective import (
    require_agreement_with_torch,
    require_refusals,
    score_either_size,
)
from autograder.grading import Credit
from autograder.judge import Judge
from autograder.problem import problem
from autograder.scenario import Scenario, on

FOUR = Scenario("broadcast", 4, (3, 8))


@problem("broadcast", share="1/5")
def test_from_rank_0(judge: Judge) -> None:
    """From rank 0, on 1, 2, 3 and 4 ranks."""
    require_values(judge, on(FOUR, world_size=(2, 4, 4, 3, 1)))


@problem("broadcast", share="1/5")
def test_from_other_ranks(judge: Judge) -> None:
    """From every other rank, one call after another."""
    require_values(judge, on(FOUR, root=(1, 3, 2)))
    require_values(judge, on(Scenario("broadcast", 3, (7,)), root=(2, 1)))


@problem("broadcast", share="1/10")
def test_sub_group(judge: Judge) -> None:
    """In a sub-group; the root is a global rank."""
    pair = Scenario("broadcast", 4, (9,), root=3, members=(1, 3))
    require_values(judge, on(pair, root=(3, 1)))
    require_values(judge, [Scenario("broadcast", 4, (9,), root=2, members=(0, 2, 3))])


@problem("broadcast", share="1/10")
def test_agrees_with_torch(judge: Judge) -> None:
    """The same as torch.distributed gives, on 5 ranks."""
    require_agreement_with_torch(judge, [Scenario("broadcast", 5, (64, 3), root=4)])


@problem("broadcast", share="1/20", kind="edges")
def test_layouts(judge: Judge) -> None:
    """Tensors that are not contiguous."""
    three = Scenario("broadcast", 3, (4, 5))
    require_values(judge, on(three, layout=("strided", "transposed")))


@problem("broadcast", share="1/20", kind="edges")
def test_dtypes(judge: Judge) -> None:
    """Integers, bfloat16, single numbers, and tensors without elements."""
    three = Scenario("broadcast", 3, (10,))
    require_values(judge, on(three, dtype=("int64", "bfloat16", "uint8")))
    require_values(judge, on(three, shape=((0,), (), (1,))))


@problem("broadcast", share="1/20", kind="edges")
def test_refusals(judge: Judge) -> None:
    """Bad arguments raise ValueError before anything is sent."""
    require_refusals(
        judge,
        Scenario("broadcast", 2),
        [
            ("broadcast", {"tensor": {"zeros": [4]}, "src": 2}, "a root outside the group"),
            ("broadcast", {"tensor": {"zeros": [4]}, "src": -1}, "a negative root"),
        ],
    )


@problem("broadcast", share="1/4", kind="cost")
def test_traffic(judge: Judge, credit: Credit) -> None:
    """Bytes that the busiest rank moves, and modelled time, at 8 ranks and 64 KiB or 64 MiB."""
    score_either_size(judge, credit, "broadcast")
