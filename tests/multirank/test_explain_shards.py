"""`multirank.explain_shards` names what wrong parts of a tensor are consistent with."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from multirank import explain_shards

WHOLE = torch.arange(1.0, 13.0).reshape(2, 6)
ALIKE = [WHOLE] * 3
PARTS = [part.contiguous() for part in WHOLE.chunk(3, -1)]
SUMMANDS = [WHOLE / 6, WHOLE / 3, WHOLE / 2]


@pytest.mark.parametrize(
    ("actual", "expected", "told"),
    [
        ([3 * WHOLE] * 3, ALIKE, "3 times too large"),
        ([3 * part for part in PARTS], PARTS, "3 times too large"),
        ([WHOLE / 3 + 0.1 * rank for rank in range(3)], ALIKE, ""),
        ([part / 3 for part in PARTS], PARTS, "1/3 of what is right"),
        (SUMMANDS, ALIKE, "each rank has its own summand"),
        ([PARTS[1], PARTS[2], PARTS[0]], PARTS, "the parts of other ranks"),
        ([PARTS[0]] * 3, PARTS, "the parts of other ranks"),
        ([None] * 3, PARTS, "autograd does not know of"),
    ],
)
def test_a_known_mistake_is_named(
    actual: list[Tensor | None], expected: list[Tensor], told: str
) -> None:
    causes = explain_shards(actual, expected)
    assert told in causes[0] if told else causes == []


@pytest.mark.parametrize(
    "actual",
    [
        ALIKE,
        [WHOLE * (1 + 1e-6)] * 3,
        [WHOLE, None, WHOLE],
        [WHOLE[:, :4]] * 3,
        [WHOLE * torch.nan] * 3,
        [torch.zeros(2, 6)] * 3,
    ],
)
def test_of_what_is_right_or_no_known_mistake_nothing_is_told(
    actual: list[Tensor | None],
) -> None:
    assert explain_shards(actual, ALIKE) == []


def test_of_zeros_nothing_is_told() -> None:
    assert explain_shards([torch.zeros(2)] * 2, [torch.zeros(2)] * 2) == []


def test_one_rank_alone_has_no_communication_to_blame() -> None:
    assert explain_shards([2 * WHOLE], [WHOLE]) == []


def test_a_guess_comes_first_and_two_causes_are_enough() -> None:
    guesses = {"a bias that is added thrice": [3 * WHOLE] * 3, "another": [WHOLE + 1] * 3}
    causes = explain_shards([3 * WHOLE] * 3, ALIKE, guesses)
    assert causes[0] == "a bias that is added thrice"
    assert len(causes) == 2


def test_what_bfloat16_rounds_is_no_other_number() -> None:
    half = [(3 * WHOLE * 1.01).bfloat16()] * 3
    assert "3 times too large" in explain_shards(half, ALIKE)[0]
