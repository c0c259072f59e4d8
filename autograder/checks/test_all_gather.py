"""Checks of problem all_gather."""

from __future__ import annotations

from autograder.agreement import require_untouched, require_values
from autograder.collective import require_agreement_with_torch, require_refusals, score_large
from autograder.grading import Credit
from autograder.judge import Judge
from autograder.problem import problem
from autograder.scenario import Scenario, on


@problem("all_gather", share="1/5")
def test_one_dimension(judge: Judge) -> None:
    """Vectors, on 1, 2, 3 and 4 ranks."""
    require_values(judge, on(Scenario("all_gather", 4, (6,)), world_size=(2, 4, 4, 3, 1)))


@problem("all_gather", share="3/20")
def test_more_dimensions(judge: Judge) -> None:
    """Matrices and more, along dimension 0; several calls in a row."""
    require_values(judge, on(Scenario("all_gather", 4), shape=((3, 4), (1, 5), (2, 3, 2), (1,))))


@problem("all_gather", share="3/20")
def test_sub_group(judge: Judge) -> None:
    """A sub-group whose ranks are not 0, 1, ..."""
    require_values(judge, [Scenario("all_gather", 4, (5,), members=(1, 3))])
    require_values(judge, [Scenario("all_gather", 4, (5, 2), members=(0, 2, 3))])


@problem("all_gather", share="1/10")
def test_agrees_with_torch(judge: Judge) -> None:
    """The same as torch.distributed gives, on 5 ranks."""
    require_agreement_with_torch(judge, [Scenario("all_gather", 5, (7, 3))])


@problem("all_gather", share="1/20", kind="edges")
def test_layouts(judge: Judge) -> None:
    """Tensors that are not contiguous, and an expanded input."""
    three = Scenario("all_gather", 3, (4, 5))
    require_values(judge, on(three, layout=("strided", "transposed", "expanded")))


@problem("all_gather", share="1/20", kind="edges")
def test_input_untouched(judge: Judge) -> None:
    """The input keeps its values."""
    require_untouched(judge, on(Scenario("all_gather", 3, (4, 2)), layout=("plain", "strided")))


@problem("all_gather", share="1/40", kind="edges")
def test_dtypes(judge: Judge) -> None:
    """Integers and bfloat16; tensors without elements."""
    three = Scenario("all_gather", 3, (10,))
    require_values(judge, on(three, dtype=("int64", "bfloat16", "uint8")))
    require_values(judge, on(three, shape=((0,), (0, 3))))


@problem("all_gather", share="1/40", kind="edges")
def test_refusals(judge: Judge) -> None:
    """Bad arguments raise ValueError before anything is sent."""
    four, whole = {"zeros": [4]}, {"zeros": [8], "dtype": "int64"}
    require_refusals(
        judge,
        Scenario("all_gather", 2),
        [
            ("all_gather", {"output": {"zeros": [7]}, "input": four}, "an output too short"),
            ("all_gather", {"output": whole, "input": four}, "another dtype"),
        ],
    )


@problem("all_gather", share="1/4", kind="cost")
def test_traffic(judge: Judge, credit: Credit) -> None:
    """Bytes that the busiest rank moves, and modelled time, at 4 and 8 ranks and 64 MiB."""
    score_large(judge, credit, "all_gather")
