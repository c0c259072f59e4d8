"""Formulas: right numbers pass, and wrong ones are told apart by the convention they follow."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, cast

import pytest

from autograder.closed_form import BITS, BYTES, BadCall, Formula, Mistake, require_numbers
from autograder.failure import CheckFailed
from autograder.grade import Outcome
from autograder.judge import Answer, Judge

from .submissions import Files, graded, patched, rows_of

SHARED = Formula(
    "shared_bytes",
    lambda size, parts: Fraction(size, parts),
    (
        Mistake("nothing shared", lambda size, parts: size),
        Mistake("shared once more", lambda size, parts: Fraction(size, parts**2)),
        Mistake("one part less", lambda size, parts: Fraction(size, parts - 1)),
        *BYTES,
    ),
)
PAIR = Formula("pair", lambda a: (a, 1))
CALLS = [{"size": 12, "parts": 1}, {"size": 30, "parts": 3}, {"size": 8, "parts": 4}]
RIGHT = [[12.0], [10.0], [2.0]]
BAD = BadCall("shared_bytes", {"size": 1, "parts": 0}, "no parts")


class Says:
    """A judge whose submission answers this."""

    def __init__(self, numbers: Any, raised: Any = ()) -> None:
        self.answer = {"numbers": numbers, "raised": list(raised)}

    def run(self, case: Any, calls: Any) -> list[Answer]:
        return [Answer([self.answer], cast(Any, None))]


def require(numbers: Any, raised: Any = (), *, bad: tuple[BadCall, ...] = ()) -> None:
    judge = cast(Judge, Says(numbers, raised))
    require_numbers(judge, [(SHARED, arguments) for arguments in CALLS], bad)


def failure(numbers: Any, raised: Any = (), *, bad: tuple[BadCall, ...] = ()) -> CheckFailed:
    with pytest.raises(CheckFailed) as caught:
        require(numbers, raised, bad=bad)
    return caught.value


def test_right_numbers_pass_up_to_rounding() -> None:
    require(RIGHT)
    require([[12.0 * (1 + 1e-10)], [10.0], [2.0 * (1 - 1e-10)]])


@pytest.mark.parametrize("wrong", [2.0 * (1 + 1e-8), 0.0, -2.0, math.nan, math.inf])
def test_one_wrong_number_fails(wrong: float) -> None:
    assert failure([[12.0], [10.0], [wrong]]).message.startswith(
        "shared_bytes: 1 of 3 results are wrong"
    )


def test_what_should_be_nothing_may_only_be_rounding() -> None:
    nothing = Formula("nothing", lambda: 0)
    require_numbers(cast(Judge, Says([[1e-14]])), [(nothing, {})])
    with pytest.raises(CheckFailed):
        require_numbers(cast(Judge, Says([[1e-6]])), [(nothing, {})])


def test_a_constant_factor_is_told_with_its_cause_and_without_any_value() -> None:
    failed = failure([[96.0], [80.0], [16.0]])
    assert failed.message == "shared_bytes: 3 of 3 results are wrong, 8 times what is right each"
    assert failed.causes == (f"consistent with {BITS.cause}",)


def test_a_convention_is_told_where_all_results_are_what_it_leads_to() -> None:
    assert failure([[12.0], [30.0], [8.0]]).causes == ("consistent with nothing shared",)
    assert failure([[12.0], [30.0], [2.0]]).causes == ()  # with it, the last would be 8


def test_no_more_than_two_causes_are_told() -> None:
    three = [Mistake(name, 2) for name in ("one", "two", "three")]
    formula = Formula("f", lambda: 1, tuple(three))
    with pytest.raises(CheckFailed) as caught:
        require_numbers(cast(Judge, Says([[2.0]])), [(formula, {})])
    assert caught.value.causes == ("consistent with one", "consistent with two")


def test_a_convention_that_divides_by_zero_explains_nothing() -> None:
    assert failure([[13.0], [10.0], [2.0]]).causes == ()


def test_several_numbers_must_all_be_right() -> None:
    require_numbers(cast(Judge, Says([[7.0, 1.0]])), [(PAIR, {"a": 7})])
    with pytest.raises(CheckFailed, match="pair: 1 of 1 results are wrong"):
        require_numbers(cast(Judge, Says([[1.0, 7.0]])), [(PAIR, {"a": 7})])


@pytest.mark.parametrize(("found", "what"), [([], "no number"), ([1.0], "other than it should")])
def test_what_is_no_number_or_another_number_of_them_is_said(found: list[float], what: str) -> None:
    with pytest.raises(CheckFailed, match=f"pair returns {what}; see its docstring"):
        require_numbers(cast(Judge, Says([found])), [(PAIR, {"a": 7})])


@pytest.mark.parametrize("found", [None, 12, "12", [10**400], [None], {"a": 1}, [[12.0]]])
def test_an_answer_that_no_case_gives_is_no_fault_of_the_graders(found: Any) -> None:
    assert failure([found, [10.0], [2.0]]).outcome is Outcome.FAILED


@pytest.mark.parametrize("numbers", [None, [], RIGHT[:2], {"a": 1}])
def test_an_answer_without_all_results_is_none(numbers: Any) -> None:
    assert failure(numbers).message == "rank 0 gave no answer"


def test_a_bad_call_must_raise_value_error() -> None:
    require(RIGHT, ["ValueError"], bad=(BAD,))
    for raised in ("nothing", "ZeroDivisionError", None):
        assert failure(RIGHT, [raised], bad=(BAD,)).message == (
            f"shared_bytes with no parts must raise ValueError; it raised {raised}"
        )


def test_a_bad_call_counts_only_beside_right_results() -> None:
    assert "results are wrong" in failure([[1.0]] * 3, ["ValueError"], bad=(BAD,)).message


# --- For real -------------------------------------------------------------------------------------


def ratio_row(body: str) -> Any:
    files: Files = patched({"bubble_ratio": body}, file="accounting")
    return rows_of(graded(files, ["pipeline_bubble/ratio"]), "pipeline_bubble")["ratio"]


def test_a_real_submission_is_told_which_convention_it_has() -> None:
    row = ratio_row("return (stages - 1) / (microbatches + stages - 1)")
    assert row.outcome is Outcome.FAILED
    assert row.message.startswith("bubble_ratio: 8 of 8 results are wrong")
    (cause,) = row.causes
    assert "a part of the total time" in cause


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ("return None", "bubble_ratio returns no number"),
        ("return 'much'", "bubble_ratio returns no number"),
        ("return stages / 0", "ZeroDivisionError"),
        ("return 10**400", "OverflowError"),
        ("raise ValueError('no')", "ValueError: no"),
        ("pass", "bubble_ratio returns no number"),
    ],
)
def test_a_real_submission_without_numbers_is_told_so(body: str, part: str) -> None:
    row = ratio_row(body)
    assert row.outcome is Outcome.FAILED
    assert part in row.message


def test_every_numeric_type_of_python_and_torch_will_do() -> None:
    for kind in (
        "Fraction(stages - 1, microbatches)",
        "torch.tensor(stages - 1.0).double() / microbatches",
    ):
        body = f"import torch\nfrom fractions import Fraction\nreturn {kind}"
        assert ratio_row(body).outcome is Outcome.PASSED
