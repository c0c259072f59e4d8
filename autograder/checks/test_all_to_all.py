"""Checks of problem all_to_all."""

from __future__ import annotations

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

FOUR = Scenario("all_to_all", 4, ())
UNEVEN = ((2, 1, 4), (3, 2, 1), (1, 5, 1))
WITH_ZEROS = ((0, 3, 0), (2, 0, 0), (0, 1, 2))


@problem("all_to_all", share="3/20")
def test_even(judge: Judge) -> None:
    """Even splits, on 1, 2, 3 and 4 ranks."""
    require_values(judge, on(FOUR, world_size=(2, 4, 4, 3, 1)))


@problem("all_to_all", share="1/5")
def test_uneven(judge: Judge) -> None:
    """Uneven splits, some of them zero."""
    require_values(judge, on(Scenario("all_to_all", 3, (2,)), splits=(UNEVEN, WITH_ZEROS)))


@problem("all_to_all", share="1/10")
def test_more_dimensions(judge: Judge) -> None:
    """Rows that are vectors or matrices; several calls in a row."""
    require_values(judge, on(FOUR, shape=((3,), (2, 2), (1,))))


@problem("all_to_all", share="1/10")
def test_sub_group(judge: Judge) -> None:
    """A sub-group whose ranks are not 0, 1, ..."""
    require_values(judge, [Scenario("all_to_all", 4, (2,), members=(1, 3))])
    require_values(judge, [Scenario("all_to_all", 4, (), members=(0, 2, 3), splits=UNEVEN)])


@problem("all_to_all", share="1/20")
def test_agrees_with_torch(judge: Judge) -> None:
    """The same as torch.distributed gives, on 4 ranks."""
    require_agreement_with_torch(judge, [Scenario("all_to_all", 4, (3,), rows=5)])


@problem("all_to_all", share="1/20", kind="edges")
def test_layouts(judge: Judge) -> None:
    """Tensors that are not contiguous."""
    three = Scenario("all_to_all", 3, (4,))
    require_values(judge, on(three, layout=("strided", "transposed")))


@problem("all_to_all", share="1/20", kind="edges")
def test_input_untouched(judge: Judge) -> None:
    """The input keeps its values."""
    require_untouched(judge, on(Scenario("all_to_all", 3, (2,)), layout=("plain", "strided")))


@problem("all_to_all", share="1/40", kind="edges")
def test_dtypes(judge: Judge) -> None:
    """Integers and bfloat16; tensors without elements."""
    three = Scenario("all_to_all", 3, (2,))
    require_values(judge, [*on(three, dtype=("int64", "bfloat16")), *on(three, rows=(0, 1))])


@problem("all_to_all", share="1/40", kind="edges")
def test_refusals(judge: Judge) -> None:
    """Bad arguments raise ValueError before anything is sent."""
    three, four = {"zeros": [3]}, {"zeros": [4]}
    splits = {"output_split_sizes": [2, 1], "input_split_sizes": [2, 2]}
    require_refusals(
        judge,
        Scenario("all_to_all", 2),
        [
            ("all_to_all", {"output": three, "input": three}, "a size that does not divide"),
            ("all_to_all", {"output": four, "input": four} | splits, "splits that do not sum up"),
            (
                "all_to_all",
                {"output": four, "input": {"zeros": [4], "dtype": "int64"}},
                "another dtype",
            ),
        ],
    )


@problem("all_to_all", share="1/4", kind="cost")
def test_traffic(judge: Judge, credit: Credit) -> None:
    """Bytes that the busiest rank moves, and modelled time, at 8 ranks and 64 KiB or 64 MiB."""
    score_either_size(judge, credit, "all_to_all")
