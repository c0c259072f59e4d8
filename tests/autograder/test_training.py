"""Trainings whose gradients are known: what is right in them, and what is said of what is not."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import pytest
import torch

from autograder.failure import CheckFailed
from autograder.inputs import Seed, known_secret
from autograder.judge import Answer
from autograder.training import (
    LAYERS,
    Drawn,
    Training,
    Values,
    Weight,
    as_values,
    buckets_of,
    gradient_causes,
    is_just,
    parameters_for_gradients,
    ranks_in_words,
    require_gradients,
    wrong_gradient,
)
from multirank import Trace

WEIGHT = Weight("head.bias", (3,))
MEAN = np.array([4.0, 8.0, 12.0])


def draw(training: Training) -> Drawn:
    return training.draw(Seed.of(known_secret(), "test").generator())


def answer_of(drawn: Drawn, spoiled: float = 0.0) -> Answer:
    """What a right submission gives; or one whose gradients are all off by something."""
    steps = [
        {
            weight.name: None
            if (mean := drawn.mean(step, weight)) is None
            else torch.from_numpy(mean + spoiled).to(getattr(torch, weight.dtype))
            for weight in drawn.training.weights
        }
        for step in range(drawn.training.steps)
    ]
    outputs = [
        {"gradients": steps} if rank in drawn.training.group else {}
        for rank in range(drawn.training.world_size)
    ]
    return Answer(outputs, Trace())


# --- What is right --------------------------------------------------------------------------------


def names(sizes: list[int], cap: float) -> list[list[str]]:
    weights = [Weight(str(size), (size,)) for size in sizes]
    return [[one.name for one in bucket] for bucket in buckets_of(weights, cap)]


def test_buckets_are_filled_in_reverse_order_up_to_the_cap() -> None:
    assert names([1, 2, 3, 4], 28) == [["4", "3"], ["2", "1"]]
    assert names([1, 2, 3, 4], 27) == [["4"], ["3", "2", "1"]]
    assert names([9, 1, 2], 12) == [["2", "1"], ["9"]]
    assert names([], 12) == []


def test_a_bucket_holds_one_dtype_and_nothing_frozen() -> None:
    weights = [
        Weight("a"),
        Weight("b", dtype="bfloat16"),
        Weight("c", trainable=False),
        Weight("d", dtype="bfloat16"),
        Weight("e"),
    ]
    found = [[one.name for one in bucket] for bucket in buckets_of(weights, 1e6)]
    assert found == [["e"], ["d", "b"], ["a"]]


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_means_are_whole_numbers_that_bfloat16_can_hold(n: int) -> None:
    half = Training((Weight("w", (50,), "bfloat16"),), world_size=n, steps=1)
    drawn = draw(half)
    local = [one for one in drawn.local(0, half.weights[0]) if one is not None]
    for numbers in (*local, np.sum(local, axis=0), np.sum(local, axis=0) / n):
        exact = torch.from_numpy(numbers).bfloat16().double().numpy()
        assert np.array_equal(exact, numbers)
        assert np.array_equal(np.round(numbers), numbers)


def test_a_rank_that_does_not_use_a_parameter_counts_as_zero() -> None:
    def unused(step: int, micro_batch: int, place: int) -> Collection[str]:
        return ("head.bias",) if place == 1 else ()

    training = Training(world_size=2, steps=1, unused=unused)
    drawn = draw(training)
    first, second = drawn.local(0, LAYERS[-1])
    mean = drawn.mean(0, LAYERS[-1])
    assert second is None
    assert first is not None
    assert mean is not None
    assert np.array_equal(mean, first / 2)
    assert training.users("head.bias", 0) == [0]


def test_gradients_that_are_kept_count_in_the_next_step() -> None:
    drawn = draw(Training(world_size=2, steps=2, keep=True))
    first, second = (drawn.mean(step, LAYERS[0]) for step in (0, 1))
    alone = [own[LAYERS[0].name][0] for own in drawn.own[1]]
    assert first is not None
    assert second is not None
    assert np.array_equal(second, first + np.mean(alone, axis=0))


def test_tied_weights_have_the_gradients_of_all_their_uses() -> None:
    tied = (Weight("a", (4,)), Weight("b", same_as="a"))
    drawn = draw(Training(tied, world_size=1, steps=1))
    (inputs,) = drawn.inputs
    assert inputs is not None
    (((first, second),),) = inputs["steps"][0]
    mean = drawn.mean(0, tied[0])
    assert mean is not None
    assert np.array_equal(mean, first[1].numpy().mean(axis=0) + second[1].numpy().mean(axis=0))


def test_ranks_outside_the_group_get_no_inputs() -> None:
    drawn = draw(Training(members=(1, 3)))
    assert [given is None for given in drawn.inputs] == [True, False, True, False]


# --- What is said of what is not ------------------------------------------------------------------


@pytest.mark.parametrize(
    "training",
    [
        Training(),
        Training(members=(0, 2, 3), micro_batches=3),
        Training(world_size=3, calls=2, keep=True),
        Training(world_size=3, unused=lambda *_: ("body.bias",)),
    ],
)
def test_right_gradients_pass_and_others_do_not(training: Training) -> None:
    drawn = draw(training)
    require_gradients(drawn, answer_of(drawn))
    with pytest.raises(CheckFailed, match="is not the mean over the ranks"):
        require_gradients(drawn, answer_of(drawn, spoiled=1.0))


@pytest.mark.parametrize("gradients", [None, [], [{}], [3], "no"])
def test_what_is_no_answer_is_none(gradients: object) -> None:
    drawn = draw(Training(world_size=1, steps=1))
    with pytest.raises(CheckFailed, match="rank 0 gave no answer"):
        require_gradients(drawn, Answer([{"gradients": gradients}], Trace()))


def test_a_gradient_of_another_shape_or_dtype_is_refused() -> None:
    for found in (torch.zeros(4), torch.zeros(3).double(), torch.zeros(3, dtype=torch.complex64)):
        with pytest.raises(CheckFailed, match="not those of the parameter"):
            as_values(2, WEIGHT, found)
    assert as_values(2, WEIGHT, None) is None


def test_a_missing_gradient_names_parameter_and_ranks() -> None:
    told = wrong_gradient(WEIGHT, [0, 1], [0], [MEAN, None], MEAN)
    assert "parameter `head.bias` has no gradient on rank 1" in told
    assert "was not used on rank 1" in told
    assert "its bucket was never reduced" in told


def test_nan_is_wrong_wherever_it_stands() -> None:
    nan = np.full(3, np.nan)
    assert "NaN" in wrong_gradient(WEIGHT, [0], [0], [nan], MEAN)
    assert "neither None nor zero" in wrong_gradient(WEIGHT, [0], [], [nan], None)


def test_none_and_zero_are_right_where_nobody_has_a_gradient() -> None:
    assert wrong_gradient(WEIGHT, [0, 1], [], [None, np.zeros(3)], None) == ""
    frozen = Weight("frozen", (3,), trainable=False)
    assert "is not trainable" in wrong_gradient(frozen, [0], [0], [np.zeros(3)], None)


def test_a_mean_over_the_users_alone_is_named() -> None:
    local = [np.array([12.0, 24.0, 36.0]), None, np.array([36.0, 12.0, 24.0])]
    found = [np.array([24.0, 18.0, 30.0])] * 3
    (told,) = gradient_causes([0, 1, 2], 3, [0, 2], found, local)
    assert "a mean over the ranks that used the parameter" in told


def test_a_sum_is_named() -> None:
    local = [np.array([12.0, 24.0, 36.0]), np.array([36.0, 12.0, 24.0])]
    found = [np.array([48.0, 36.0, 60.0])] * 2
    (told, *_) = gradient_causes([0, 1], 2, [0, 1], found, local)
    assert "a sum where a mean was asked for" in told


def causes_of(training: Training, wrong: Callable[[Drawn, Weight], list[Values]]) -> str:
    """What is said of the first step's gradients where they are wrong in one way."""
    drawn = draw(training)
    gradients = [wrong(drawn, weight) for weight in training.weights]
    outputs: list[dict[str, object]] = [
        {
            "gradients": [
                {
                    weight.name: torch.from_numpy(by_place[place]).to(getattr(torch, weight.dtype))
                    for weight, by_place in zip(training.weights, gradients, strict=True)
                }
            ]
        }
        for place in range(training.world_size)
    ]
    with pytest.raises(CheckFailed) as told:
        require_gradients(drawn, Answer(outputs, Trace()))
    return " ".join(told.value.causes)


