"""Inputs are secret, repeatable, exact, and different wherever a mistake could hide."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autograder.inputs import (
    Op,
    Secret,
    SecretError,
    Seed,
    course_secret,
    exact_bound,
    exact_limit,
    integers,
    integers_by_rank,
    known_secret,
)
from autograder.paths import SECRET_NAME

FLOATING = ["bfloat16", "float16", "float32", "float64"]
INTEGERS = ["uint8", "int8", "int16", "int32", "int64"]


def draw(check_id: str = "a", secret: Secret | None = None, purpose: str = "inputs") -> list[int]:
    rng = Seed.of(secret or known_secret(), check_id).generator(purpose)
    return [int(value) for value in integers(rng, [8], "int32", -(10**6), 10**6)]


def test_the_same_secret_and_check_give_the_same_inputs() -> None:
    assert draw() == draw()


def test_another_check_secret_or_purpose_gives_other_inputs() -> None:
    drawn = [draw(), draw("b"), draw(secret=known_secret(1)), draw(purpose="order")]
    assert all(one != other for one, other in itertools.combinations(drawn, 2))


def test_inputs_stay_the_same_from_version_to_version() -> None:
    rng = Seed.of(known_secret(), "all_reduce.sum").generator()
    assert integers(rng, [4], "int32", -1000, 1000).tolist() == [876, -725, -973, 878]


@pytest.fixture
def rng() -> np.random.Generator:
    return Seed.of(known_secret(), "tests").generator()


def round_trip(values: Any, dtype: str) -> Any:
    """The values after they were held in the dtype, in float64 or int64."""
    torch = pytest.importorskip("torch")
    held = torch.tensor(np.asarray(values)).to(getattr(torch, dtype))
    return (held.double() if dtype in FLOATING else held.long()).numpy()


@pytest.mark.parametrize("dtype", FLOATING + INTEGERS)
def test_every_value_is_exact_in_its_dtype(dtype: str, rng: np.random.Generator) -> None:
    bound = exact_limit(dtype)
    values = integers(rng, [1000], dtype, 0 if dtype == "uint8" else -bound, bound)
    assert np.array_equal(round_trip(values, dtype), values)
    assert len(np.unique(values)) > 100


@pytest.mark.parametrize("dtype", FLOATING)
def test_one_past_the_limit_is_not_exact(dtype: str) -> None:
    past = exact_limit(dtype) + 1
    if dtype == "float64":
        assert float(past) != past
    else:
        assert round_trip(float(past), dtype) != past


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32"])
def test_integers_reach_to_the_end_of_their_dtype(dtype: str) -> None:
    assert exact_limit(dtype) == np.iinfo(dtype).max


def test_half_precision_ends_before_its_steps_grow_too_coarse() -> None:
    assert exact_limit("float16", 64) == 2**15
    assert exact_limit("bfloat16", 64) == 2**14


REDUCE: dict[Op, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b,
    "avg": lambda a, b: a + b,
    "product": lambda a, b: a * b,
}


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("op", ["sum", "product", "avg"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int32", "int8"])
def test_reducing_the_largest_inputs_is_exact_in_any_order(
    dtype: str, op: Op, world_size: int, rng: np.random.Generator
) -> None:
    torch = pytest.importorskip("torch")
    if op == "avg" and dtype in INTEGERS:
        with pytest.raises(ValueError, match="average"):
            exact_bound(dtype, world_size, op, world_size)
        return
    multiple_of = 24 if op == "avg" else 1
    bound = exact_bound(dtype, world_size, op, multiple_of)
    terms = [integers(rng, [64], dtype, -bound, bound, multiple_of) for _ in range(world_size)]
    terms = [np.concatenate([term, [bound, -bound, bound]]) for term in terms]
    exact = terms[0].astype(np.float64)
    for term in terms[1:]:
        exact = REDUCE[op](exact, term.astype(np.float64))
    held = [torch.tensor(term).to(getattr(torch, dtype)) for term in terms]
    for order in itertools.islice(itertools.permutations(held), 24):
        total = order[0]
        for term in order[1:]:
            total = REDUCE[op](total, term)
        assert np.array_equal(total.double().numpy(), exact)
    if op == "avg":
        divided = sum(term / world_size for term in held)
        assert np.array_equal(divided.double().numpy(), exact / world_size)


def test_bounds_are_as_large_as_they_can_be() -> None:
    assert exact_bound("bfloat16", 4, "sum") == 64
    assert exact_bound("float16", 4, "product") == 6
    assert exact_bound("float32", 3, "product") == 256
    assert exact_bound("int8", 8, "sum") == 15
    assert exact_bound("float32", 8, "max") == 2**24
    assert exact_bound("bfloat16", 8, "avg", 24) == 240


def test_where_no_input_would_be_exact_it_is_said() -> None:
    with pytest.raises(ValueError, match="no multiple of 100"):
        exact_bound("int8", 2, "sum", 100)
    with pytest.raises(ValueError, match="multiples of 3"):
        exact_bound("float32", 3, "avg", 4)
    with pytest.raises(ValueError, match="float8"):
        exact_limit("float8")
    with pytest.raises(ValueError, match="no such reduction"):
        exact_bound("float32", 2, "xor")  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", FLOATING + INTEGERS)
def test_the_range_includes_both_ends(dtype: str, rng: np.random.Generator) -> None:
    assert set(integers(rng, [500], dtype, 3, 6).tolist()) == {3, 4, 5, 6}


def test_averages_get_multiples(rng: np.random.Generator) -> None:
    values = integers(rng, [300], "float32", -30, 30, multiple_of=12)
    assert set(values.tolist()) == {-24, -12, 0, 12, 24}


def test_ranges_that_cannot_be_are_refused(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="exact range of bfloat16"):
        integers(rng, [1], "bfloat16", 0, 257)
    with pytest.raises(ValueError, match="exact range of uint8, 0 to"):
        integers(rng, [1], "uint8", -1, 3)
    with pytest.raises(ValueError, match="no multiple of 12"):
        integers(rng, [1], "float32", 1, 11, multiple_of=12)
    with pytest.raises(ValueError, match="too few for 4 ranks"):
        integers_by_rank(rng, 4, [2], "float32", 0, 2)


@given(
    st.integers(1, 8),
    st.lists(st.integers(0, 5), max_size=3),
    st.sampled_from(FLOATING + INTEGERS),
    st.integers(0, 20),
)
def test_no_two_ranks_hold_the_same_at_any_index(
    world_size: int, shape: list[int], dtype: str, seed: int
) -> None:
    rng = Seed.of(known_secret(seed), "ranks").generator()
    held = integers_by_rank(rng, world_size, shape, dtype, 2, 11)
    assert [array.shape for array in held] == [tuple(shape)] * world_size
    assert all(np.all((array >= 2) & (array <= 11)) for array in held)
    assert all(np.all(one != other) for one, other in itertools.combinations(held, 2))


def test_as_many_values_as_ranks_are_enough(rng: np.random.Generator) -> None:
    held = integers_by_rank(rng, 3, [50], "float32", -12, 12, multiple_of=12)
    assert np.array_equal(np.sort(held, axis=0), np.repeat([[-12], [0], [12]], 50, axis=1))


def test_small_inputs_have_no_value_twice(rng: np.random.Generator) -> None:
    held = np.concatenate(integers_by_rank(rng, 4, [16], "float32", -500, 500))
    assert len(np.unique(held)) == 64


def test_many_ranks_in_a_narrow_range_are_spread_evenly(rng: np.random.Generator) -> None:
    held = integers_by_rank(rng, 5, [20_000], "bfloat16", -3, 3)
    for array in held:
        counts = np.unique(array, return_counts=True)[1]
        assert len(counts) == 7
        assert np.all(np.abs(counts - 20_000 / 7) < 400)


def test_a_rank_may_change_its_input_without_changing_its_peers(rng: np.random.Generator) -> None:
    held = integers_by_rank(rng, 2, [4], "float32", -100, 100)
    before = held[1].copy()
    held[0][:] = 0
    assert np.array_equal(held[1], before)


# --- the secret ------------------------------------------------------------------------------


def test_the_secret_is_made_once_at_random_and_closed_to_others(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    secret = course_secret(here)
    assert course_secret(here) == secret
    assert course_secret(there).value != secret.value
    assert not secret.default
    assert os.stat(here).st_mode & 0o777 == 0o700
    assert os.stat(here / SECRET_NAME).st_mode & 0o777 == 0o600
    assert [path.name for path in here.iterdir()] == [SECRET_NAME]


def test_the_secret_does_not_show_itself(tmp_path: Path) -> None:
    secret = course_secret(tmp_path / "private")
    seed = Seed.of(secret, "a")
    assert repr(secret.value)[2:-1] not in f"{secret!r} {secret} {seed!r}"
    assert secret.value.hex() not in secret.fingerprint
    assert len(secret.fingerprint) == 64
    assert "key" not in repr(seed)


def test_a_known_secret_says_that_it_is_none() -> None:
    assert known_secret().default
    assert known_secret(1).value != known_secret(2).value


def make(tmp_path: Path) -> Path:
    private = tmp_path / "private"
    course_secret(private)
    return private


def test_a_directory_open_to_others_is_refused_with_the_cure(tmp_path: Path) -> None:
    private = make(tmp_path)
    private.chmod(0o755)
    with pytest.raises(SecretError, match="chmod 700"):
        course_secret(private)


def test_nobody_is_told_to_close_a_folder_for_everybody(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(SecretError, match="Name one of your own in AUTOGRADER_PRIVATE"):
        course_secret(tmp_path)


def test_a_secret_open_to_others_is_refused_with_the_cure(tmp_path: Path) -> None:
    private = make(tmp_path)
    (private / SECRET_NAME).chmod(0o640)
    with pytest.raises(SecretError, match="chmod 600"):
        course_secret(private)


def test_links_and_pipes_are_no_secrets(tmp_path: Path) -> None:
    private = make(tmp_path)
    secret = private / SECRET_NAME
    secret.rename(tmp_path / "elsewhere")
    secret.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SecretError, match="cannot be kept"):
        course_secret(private)
    secret.unlink()
    os.mkfifo(secret, 0o600)
    with pytest.raises(SecretError, match="not a regular file"):
        course_secret(private)
    (tmp_path / "link").symlink_to(private)
    with pytest.raises(SecretError, match="not a directory"):
        course_secret(tmp_path / "link")


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33])
def test_a_damaged_secret_is_not_replaced_silently(tmp_path: Path, content: bytes) -> None:
    private = make(tmp_path)
    (private / SECRET_NAME).write_bytes(content)
    with pytest.raises(SecretError, match="should hold 32 bytes"):
        course_secret(private)


def test_a_file_in_the_place_of_the_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "private").write_text("")
    with pytest.raises(SecretError, match="cannot be kept"):
        course_secret(tmp_path / "private")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_secret_of_another_user_is_refused(tmp_path: Path) -> None:
    private = make(tmp_path)
    os.chown(private / SECRET_NAME, 12345, 12345)
    with pytest.raises(SecretError, match="belongs to another user"):
        course_secret(private)
    os.chown(private, 12345, 12345)
    with pytest.raises(SecretError, match="belongs to another user"):
        course_secret(private)
