"""What scenarios expect is what the collectives are defined to do, whoever computes it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autograder.agreement import difference
from autograder.compare import Array
from autograder.inputs import Seed, known_secret
from autograder.judge import Answer, Judge
from autograder.scenario import ROOTED, Drawn, Scenario, on

from .submissions import reference_files

UNEVEN = ((2, 1, 4), (3, 0, 1), (1, 5, 1))
FUNCTIONS = (
    *("broadcast", "scatter", "gather", "reduce"),
    *("all_gather", "reduce_scatter", "all_reduce", "all_to_all"),
)
TO_ROOT = ("gather", "reduce")


@pytest.fixture
def judge() -> Judge:
    seed = Seed.of(known_secret(1), "a test")
    return Judge(reference_files(), reference_files(), seed, lambda: 60.0)


def rng() -> np.random.Generator:
    return Seed.of(known_secret(1), "a test").generator()


def scenarios(function: str) -> list[Scenario]:
    """Every operation, dtypes, a sub-group with a root that is not its first, uneven splits."""
    three = Scenario(function, 3, (4, 2))
    group = Scenario(function, 4, (4, 2), members=(0, 2, 3), root=2 if function in ROOTED else 0)
    some = [three, replace(three, dtype="bfloat16"), replace(three, dtype="int64"), group]
    if function in ("reduce", "reduce_scatter", "all_reduce"):
        some += [*on(three, op=("min", "max", "product")), replace(group, op="product")]
    if function in ROOTED:
        some += on(three, root=(1, 2))
    if function == "all_to_all":
        some += [replace(three, splits=UNEVEN), replace(group, splits=UNEVEN)]
    return some


def assert_expected(scenario: Scenario, drawn: Drawn, answer: Answer) -> None:
    """Torch's results are those expected (on the ranks where torch promises any)."""
    for rank, expected in zip(scenario.group, drawn.expected, strict=True):
        if scenario.function in TO_ROOT and rank != scenario.root:
            continue
        assert difference(answer.outputs[rank], "result", expected["result"]) == "", scenario


@pytest.mark.parametrize("function", FUNCTIONS)
def test_torch_gives_what_a_scenario_expects(judge: Judge, function: str) -> None:
    by_world: dict[tuple[int, ...] | None, list[Scenario]] = {}
    for scenario in scenarios(function):
        by_world.setdefault(scenario.members, []).append(scenario)
    for together in by_world.values():
        drawn = [scenario.draw(rng()) for scenario in together]
        answers = judge.run_oracle(drawn[0].case, [one.inputs for one in drawn])
        for scenario, one, answer in zip(together, drawn, answers, strict=True):
            assert_expected(scenario, one, answer)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("layout", ["strided", "transposed"])
def test_a_memory_layout_changes_nothing_that_is_expected(function: str, layout: str) -> None:
    plain = Scenario(function, 3, (4, 2))
    assert same(plain.draw(rng()).expected, replace(plain, layout=layout).draw(rng()).expected)


@pytest.mark.parametrize("function", ["reduce", "reduce_scatter", "all_reduce"])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_an_average_is_the_sum_over_the_number_of_ranks(function: str, world_size: int) -> None:
    average = Scenario(function, world_size, (5, 2), "avg")
    drawn = average.draw(rng())
    given = np.stack([one for one in drawn.contributions if one is not None]).astype(np.float64)
    exact = given.sum(axis=0) / world_size
    assert np.array_equal(exact, np.round(exact)), "dividing first must be exact too"
    parts = [exact] * world_size
    if function == "reduce_scatter":
        parts = np.split(exact, world_size)
    for part, expected in zip(parts, drawn.expected, strict=True):
        result = expected.get("result")
        assert isinstance(result, Array) or function == "reduce"
        if isinstance(result, Array):
            assert np.array_equal(result.values, part)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_inputs_differ_by_rank_and_by_index(function: str) -> None:
    drawn = Scenario(function, 4, (3, 2), rows=3).draw(rng())
    given = np.concatenate([one.ravel() for one in drawn.contributions if one is not None])
    assert len(set(given.tolist())) == given.size


def test_an_expanded_input_is_the_same_in_every_row() -> None:
    drawn = Scenario("all_gather", 3, (4, 5), layout="expanded").draw(rng())
    for own in drawn.contributions:
        assert own is not None
        assert (own == own[:1]).all()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_ranks_outside_the_group_are_given_nothing(function: str) -> None:
    drawn = Scenario(function, 4, (4,), members=(1, 3), root=1).draw(rng())
    assert [rank for rank, inputs in enumerate(drawn.inputs) if inputs is not None] == [1, 3]


def test_facts_say_what_a_student_needs_to_repeat_the_call() -> None:
    scenario = Scenario("reduce", 4, (9,), "avg", root=3, members=(1, 3), layout="strided")
    assert str(scenario) == (
        "reduce (world size 4, dtype float32, shape (9,), operation AVG, root 3, group [1, 3], "
        "layout strided)"
    )


def same(first: list[dict[str, Array | list[Array]]], second: object) -> bool:
    return plain(first) == plain(second)


def plain(value: object) -> object:
    if isinstance(value, Array):
        return (value.dtype, value.values.tolist())
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value