def test_parameters_in_place_of_gradients_are_named() -> None:
    def parameters(drawn: Drawn, weight: Weight) -> list[Values]:
        inputs = drawn.inputs[0]
        assert inputs is not None
        return [inputs["values"][weight.name].numpy()] * 2

    told = causes_of(Training(world_size=2, steps=1), parameters)
    assert "the mean of the parameters" in told
    assert parameters_for_gradients([MEAN, MEAN + 1], torch.from_numpy(MEAN)) == []


def test_a_bucket_that_was_sent_too_early_is_named() -> None:
    def zeros(drawn: Drawn, weight: Weight) -> list[Values]:
        return [np.zeros(weight.shape)] * 3

    def without_ranks_0_and_2(drawn: Drawn, weight: Weight) -> list[Values]:
        own = drawn.local(0, weight)[1]
        assert own is not None
        return [own / 3] * 3

    early = "consistent with a bucket that was sent before this gradient was there"
    training = Training(world_size=3, steps=1)
    assert causes_of(training, zeros) == early
    assert causes_of(training, without_ranks_0_and_2) == f"{early}, on ranks 0 and 2"


def test_micro_batches_that_are_not_in_the_mean_are_named() -> None:
    def of(first: int, end: int) -> Callable[[Drawn, Weight], list[Values]]:
        def mean(drawn: Drawn, weight: Weight) -> list[Values]:
            parts = [own[weight.name][first:end] for own in drawn.own[0]]
            return [np.sum(parts, axis=(0, 1)) / 2] * 2

        return mean

    training = Training(world_size=2, steps=1, micro_batches=3)
    assert "only the first micro-batch" in causes_of(training, of(0, 1))
    assert "only the last micro-batch" in causes_of(training, of(2, 3))
    assert "before the gradient of the last micro-batch" in causes_of(training, of(0, 2))


def test_ranks_are_listed_as_people_do() -> None:
    assert ranks_in_words([2]) == "rank 2"
    assert ranks_in_words([0, 2, 3]) == "ranks 0, 2 and 3"


def test_a_tensor_is_just_itself() -> None:
    wanted = torch.arange(3)
    assert is_just(torch.arange(3), wanted)
    for other in (None, [0, 1, 2], wanted.float(), wanted[None], wanted + 1):
        assert not is_just(other, wanted)
