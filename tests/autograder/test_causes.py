"""Each likely cause is named when the numbers bear it out, and only then."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autograder.causes import CAUSES, Cause, likely_causes

Values = npt.NDArray[Any]
Ranks = list[Values]
W = 4


def inputs(size: int = 8, world_size: int = W, seed: int = 0) -> Ranks:
    rng = np.random.default_rng(seed)
    return [
        rng.integers(1, 4000, size).astype(np.float32) * rng.choice([-1, 1], size).astype("f4")
        for _ in range(world_size)
    ]


def total(given: Ranks) -> Values:
    return np.asarray(np.sum(given, axis=0, dtype=np.float32))


def causes(actual: Any, expected: Any, given: Any, **more: Any) -> list[str]:
    """The names of the causes found."""
    found = likely_causes(actual, expected, given, **more)
    return [next(cause.name for cause in CAUSES if says(cause, text)) for text in found]


def says(cause: Cause, text: str) -> bool:
    return re.fullmatch(re.sub(r"\\{\w+\\}", ".+", re.escape(cause.text)), text) is not None


def all_reduce(wrong: Callable[[Ranks], Ranks], world_size: int = W, size: int = 8) -> list[str]:
    given = inputs(size, world_size)
    return causes(wrong(given), [total(given)] * world_size, given)


def test_a_sum_in_place_of_a_mean() -> None:
    given = inputs()
    assert causes([total(given)] * W, [total(given) / W] * W, given) == ["sum for mean"]


def test_a_mean_in_place_of_a_sum() -> None:
    assert all_reduce(lambda x: [total(x) / W] * W) == ["mean for sum"]


def test_gradients_scaled_wrongly_though_the_inputs_are_something_else() -> None:
    gradient = np.array([1.5, -2.0, 3.25])
    batches = [np.ones((5, 2))] * W
    assert causes([W * gradient] * W, [gradient] * W, batches) == ["sum for mean"]
    assert causes([gradient / W] * W, [gradient] * W, batches) == ["mean for sum"]


def test_a_sum_that_is_too_large_is_not_called_a_sum_for_a_mean() -> None:
    assert all_reduce(lambda x: [W * total(x)] * W) == []
    given = inputs()
    assert causes([total(given) / W**2] * W, [total(given) / W] * W, given) == []


def test_nothing_communicated() -> None:
    assert all_reduce(lambda x: x)[0] == "nothing communicated"


def test_nothing_communicated_by_a_reduce_that_is_compared_at_its_destination_only() -> None:
    given = inputs()
    actual, expected = [None, None, given[2], None], [None, None, total(given), None]
    assert causes(actual, expected, given)[0] == "nothing communicated"


def test_nothing_communicated_by_a_reduce_scatter() -> None:
    given = inputs()
    expected = list(total(given).reshape(W, 2))
    own = [given[rank].reshape(W, 2)[rank] for rank in range(W)]
    assert causes(own, expected, given)[0] == "nothing communicated"


def test_a_broadcast_from_the_wrong_rank() -> None:
    given = inputs()
    found = likely_causes([given[3]] * W, [given[1]] * W, given)
    assert found == [
        "the wrong ranks hold what rank 3 put in: consistent with a copy of rank 3's data"
    ]


def test_one_rank_that_holds_its_own_input_has_not_communicated() -> None:
    given = inputs()
    actual = [given[1], given[1], given[2], given[1]]
    assert causes(actual, [given[1]] * W, given) == ["nothing communicated"]


def test_ranks_with_the_same_input_are_not_told_apart() -> None:
    given = inputs()
    given[2] = given[3]
    assert "one rank's input" not in causes([given[3]] * W, [total(given)] * W, given)


def test_one_ranks_contribution_missing() -> None:
    given = inputs()
    found = likely_causes([total(given) - given[2]] * W, [total(given)] * W, given)
    assert found == [
        "rank 2's contribution is missing from the sum: consistent with a loop over the ranks "
        "that leaves rank 2 out"
    ]


def test_one_contribution_missing_in_one_chunk_only() -> None:
    def wrong(given: Ranks) -> Ranks:
        result = total(given)
        result[4:6] -= given[1][4:6]
        return [result] * W

    assert all_reduce(wrong) == ["one contribution missing"]


def test_every_ranks_own_contribution_missing() -> None:
    assert all_reduce(lambda x: [total(x) - own for own in x]) == ["own contribution missing"]


def test_two_ranks_that_swap_instead_of_adding() -> None:
    assert all_reduce(lambda x: [x[1], x[0]], world_size=2) == ["own contribution missing"]


def test_a_ring_with_one_step_too_few() -> None:
    def wrong(given: Ranks) -> Ranks:
        result = total(given)
        for chunk in range(W):
            result[2 * chunk : 2 * chunk + 2] -= given[(chunk + 1) % W][2 * chunk : 2 * chunk + 2]
        return [result] * W

    assert all_reduce(wrong) == ["different contributions missing"]


def test_a_missing_contribution_to_something_that_is_no_sum_is_not_claimed() -> None:
    given = inputs()
    largest = np.max(given, axis=0)
    assert causes([largest - given[2]] * W, [largest] * W, given) == []


@pytest.mark.parametrize("step", [1, -1])
def test_a_gather_shifted_by_one_chunk(step: int) -> None:
    given = inputs()
    gathered = np.concatenate(given)
    assert causes([np.roll(gathered, 8 * step)] * W, [gathered] * W, given) == ["chunk shifted"]


@pytest.mark.parametrize("step", [1, -1])
def test_a_scatter_that_hands_out_the_neighbours_chunk(step: int) -> None:
    chunks = list(np.arange(1, 9, dtype=np.float32).reshape(W, 2))
    actual = [chunks[(rank + step) % W] for rank in range(W)]
    assert causes(actual, chunks, [np.concatenate(chunks), None, None, None]) == ["chunk shifted"]


def test_a_shift_by_one_element_is_no_chunk() -> None:
    gathered = np.concatenate(inputs())
    assert causes([np.roll(gathered, 1)] * W, [gathered] * W, inputs()) == []


@pytest.mark.parametrize("start", [8, 9])
def test_a_remainder_dropped(start: int) -> None:
    def wrong(given: Ranks) -> Ranks:
        result = total(given)
        result[start:] += 1e6
        return [result] * W

    assert all_reduce(wrong, size=11) == ["tail missing"]
    if start == 8:
        assert all_reduce(wrong, size=10) == ["tail missing"]


def test_a_wrong_tail_is_no_remainder_where_the_size_divides() -> None:
    def wrong(given: Ranks) -> Ranks:
        result = total(given)
        result[6:] += 1e6
        return [result] * W

    assert all_reduce(wrong, size=8) == []


@pytest.mark.parametrize(("left", "fill"), [(0.0, None), (np.nan, None), (-77.0, -77.0)])
def test_an_output_never_written(left: float, fill: float | None) -> None:
    given = inputs()
    expected = [total(given)] * W
    assert causes([np.full(8, left)] * W, expected, given, fill=fill) == ["untouched"]
    partly = total(given)
    partly[2:4] = left
    assert causes([partly] * W, expected, given, fill=fill)[0] == "untouched"


def test_a_constant_that_was_not_there_before_is_no_untouched_output() -> None:
    given = inputs()
    assert causes([np.full(8, 5.0)] * W, [total(given)] * W, given, fill=-77.0) == []


def test_integers_are_judged_alike() -> None:
    given = [np.arange(6, dtype=np.int64) + 10 * rank for rank in range(W)]
    summed = np.sum(given, axis=0)
    assert causes([summed - given[3]] * W, [summed] * W, given) == ["one contribution missing"]


def test_the_lectures_first_program_is_judged_too() -> None:
    given = [np.arange(4.0) + rank for rank in range(W)]
    assert causes([x.copy() for x in given], [total(given)] * W, given)[0] == "nothing communicated"


def test_narrow_floats_are_judged_within_their_rounding() -> None:
    torch = pytest.importorskip("torch")
    given = [torch.randn(64, generator=torch.Generator().manual_seed(r)) for r in range(W)]
    narrow = [x.bfloat16() for x in given]
    summed = torch.stack([x.double() for x in narrow]).sum(0)
    sent = [x.float().numpy() for x in narrow]
    lacking = (narrow[0] + narrow[1] + narrow[3]).float().numpy()
    assert causes([lacking] * W, [summed.numpy()] * W, sent) == ["one contribution missing"]
    mean = ((narrow[0] + narrow[1]) + (narrow[2] + narrow[3])) / W
    found = causes([mean.float().numpy()] * W, [summed.numpy()] * W, sent)
    assert found in (["mean for sum"], [])  # cancellation may hide the ratio; nothing else may fire


@given(st.integers(2, 5), st.integers(1, 24), st.integers(0, 10**6))
@settings(deadline=None, max_examples=60)
def test_right_values_have_no_cause(world_size: int, size: int, seed: int) -> None:
    given = inputs(size, world_size, seed)
    for combined in (total(given), total(given) / world_size, np.max(given, axis=0), given[0]):
        assert likely_causes([combined] * world_size, [combined.copy()] * world_size, given) == []


@given(st.integers(2, 5), st.integers(3, 24), st.integers(0, 10**6))
@settings(deadline=None, max_examples=100)
def test_random_wrong_values_have_no_cause(world_size: int, size: int, seed: int) -> None:
    given = inputs(size, world_size, seed)
    rng = np.random.default_rng(seed + 1)
    for expected in (total(given), np.max(given, axis=0), given[0]):
        one = [rng.integers(5000, 90000, size).astype(np.float32)] * world_size
        each = [rng.integers(5000, 90000, size).astype(np.float32) for _ in given]
        assert likely_causes(one, [expected] * world_size, given) == []
        assert likely_causes(each, [expected] * world_size, given) == []


def test_two_wrong_elements_are_enough() -> None:
    assert all_reduce(lambda x: x, world_size=2, size=1)[0] == "nothing communicated"


def test_a_single_wrong_element_could_be_anything() -> None:
    given = inputs(1)
    assert causes([given[0], *[total(given)] * 3], [total(given)] * W, given) == []


def test_outputs_of_another_shape_are_not_explained() -> None:
    given = inputs()
    assert causes([given[0][:4]] * W, [total(given)] * W, given) == []


def test_outputs_too_large_to_look_at_closely_are_not_explained() -> None:
    large = [np.zeros(2**22 + 1, np.float32)] * 2
    assert causes(large, [x + 1 for x in large], large) == []


def test_one_rank_alone_has_no_cause() -> None:
    assert causes([np.zeros(4)], [np.ones(4)], [np.ones(4)]) == []


def test_at_most_two_causes_are_named_and_each_is_a_guess() -> None:
    given = inputs(world_size=2)
    found = likely_causes(given, [total(given)] * 2, given)
    assert 1 <= len(found) <= 2
    assert all("consistent with" in cause.text for cause in CAUSES)


def test_each_rank_needs_an_entry() -> None:
    with pytest.raises(ValueError, match="entry for each rank"):
        likely_causes([np.ones(2)] * 2, [np.ones(2)] * 2, [np.ones(2)])
