"""What the checks of tensor parallelism ask for, where it can be said without running ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from autograder.cost import score_collectives
from autograder.failure import CheckFailed
from autograder.judge import Answer
from autograder.shards import Wanted, require_parts
from autograder.tensor_parallel import CrossEntropy, Layer, Region, Scenario, Setting
from multirank import Operation, Trace

SCENARIOS: list[Scenario] = [
    Region("copy_to", Setting(3, "bfloat16")),
    Region("reduce_from", Setting(2, beside=True)),
    Region("gather_from", Setting(4), (12, 12), 0, "reduce_scatter"),
    Region("scatter_to", Setting(4, members=(1, 3)), dim=1),
    Layer("column", Setting(3), (12, 24)),
    Layer("row", Setting(3, "bfloat16"), (24, 12)),
    Layer("mlp", Setting(2, summed=True), (12, 24, 12)),
    Layer("attention", Setting(2), (24, 24), (2, 5), heads=(6, 2, True)),
    Layer("embedding", Setting(4), (13, 4), (15,)),
    CrossEntropy(Setting(4), tokens=13, ignored=2),
]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """The matrices are tiny: on a busy machine, threads would mostly wait for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def drawn(scenario: Scenario) -> tuple[list[dict[str, Any]], list[Wanted]]:
    return scenario.draw(np.random.default_rng(3))


def answer_of(wanted: list[Wanted], n: int) -> Answer:
    """What ranks would give who have just what is wanted."""
    outputs: list[dict[str, Any]] = [{"gradients": {}} for _ in range(n)]
    for one in wanted:
        for output, part in zip(outputs, one.parts, strict=True):
            *path, name = one.where
            holder = output["gradients"] if path else output
            holder[name] = part.to(getattr(torch, one.dtype))
    return Answer(outputs, Trace())


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_the_same_numbers_are_drawn_each_time_and_every_rank_has_inputs(scenario: Scenario) -> None:
    inputs, wanted = drawn(scenario)
    again, _ = drawn(scenario)
    assert len(inputs) == scenario.setting.n
    assert all(len(one.parts) == scenario.setting.n for one in wanted)
    name = "logits" if "logits" in inputs[0] else "x"
    assert all(
        torch.equal(one[name], other[name]) for one, other in zip(inputs, again, strict=True)
    )


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_what_is_wanted_is_accepted_and_anything_else_is_not(scenario: Scenario) -> None:
    _, wanted = drawn(scenario)
    ranks = range(scenario.setting.n)
    answer = answer_of(wanted, scenario.setting.n)
    for one in wanted:
        require_parts("it", answer, ranks, one)
        last = answer_of(wanted, scenario.setting.n)
        *path, name = one.where
        holder = last.outputs[-1]["gradients"] if path else last.outputs[-1]
        for spoilt in (
            holder[name] + 1 + one.scale,
            holder[name] * torch.nan,
            holder[name].double(),
        ):
            holder[name] = spoilt
            with pytest.raises(CheckFailed, match=f"on rank {ranks[-1]}, {one.what} is not right"):
                require_parts("it", last, ranks, one)
        del holder[name]
        with pytest.raises(CheckFailed, match="there is no tensor"):
            require_parts("it", last, ranks, one)


def test_parts_of_all_ranks_make_up_the_whole_and_padding_is_zero() -> None:
    layer = Layer("embedding", Setting(4), (13, 4), (15,))
    _, wanted = drawn(layer)
    gradient = next(one for one in wanted if one.where == ("gradients", "weight"))
    assert [tuple(part.shape) for part in gradient.parts] == [(4, 4)] * 4
    assert not gradient.parts[-1][1:].any()
    assert gradient.parts[-1][:1].any()


