"""What a function may return, and what arrives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import multirank


def returned(make: Any) -> Any:
    """What arrives of what `make()` returns in a rank."""
    return multirank.run(make, 1, process_group=False).results[0]


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -17,
        2**63,
        -(10**100),
        0.1,
        -0.0,
        5e-324,
        1e308,
        "",
        "text \u00e4 \U0001f600 \x00 \n",
        [],
        [[], [1, [2.0, ["three"]]]],
        {},
        {"a": {"b": [None, {"": 1}]}, "int": ["int", "5"]},
        ["tensor", "float32", [4], 0],
        ["list", 1],
    ],
    ids=lambda value: repr(value)[:30],
)
def test_plain_values_arrive_exactly(value: Any) -> None:
    got = returned(lambda: value)
    assert got == value
    assert type(got) is type(value)
    if isinstance(value, float):
        assert math.copysign(1, got) == math.copysign(1, value)


def test_integers_of_any_length_arrive() -> None:
    assert (returned(lambda: -(3**20000)) == -(3**20000)) is True


def test_nan_and_infinities_arrive() -> None:
    got = returned(lambda: [float("nan"), float("inf"), -float("inf")])
    assert math.isnan(got[0])
    assert got[1:] == [math.inf, -math.inf]


def test_tuples_come_back_as_lists() -> None:
    assert returned(lambda: (1, (2, 3))) == [1, [2, 3]]


TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "f64": lambda: torch.tensor([0.1, float("nan"), float("inf")], dtype=torch.float64),
    "f32": lambda: torch.arange(6.0).reshape(2, 3),
    "f16": lambda: torch.tensor([1.5, -2.0], dtype=torch.float16),
    "bf16": lambda: torch.tensor([1.5, -3.0e38], dtype=torch.bfloat16),
    "c64": lambda: torch.tensor([1 + 2j]),
    "c128": lambda: torch.tensor([1 - 2j], dtype=torch.complex128),
    "i64": lambda: torch.tensor([2**62, -(2**63)]),
    "i32": lambda: torch.tensor([-1], dtype=torch.int32),
    "i16": lambda: torch.tensor([-1], dtype=torch.int16),
    "i8": lambda: torch.tensor([-128], dtype=torch.int8),
    "u8": lambda: torch.tensor([255], dtype=torch.uint8),
    "bool": lambda: torch.tensor([True, False]),
    "0-dim": lambda: torch.tensor(3),
    "no element": lambda: torch.empty(0),
    "no element, 3-dim": lambda: torch.empty(2, 0, 3, dtype=torch.int16),
    "transposed": lambda: torch.arange(6.0).reshape(2, 3).t(),
    "expanded": lambda: torch.tensor([1.0]).expand(3),
    "strided": lambda: torch.arange(10.0)[::3],
    "conjugate": lambda: torch.tensor([1 + 2j]).conj(),
    "with gradient": lambda: torch.ones(2, requires_grad=True) * 2,
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "channels last": lambda: (
        torch.arange(16.0).reshape(1, 4, 2, 2).to(memory_format=torch.channels_last)
    ),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_arrive_exactly(name: str) -> None:
    make = TENSORS[name]
    got, expected = returned(make), make().detach()
    assert type(got) is torch.Tensor
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert torch.equal(got.nan_to_num(), expected.nan_to_num())
    assert got.is_contiguous()
    assert not got.requires_grad


def test_tensors_at_any_depth_arrive_and_are_the_callers_own() -> None:
    got = returned(lambda: {"grads": [torch.ones(2), {"w": (torch.zeros(1), 5)}]})
    assert got == {"grads": [got["grads"][0], {"w": [got["grads"][1]["w"][0], 5]}]}
    got["grads"][0] += 1
    assert got["grads"][0].tolist() == [2, 2]
    assert got["grads"][1]["w"][0].tolist() == [0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.arange(6.0).reshape(2, 3).T,
        lambda: np.array(5),
        lambda: np.float32(1.5),
        lambda: np.bool_(True),
        lambda: np.arange(4)[::-1],
        lambda: np.frombuffer(b"abcd", dtype=np.uint8),
        lambda: np.zeros((0, 2)),
    ],
)
def test_numpy_arrays_arrive_as_tensors(make: Any) -> None:
    run = multirank.run(make, 1, process_group=False)
    got, expected = run.results[0], np.asarray(make())
    assert tuple(got.shape) == expected.shape
    assert np.array_equal(got.numpy(), expected)
    assert run.ranks[0].log == ""


def test_a_numpy_float_is_a_number() -> None:
    assert returned(lambda: np.float64(2.5)) == 2.5


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: {1, 2}, "returned a set; it may return tensors, numbers"),
        (lambda: [object()], "returned a object"),
        (lambda: {1: 2}, "returned a dict"),
        (lambda: b"bytes", "returned a bytes"),
        (lambda: 1j, "returned a complex"),
        (lambda: torch.ones(2).to(torch.float8_e5m2), "cannot return a tensor of .*float8_e5m2"),
        (lambda: torch.eye(2).to_sparse(), "cannot return a tensor of .*sparse"),
        (lambda: torch.empty(2, device="meta"), "meta"),
        (lambda: torch.ones(1).expand(1 << 29), "2147483648 more bytes do not fit"),
        (lambda: ["x" * (17 << 20)], "too long.*return a tensor"),
    ],
)
def test_what_cannot_be_returned_is_an_error_of_the_rank(make: Any, complaint: str) -> None:
    with pytest.raises(multirank.RanksFailed, match=complaint) as failure:
        returned(make)
    assert failure.value.run.ranks[0].ending is multirank.Ending.RAISED


def test_a_value_that_holds_itself_is_an_error_of_the_rank() -> None:
    def circle() -> list[Any]:
        values: list[Any] = []
        values.append(values)
        return values

    with pytest.raises(multirank.RanksFailed, match="RecursionError"):
        returned(circle)


def test_a_sharded_tensor_is_refused_with_what_to_do() -> None:
    def shard() -> Any:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        return distribute_tensor(torch.ones(4), init_device_mesh("cpu", (2,)), [Shard(0)])

    run = multirank.run(shard, 2, check=False)
    assert "cannot return a DTensor" in run.story
    assert "full_tensor()" in run.story


def test_large_results_arrive() -> None:
    got = returned(lambda: [torch.full((4 << 20,), 7, dtype=torch.uint8), "x" * (2 << 20)])
    assert int(got[0].sum(dtype=torch.int64)) == 7 * (4 << 20)
    assert len(got[1]) == 2 << 20


def test_a_world_may_allow_its_ranks_less() -> None:
    def half_full() -> torch.Tensor:
        return torch.ones(128, dtype=torch.uint8)

    def too_much() -> torch.Tensor:
        return torch.ones(4000, dtype=torch.uint8)

    with multirank.World(1, process_group=False, result_bytes=256) as world:
        assert world.call(half_full).results[0].sum() == 128
        with pytest.raises(multirank.RanksFailed, match="4000 more bytes do not fit into the 256"):
            world.call(too_much)
