"""Checks of problem placement."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from autograder.closed_form import BadCall, Formula, Mistake, require_numbers
from autograder.judge import Judge
from autograder.problem import problem

Sizes = tuple[int, int, int]


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _sizes(
    state_bytes: float,
    device_bytes: float,
    devices: int,
    devices_per_node: int,
    *,
    allowed: Callable[[int, int], bool] = lambda tensor, pipeline: True,
) -> Sizes:
    """The smallest copy of the model that fits, of those with the largest part of it in a node.

    allowed: what else (tensor, pipeline) must be.
    """
    fitting = [
        (tensor, copy // tensor)
        for copy in _divisors(devices)
        if Fraction(state_bytes) <= copy * Fraction(device_bytes)
        for tensor in _divisors(copy)
        if devices_per_node % tensor == 0 and allowed(tensor, copy // tensor)
    ]
    inside = [(tensor, pipeline) for tensor, pipeline in fitting if pipeline == 1]
    across = [(tensor, pipeline) for tensor, pipeline in fitting if tensor == devices_per_node]
    tensor, pipeline = min(inside or across or fitting)
    return tensor, pipeline, devices // (tensor * pipeline)


def _anywhere(**given: Any) -> Sizes:
    """Tensor parallelism on whatever link there is."""
    return _sizes(**given | {"devices_per_node": given["devices"]})


def _pipeline_first(**given: Any) -> Sizes:
    tensor, pipeline, data = _anywhere(**given)
    return pipeline, tensor, data


def _whole_node(**given: Any) -> Sizes:
    full = given["devices_per_node"]
    return _sizes(**given, allowed=lambda tensor, pipeline: tensor == full)


def _all_for_one_copy(**given: Any) -> Sizes:
    full, devices = given["devices_per_node"], given["devices"]
    return full, devices // full, 1


def _swapped(order: tuple[int, int, int]) -> Callable[..., Sizes]:
    def sizes(**given: Any) -> Sizes:
        right = _sizes(**given)
        return right[order[0]], right[order[1]], right[order[2]]

    return sizes


SIZES = Formula(
    "choose_parallelism",
    _sizes,
    (
        Mistake("tensor parallelism beyond a node, over slow links", _anywhere),
        Mistake(
            "pipeline parallelism alone: inside a node, tensor parallelism comes first",
            _pipeline_first,
        ),
        Mistake("the whole node for tensor parallelism, where less of it would do", _whole_node),
        Mistake(
            "one copy of the model on all devices: what is left is for data parallelism",
            _all_for_one_copy,
        ),
        Mistake("tensor and pipeline in the wrong order", _swapped((1, 0, 2))),
        Mistake("(data, pipeline, tensor), the other way round", _swapped((2, 1, 0))),
    ),
)


def _line(small_batch: int, small: float, large_batch: int, large: float) -> tuple[Any, Any]:
    """a and b of a + b/batch, through both measurements."""
    slope = (Fraction(small) - Fraction(large)) / (
        Fraction(1, small_batch) - Fraction(1, large_batch)
    )
    return Fraction(small) - slope / small_batch, slope


def _noise_scale(
    small_batch: int, small_squared_norm: float, large_batch: int, large_squared_norm: float
) -> Fraction:
    signal, noise = _line(small_batch, small_squared_norm, large_batch, large_squared_norm)
    return Fraction(noise / signal)


def _critical(
    small_batch: int, small_steps: float, large_batch: int, large_steps: float
) -> Fraction:
    least_steps, least_examples = _line(small_batch, small_steps, large_batch, large_steps)
    return Fraction(least_examples / least_steps)


NOISE_SCALE = Formula(
    "gradient_noise_scale",
    _noise_scale,
    (
        Mistake("|G|^2 over S, upside down", lambda **given: 1 / _noise_scale(**given)),
        Mistake(
            "the large batch's norm in place of |G|^2: noise is left in it",
            lambda small_batch, small_squared_norm, large_batch, large_squared_norm: (
                _line(small_batch, small_squared_norm, large_batch, large_squared_norm)[1]
                / Fraction(large_squared_norm)
            ),
        ),
        Mistake(
            "norms squared once more: they are squares already",
            lambda small_batch, small_squared_norm, large_batch, large_squared_norm: _noise_scale(
                small_batch, small_squared_norm**2, large_batch, large_squared_norm**2
            ),
        ),
        Mistake(
            "noise that falls with B^2: the squared norm's falls with B",
            lambda small_batch, small_squared_norm, large_batch, large_squared_norm: _noise_scale(
                small_batch**2, small_squared_norm, large_batch**2, large_squared_norm
            ),
        ),
    ),
)
CRITICAL = Formula(
    "critical_batch_size",
    _critical,
    (
        Mistake("S_min over E_min, upside down", lambda **given: 1 / _critical(**given)),
        Mistake(
            "the steps of the large batch in place of S_min: no batch is infinite",
            lambda small_batch, small_steps, large_batch, large_steps: (
                _line(small_batch, small_steps, large_batch, large_steps)[1] / Fraction(large_steps)
            ),
        ),
        Mistake(
            "the examples of the small batch in place of E_min: no batch is infinitely small",
            lambda small_batch, small_steps, large_batch, large_steps: (
                small_batch
                * Fraction(small_steps)
                / _line(small_batch, small_steps, large_batch, large_steps)[0]
            ),
        ),
        Mistake("E_min, in place of E_min/S_min", lambda **given: _line(*given.values())[1]),
    ),
)


@problem("placement", share="7/20")
def test_parallelism(judge: Judge) -> None:
    """What goes inside a node, what between nodes, and what is left."""
    rng = judge.seed.generator()
    # How many devices a copy needs, at least; how many there are, and in a node.
    clusters = [(1, 16, 8), (3, 32, 8), (8, 16, 8), (9, 64, 8), (20, 48, 8)]
    clusters += [(5, 24, 4), (7, 36, 6), (3, 12, 2)]
    require_numbers(judge, [(SIZES, _cluster(rng, *cluster)) for cluster in clusters])


@problem("placement", share="1/4", function="gradient_noise_scale")
def test_noise_scale(judge: Judge) -> None:
    """The gradient noise scale."""
    names = ("small_squared_norm", "large_squared_norm")
    require_numbers(judge, [(NOISE_SCALE, one) for one in _two_batches(judge, names)])


@problem("placement", share="1/4", function="critical_batch_size")
def test_critical_batch_size(judge: Judge) -> None:
    """The critical batch size, from two runs."""
    names = ("small_steps", "large_steps")
    require_numbers(judge, [(CRITICAL, one) for one in _two_batches(judge, names)])


@problem("placement", share="3/20", kind="edges", function="choose_parallelism")
def test_edges(judge: Judge) -> None:
    """One device; an exact fit; measurements without noise; bad arguments raise ValueError."""
    one = {"state_bytes": 1e9, "device_bytes": 1e9, "devices": 1, "devices_per_node": 1}
    noise = {"small_batch": 8, "small_squared_norm": 3, "large_batch": 64, "large_squared_norm": 2}
    steps = {"small_batch": 8, "small_steps": 3e3, "large_batch": 64, "large_steps": 2e3}
    require_numbers(
        judge,
        [
            (SIZES, one),
            (SIZES, one | {"state_bytes": 2e9, "devices": 8, "devices_per_node": 4}),
            *((NOISE_SCALE, noise | more) for more in ({}, {"small_squared_norm": 2})),
            *((CRITICAL, steps | more) for more in ({}, {"small_steps": 2e3})),
        ],
        [
            BadCall("choose_parallelism", one | {"state_bytes": 2e9}, "a state that fits nowhere"),
            BadCall("choose_parallelism", one | {"devices_per_node": 2}, "half a node"),
            BadCall("gradient_noise_scale", noise | {"large_batch": 8}, "two equal batches"),
            BadCall("gradient_noise_scale", noise | {"small_squared_norm": 1}, "noise below 0"),
            BadCall("gradient_noise_scale", noise | {"small_squared_norm": 16}, "no signal"),
            BadCall("critical_batch_size", steps | {"small_batch": 64}, "two equal batches"),
        ],
    )


def _cluster(
    rng: np.random.Generator, needed: int, devices: int, devices_per_node: int
) -> dict[str, Any]:
    """The state fills between a quarter and three quarters of the last of the `needed` devices."""
    device_bytes = int(rng.integers(16, 200)) * 1e9
    return {
        "state_bytes": device_bytes * (needed - 1 + int(rng.integers(25, 76)) / 100),
        "device_bytes": device_bytes,
        "devices": devices,
        "devices_per_node": devices_per_node,
    }


def _two_batches(judge: Judge, names: tuple[str, str]) -> Iterable[dict[str, Any]]:
    """Four pairs of measurements that lie on a line a + b/batch."""
    rng = judge.seed.generator()
    for _ in range(4):
        small_batch = 8 * int(rng.integers(1, 33))
        large_batch = small_batch * int(rng.integers(2, 65))
        a = int(rng.integers(10, 1000))
        b = a * int(rng.integers(10, 5000))
        yield {
            "small_batch": small_batch,
            names[0]: a + b / small_batch,
            "large_batch": large_batch,
            names[1]: a + b / large_batch,
        }
