"""Checks of problem bytes_moved."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from autograder.closed_form import BYTES, ELEMENTS, BadCall, Formula, Mistake, require_numbers
from autograder.judge import Judge
from autograder.problem import problem

WORLD_SIZES = (2, 3, 8, 64)
WHOLE = "a part as large as the whole: of n parts, a device sends all but one, (n-1)/n of it"


def _sent(size_bytes: float, world_size: int, *, passes: int = 2) -> Fraction:
    """By so many of reduce-scatter and all-gather; `passes` times the whole would be too much."""
    return passes * Fraction(size_bytes) * Fraction(world_size - 1, world_size)


def _ring_seconds(
    size_bytes: float,
    world_size: int,
    bytes_per_second: float,
    latency_seconds: float = 0.0,
    *,
    passes: int = 2,
    latencies: int | None = None,
) -> Fraction:
    """If the latency is paid so often; None: in every step."""
    steps = passes * (world_size - 1) if latencies is None else latencies
    moving = _sent(size_bytes, world_size, passes=passes) / Fraction(bytes_per_second)
    return moving + steps * Fraction(latency_seconds)


def _data_parallel(
    parameters: float, sharding: str, world_size: int, *, usual: int = 2, zero3: int = 3
) -> Fraction:
    return _sent(2 * parameters, world_size, passes=zero3 if sharding == "zero3" else usual)


def _output_bytes(batch: int, sequence: int, hidden: int, **_: int) -> int:
    return 2 * batch * sequence * hidden


def _tensor_parallel(
    batch: int, sequence: int, hidden: int, world_size: int, *, all_reduces: int = 4
) -> Fraction:
    return all_reduces * _sent(_output_bytes(batch, sequence, hidden), world_size)


RING_BYTES = Formula(
    "ring_all_reduce_bytes",
    _sent,
    (
        Mistake("one of the two phases: a reduce-scatter, then an all-gather", Fraction(1, 2)),
        Mistake("what is sent and what is received together: what is sent is asked for", 2),
        Mistake(WHOLE, lambda size_bytes, world_size: 2 * Fraction(size_bytes)),
        Mistake(
            "the whole tensor in every step: a part is 1/n of it",
            lambda size_bytes, world_size: 2 * (world_size - 1) * Fraction(size_bytes),
        ),
        Mistake(
            "the total over all devices, where what one sends is asked for",
            lambda size_bytes, world_size: world_size * _sent(size_bytes, world_size),
        ),
        *BYTES,
    ),
)
RING_SECONDS = Formula(
    "ring_all_reduce_seconds",
    _ring_seconds,
    (
        Mistake("one of the two phases: a reduce-scatter, then an all-gather", Fraction(1, 2)),
        Mistake("no latency", lambda **given: _ring_seconds(**given, latencies=0)),
        Mistake(
            "the latency once: it is paid in every step",
            lambda **given: _ring_seconds(**given, latencies=1),
        ),
        Mistake(
            WHOLE,
            lambda size_bytes, world_size, bytes_per_second, latency_seconds=0.0: (
                2 * Fraction(size_bytes) / Fraction(bytes_per_second)
                + 2 * (world_size - 1) * Fraction(latency_seconds)
            ),
        ),
        Mistake(
            "the whole tensor in every step: a part is 1/n of it",
            lambda size_bytes, world_size, bytes_per_second, latency_seconds=0.0: (
                2
                * (world_size - 1)
                * (Fraction(size_bytes) / Fraction(bytes_per_second) + Fraction(latency_seconds))
            ),
        ),
        Mistake(
            "a bandwidth in bits per second: it is in bytes",
            lambda **given: _ring_seconds(**given | {"size_bytes": 8 * given["size_bytes"]}),
        ),
        Mistake("milliseconds where seconds are asked for", 10**3),
        Mistake("microseconds where seconds are asked for", 10**6),
    ),
)
DATA_PARALLEL = Formula(
    "data_parallel_bytes",
    _data_parallel,
    (
        Mistake(
            "32 bits for each gradient and weight: they travel in 16",
            2,
        ),
        ELEMENTS,
        Mistake(
            WHOLE,
            lambda parameters, sharding, world_size: (
                (3 if sharding == "zero3" else 2) * 2 * Fraction(parameters)
            ),
        ),
        Mistake(
            "one all-gather less for ZeRO-3: nobody keeps the weights for the backward pass",
            lambda **given: _data_parallel(**given, zero3=2),
        ),
        Mistake(
            "an all-reduce of the gradients for ZeRO-3: a reduce-scatter is enough",
            lambda **given: _data_parallel(**given, zero3=4),
        ),
        Mistake(
            "the reduce-scatter alone: an all-gather brings everybody the new weights",
            lambda **given: _data_parallel(**given, usual=1),
        ),
        Mistake(
            "an all-reduce of the gradients and an all-gather of the weights: for its own part of "
            "the weights, a device needs no more than its part of the gradients",
            lambda **given: _data_parallel(
                **given, usual=2 if given["sharding"] == "ddp" else 3, zero3=3
            ),
        ),
        Mistake(
            "the total over all devices, where what one sends is asked for",
            lambda **given: given["world_size"] * _data_parallel(**given),
        ),
        *BYTES,
    ),
)
TENSOR_PARALLEL = Formula(
    "tensor_parallel_bytes",
    _tensor_parallel,
    (
        Mistake(
            "2 all-reduces: the forward pass alone, or one of attention and MLP", Fraction(1, 2)
        ),
        ELEMENTS,
        Mistake(
            "6 all-reduces: nothing is recomputed",
            lambda **given: _tensor_parallel(**given, all_reduces=6),
        ),
        Mistake("32 bits for each element: they have 16", 2),
        Mistake(
            "an all-reduce that moves its tensor once: it moves it 2(n-1)/n times",
            lambda **given: 4 * _output_bytes(**given),
        ),
        Mistake(WHOLE, lambda **given: 8 * _output_bytes(**given)),
        Mistake(
            "one phase of each all-reduce: a reduce-scatter, then an all-gather", Fraction(1, 2)
        ),
        *BYTES,
    ),
)


@problem("bytes_moved", share="9/40")
def test_ring_bytes(judge: Judge) -> None:
    """What a device sends in a ring all-reduce."""
    rng = judge.seed.generator()
    require_numbers(
        judge,
        [
            (RING_BYTES, {"size_bytes": _megabytes(rng), "world_size": world_size})
            for world_size in WORLD_SIZES
        ],
    )


@problem("bytes_moved", share="1/5", function="ring_all_reduce_seconds")
def test_ring_seconds(judge: Judge) -> None:
    """How long it takes, with and without latency."""
    rng = judge.seed.generator()
    latencies: tuple[dict[str, float], ...] = (
        *({"latency_seconds": int(rng.integers(5, 50)) * 1e-6} for _ in WORLD_SIZES),
        {},
    )
    require_numbers(
        judge,
        [
            (RING_SECONDS, _link(rng, world_size) | latency)
            for world_size, latency in zip((*WORLD_SIZES, 5), latencies, strict=True)
        ],
    )


@problem("bytes_moved", share="1/4", function="data_parallel_bytes")
def test_data_parallel(judge: Judge) -> None:
    """What a device sends in a step with DDP and ZeRO 1, 2 and 3."""
    rng = judge.seed.generator()
    require_numbers(
        judge,
        [
            (
                DATA_PARALLEL,
                {
                    "parameters": int(rng.integers(10, 1000)) * 1e8,
                    "sharding": sharding,
                    "world_size": world_size,
                },
            )
            for sharding in ("ddp", "zero1", "zero2", "zero3")
            for world_size in WORLD_SIZES
        ],
    )


@problem("bytes_moved", share="7/40", function="tensor_parallel_bytes")
def test_tensor_parallel(judge: Judge) -> None:
    """What a device sends for a layer with tensor parallelism."""
    rng = judge.seed.generator()
    require_numbers(
        judge,
        [
            (
                TENSOR_PARALLEL,
                {
                    "batch": int(rng.integers(1, 9)),
                    "sequence": 1024 * int(rng.integers(1, 9)),
                    "hidden": 128 * int(rng.integers(8, 99)),
                    "world_size": world_size,
                },
            )
            for world_size in WORLD_SIZES
        ],
    )


@problem("bytes_moved", share="3/20", kind="edges")
def test_edges(judge: Judge) -> None:
    """One device sends nothing, and bad arguments raise ValueError."""
    ring = {"size_bytes": 1e9, "world_size": 5}
    timed = ring | {"bytes_per_second": 5e10, "latency_seconds": 1e-5}
    data = {"parameters": 1e9, "sharding": "zero3", "world_size": 5}
    layer = {"batch": 1, "sequence": 2048, "hidden": 4096, "world_size": 5}
    formulas = ((RING_BYTES, ring), (RING_SECONDS, timed), (DATA_PARALLEL, data))
    require_numbers(
        judge,
        [
            (formula, arguments | more)
            for formula, arguments in (*formulas, (TENSOR_PARALLEL, layer))
            for more in ({}, {"world_size": 1})
        ],
        [
            BadCall("ring_all_reduce_bytes", ring | {"world_size": 0}, "no devices"),
            BadCall("ring_all_reduce_bytes", ring | {"size_bytes": -1}, "less than no byte"),
            BadCall("ring_all_reduce_seconds", timed | {"bytes_per_second": 0}, "no bandwidth"),
            BadCall("ring_all_reduce_seconds", timed | {"latency_seconds": -1}, "a latency of -1"),
            BadCall("data_parallel_bytes", data | {"sharding": "zero4"}, "an unknown sharding"),
            BadCall("tensor_parallel_bytes", layer | {"batch": 0}, "no batch"),
        ],
    )


def _megabytes(rng: np.random.Generator) -> float:
    return int(rng.integers(10, 10000)) * 1e6


def _link(rng: np.random.Generator, world_size: int) -> dict[str, Any]:
    return {
        "size_bytes": _megabytes(rng),
        "world_size": world_size,
        "bytes_per_second": int(rng.integers(10, 900)) * 1e9,
    }
