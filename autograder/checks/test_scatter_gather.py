"""Checks of problem scatter_gather."""

from __future__ import annotations

from autograder.agreement import require_untouched, require_values
from autograder.collective import (
    require_agreement_with_torch,
    require_refusals,
    score_traffic,
)
from autograder.grading import Credit
from autograder.judge import Judge
from autograder.problem import problem
from autograder.scenario import Scenario, on

PIECE = 1 << 15  # elements, in the checks of cost


@problem("scatter_gather", share="1/5", function="scatter")
def test_scatter(judge: Judge) -> None:
    """scatter, on 1 to 4 ranks and from every root."""
    four = Scenario("scatter", 4, (3, 4))
    require_values(judge, on(four, world_size=(2, 3, 1)))
    require_values(judge, on(four, root=(0, 3, 1)))


@problem("scatter_gather", share="1/5", function="gather")
def test_gather(judge: Judge) -> None:
    """gather, on 1 to 4 ranks and to every root."""
    four = Scenario("gather", 4, (3, 4))
    require_values(judge, on(four, world_size=(2, 3, 1)))
    require_values(judge, on(four, root=(0, 3, 1)))


@problem("scatter_gather", share="3/20", function="scatter")
def test_scatter_in_sub_group(judge: Judge) -> None:
    """scatter in a sub-group, and the same as torch.distributed gives."""
    require_values(judge, [Scenario("scatter", 4, (9,), root=2, members=(0, 2, 3))])
    require_agreement_with_torch(judge, [Scenario("scatter", 3, (6, 2), root=1)])


@problem("scatter_gather", share="3/20", function="gather")
def test_gather_in_sub_group(judge: Judge) -> None:
    """gather in a sub-group, and the same as torch.distributed gives."""
    require_values(judge, [Scenario("gather", 4, (9,), root=2, members=(0, 2, 3))])
    require_agreement_with_torch(judge, [Scenario("gather", 3, (6, 2), root=1)])


@problem("scatter_gather", share="1/20", kind="edges", function="scatter")
def test_scatter_edges(judge: Judge) -> None:
    """scatter of integers, bfloat16, no elements, not contiguous tensors; the list is only read."""
    three = Scenario("scatter", 3, (4, 3))
    require_untouched(judge, on(three, layout=("plain", "strided", "transposed")))
    require_values(judge, [*on(three, dtype=("int64", "bfloat16")), *on(three, shape=((0,), ()))])


@problem("scatter_gather", share="1/20", kind="edges", function="gather")
def test_gather_edges(judge: Judge) -> None:
    """gather of integers, bfloat16, no elements, not contiguous tensors; the part is only read."""
    three = Scenario("gather", 3, (4, 3))
    require_untouched(judge, on(three, layout=("plain", "strided", "transposed")))
    require_values(judge, [*on(three, dtype=("int64", "bfloat16")), *on(three, shape=((0,), ()))])


@problem("scatter_gather", share="1/20", kind="edges", function="scatter")
def test_refusals(judge: Judge) -> None:
    """Bad arguments raise ValueError before anything is sent."""
    one, other = {"zeros": [4]}, {"zeros": [5]}
    require_refusals(
        judge,
        Scenario("scatter", 2),
        [
            ("scatter", {"tensor": one, "scatter_list": None, "src": 2}, "a root outside"),
            ("gather", {"tensor": one, "gather_list": None, "dst": 2}, "a root outside"),
            ("gather", {"tensor": one, "gather_list": [one, other, one]}, "a list of three"),
            ("scatter", {"tensor": one, "scatter_list": [other, one, one]}, "a list of three"),
        ],
    )


@problem("scatter_gather", share="3/40", kind="cost", function="scatter")
def test_scatter_traffic(judge: Judge, credit: Credit) -> None:
    """scatter: bytes that the busiest rank moves, at 8 ranks."""
    scenario = Scenario("scatter", 8, (PIECE,))
    bound, full = 7 * 4 * PIECE, 8 * 4 * PIECE
    score_traffic(judge, credit, scenario, bound, full)


@problem("scatter_gather", share="3/40", kind="cost", function="gather")
def test_gather_traffic(judge: Judge, credit: Credit) -> None:
    """gather: bytes that the busiest rank moves, at 8 ranks."""
    scenario = Scenario("gather", 8, (PIECE,))
    bound, full = 7 * 4 * PIECE, 8 * 4 * PIECE
    score_traffic(judge, credit, scenario, bound, full)