def test_every_rank_has_targets_of_its_own_and_of_others() -> None:
    for tokens, n in ((24, 4), (13, 4), (5, 4)):
        inputs, _ = drawn(CrossEntropy(Setting(n), tokens))
        owners = set((inputs[0]["targets"].flatten() // -(-tokens // n)).tolist())
        assert owners == {place // -(-tokens // n) for place in range(tokens)}


def test_a_bias_that_every_rank_adds_is_told() -> None:
    _, wanted = drawn(Layer("row", Setting(3), (24, 12)))
    output = wanted[0]
    (guess,) = output.guesses.values()
    answer = answer_of([replace(output, parts=guess)], 3)
    with pytest.raises(CheckFailed) as failed:
        require_parts("it", answer, range(3), output)
    assert "a bias that every rank adds" in failed.value.causes[0]


def test_a_gradient_that_is_all_but_zero_may_be_rounded_as_its_weight_s_is() -> None:
    _, wanted = drawn(Layer("attention", Setting(2), (24, 24), (2, 5), heads=(6, 6, True)))
    bias = next(one for one in wanted if one.where == ("gradients", "k_proj.bias"))
    assert max(float(part.abs().max()) for part in bias.parts) < 1e-12
    rounded = [part + 1e-7 * bias.scale for part in bias.parts]
    require_parts("it", answer_of([replace(bias, parts=rounded)], 2), range(2), bias)


# --- Cost ---------------------------------------------------------------------------------------


def operation(name: str, nbytes: int, n: int = 4) -> Operation:
    return Operation(0, 0, name, tuple(range(n)), None, None, None, None, (), nbytes, 0.0, "", 1)


@pytest.mark.parametrize(
    ("used", "part"),
    [
        ([("all_reduce", 400)], "1"),
        ([("reduce_scatter", 400), ("all_gather", 400)], "1"),
        ([("send", 300), ("send", 300), ("recv", 600)], "1"),
        ([("all_reduce", 400), ("barrier", 4000)], "1"),
        ([("all_reduce", 420)], "1"),
        ([("all_reduce", 424)], "3/4"),
        ([("all_reduce", 400), ("all_reduce", 400)], "1/2"),
        ([("all_gather", 4000)], "0"),
        ([], "1"),
    ],
)
def test_bytes_earn_in_the_steps_that_the_docstring_states(
    used: list[tuple[str, int]], part: str
) -> None:
    operations = [operation(name, nbytes) for name, nbytes in used]
    assert score_collectives(operations, 0, Fraction(600), "it").part == Fraction(part)


def test_where_nothing_is_to_be_moved_anything_is_too_much() -> None:
    assert score_collectives([], 0, Fraction(0), "it").part == 1
    score = score_collectives([operation("all_reduce", 4)], 0, Fraction(0), "it")
    assert score.part == 0
    assert "rank 0 moves 6 bytes (all_reduce 6); 0 are enough" in score.why


@pytest.mark.parametrize(
    ("scenario", "elements"),
    [
        (Region("copy_to", Setting(4), (2, 12)), 2 * 24),
        (Region("gather_from", Setting(4), (2, 12)), 24),
        (Region("gather_from", Setting(4), (2, 12), None, "reduce_scatter"), 2 * 24),
        (Layer("column", Setting(4), (8, 16), (3,)), 2 * 24),
        (Layer("column", Setting(4), (8, 16), (3,), options={"gather_output": True}), 48 + 48),
        (Layer("column", Setting(4), (8, 16), (3,), options={"copy_input": False}), 0),
        (Layer("row", Setting(4), (8, 16), (3,)), 2 * 48),
        (Layer("mlp", Setting(4), (8, 32, 16), (3,)), 2 * 24 + 2 * 48),
        (Layer("column_mlp", Setting(4), (8, 32, 16), (3,)), 2 * 24 + 2 * 96 + 48),
        (Layer("attention", Setting(4), (8, 8), (1, 3), heads=(4, 4, True)), 4 * 24),
        (Layer("embedding", Setting(4), (64, 8), (3,)), 2 * 24),
        (CrossEntropy(Setting(4), 64, (3,)), 6 * 3),
    ],
    ids=str,
)
def test_the_bound_is_that_of_the_docstring(scenario: Scenario, elements: int) -> None:
    assert scenario.cost == Fraction(3, 4) * 4 * elements


def test_a_rank_gets_its_part_of_what_is_sharded() -> None:
    inputs, _ = drawn(Layer("row", Setting(3), (24, 12)))
    parts: list[Tensor] = [one["x"] for one in inputs]
    assert [part.shape[-1] for part in parts] == [8, 8, 8]
    assert not torch.equal(parts[0], parts[1])
