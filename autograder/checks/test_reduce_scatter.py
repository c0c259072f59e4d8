"""Checks of problem reduce_scatter."""

from __future__ import annotations

from dataclasses import replace

from autograder.agreement import require_untouched, require_values
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

FOUR = Scenario("reduce_scatter", 4, (6,))


@problem("reduce_scatter", share="3/20")
def test_sum(judge: Judge) -> None:
    """The sum, on 1, 2, 3 and 4 ranks."""
    require_values(judge, on(FOUR, world_size=(2, 4, 4, 3, 1)))


@problem("reduce_scatter", share="1/20")
def test_other_operations(judge: Judge) -> None:
    """Minimum, maximum and product."""
    require_values(judge, on(FOUR, op=("max", "min", "product")))


@problem("reduce_scatter", share="1/10")
def test_average(judge: Judge) -> None:
    """The average, in a sub-group too."""
    require_values(judge, [replace(FOUR, op="avg")])
    require_values(judge, [Scenario("reduce_scatter", 4, (5, 2), "avg", members=(0, 2, 3))])
    require_accuracy(judge, "reduce_scatter", "AVG")


@problem("reduce_scatter", share="1/10")
def test_more_dimensions(judge: Judge) -> None:
    """Matrices and more, along dimension 0; several calls in a row."""
    require_values(judge, on(FOUR, shape=((3, 4), (1, 5), (2, 3, 2), (1,))))


@problem("reduce_scatter", share="1/10")
def test_sub_group(judge: Judge) -> None:
    """A sub-group whose ranks are not 0, 1, ..."""
    require_values(judge, [Scenario("reduce_scatter", 4, (5,), members=(1, 3))])
    require_values(judge, [Scenario("reduce_scatter", 4, (5, 2), members=(0, 2, 3))])


@problem("reduce_scatter", share="1/10")
def test_agrees_with_torch(judge: Judge) -> None:
    """The same as torch.distributed gives, and rounding errors no larger than need be."""
    require_agreement_with_torch(judge, [Scenario("reduce_scatter", 4, (7, 3))])
    require_accuracy(judge, "reduce_scatter", "SUM")


@problem("reduce_scatter", share="1/20", kind="edges")
def test_layouts(judge: Judge) -> None:
    """Tensors that are not contiguous, and an expanded input."""
    three = Scenario("reduce_scatter", 3, (4, 5))
    require_values(judge, on(three, layout=("strided", "transposed", "expanded")))


@problem("reduce_scatter", share="1/20", kind="edges")
def test_input_untouched(judge: Judge) -> None:
    """The input keeps its values."""
    require_untouched(judge, on(Scenario("reduce_scatter", 3, (4, 2)), layout=("plain", "strided")))


@problem("reduce_scatter", share="1/40", kind="edges")
def test_dtypes(judge: Judge) -> None:
    """Integers and bfloat16; tensors without elements."""
    three = Scenario("reduce_scatter", 3, (10,))
    require_values(judge, on(three, dtype=("int64", "bfloat16")))
    require_values(judge, on(three, shape=((0,), (0, 3))))


@problem("reduce_scatter", share="1/40", kind="edges")
def test_refusals(judge: Judge) -> None:
    """Bad arguments, such as sizes that do not divide, raise ValueError before anything is sent."""
    four, ints = {"zeros": [4]}, {"zeros": [8], "dtype": "int64"}
    int_part = {"zeros": [4], "dtype": "int64"}
    require_refusals(
        judge,
        Scenario("reduce_scatter", 2),
        [
            ("reduce_scatter", {"output": four, "input": {"zeros": [7]}}, "a size not divisible"),
            ("reduce_scatter", {"output": four, "input": ints}, "another dtype"),
            (
                "reduce_scatter",
                {"output": int_part, "input": ints, "op": "op.AVG"},
                "the average of integers",
            ),
        ],
    )


@problem("reduce_scatter", share="1/4", kind="cost")
def test_traffic(judge: Judge, credit: Credit) -> None:
    """Bytes that the busiest rank moves, and modelled time, at 4 and 8 ranks and 64 MiB."""
    score_large(judge, credit, "reduce_scatter")
