"""Checks of problem sweep, on a device of virtual time where more bytes take longer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autograder.bandwidth import (
    ITEMSIZE,
    measured,
    require_launched,
    require_measurement,
    wrong_size,
)
from autograder.failure import CheckFailed
from autograder.judge import Answer, Judge
from autograder.problem import problem
from autograder.timing import MS, Probe, events, is_close, launched

RANKS = 3  # not the bytes of any element, so that a wrong size tells which it is
_A_BYTE = 1e-6  # seconds on top


@problem("sweep", share="2/5")
def test_sizes(judge: Judge) -> None:
    """A measurement for each size, in the order of the sizes."""
    rng = judge.seed.generator()
    for dtype in ("float32", "bfloat16"):
        sizes = _sizes(rng)
        _require_rows(judge, _run(judge, _probe(rng), "all_reduce", dtype, sizes, sizes), sizes)


@problem("sweep", share="9/20")
def test_each_size_is_measured(judge: Judge) -> None:
    """The operation is called with tensors of each size, and each row tells what that took."""
    rng = judge.seed.generator()
    for op, dtype in (("reduce_scatter", "float64"), ("broadcast", "bfloat16")):
        probe, sizes = _probe(rng), _sizes(rng)
        answer = _run(judge, probe, op, dtype, sizes, sizes)
        calls = probe.warmup + probe.iterations
        for rank, happened in zip(probe.ranks, events(answer, probe), strict=True):
            seen = launched(happened)
            if len(seen) != calls * len(sizes):
                raise CheckFailed(
                    f"rank {rank}: sweep of {len(sizes)} sizes calls the operation {len(seen)} "
                    f"times, not {calls} times each: {probe.warmup} to warm up and "
                    f"{probe.iterations} that are timed"
                )
            rows = answer.plain(rank, "measurements")
            for place, size in enumerate(sizes):
                what = f"rank {rank}: row {place + 1} of sweep"
                one = measured(rank, rows[place] if place < len(rows) else None)
                part = seen[place * calls : (place + 1) * calls]
                require_launched(what, part, dtype, size, RANKS)
                if not is_close(one.seconds, probe.seconds(size)):
                    raise CheckFailed(f"{what} reports other seconds than this size has taken")
                require_measurement(what, one, op, dtype, size, RANKS)
            if answer.get(rank, "grouped", bool) is not True:
                raise CheckFailed(f"rank {rank}: sweep calls the operation in another group")


@problem("sweep", share="3/20", kind="edges")
def test_rounding_and_sub_group(judge: Judge) -> None:
    """Sizes that do not divide among the ranks, and sizes below one element each; a sub-group."""
    rng = judge.seed.generator()
    whole = 4 * RANKS  # bytes of a float32 on each rank
    sizes = [*(whole * int(k) for k in rng.integers(2, 100, size=3)), whole, whole]
    asked = [size + int(rng.integers(1, whole)) for size in sizes[:3]] + [whole - 1, 0]
    probe = _probe(rng)
    _require_rows(judge, _run(judge, probe, "all_gather", "float32", asked, sizes), sizes)
    half = Probe(probe.devices[:2], members=(1, 3))
    sizes = [8 * int(k) for k in rng.integers(2, 100, size=2)]
    _require_rows(judge, _run(judge, half, "all_reduce", "float32", sizes, sizes), sizes, half)


def _sizes(rng: np.random.Generator) -> list[int]:
    """Sizes in bytes that fit every dtype, neither rising nor falling."""
    return [24 * int(k) for k in rng.permutation(np.arange(2, 40))[:4]]


def _probe(rng: np.random.Generator) -> Probe:
    took = float(rng.integers(200, 900)) / 100 * MS
    return Probe([{"durations": [took], "seconds_per_byte": _A_BYTE, "meet": False}] * RANKS)


def _run(
    judge: Judge, probe: Probe, op: str, dtype: str, asked: Sequence[int], sizes: Sequence[int]
) -> Answer:
    inputs = probe.inputs(op=op, dtype=dtype, asked=list(asked), sizes=list(sizes))
    facts = probe.facts | {"operation": op, "dtype": dtype}
    (answer,) = judge.run(probe.case("sweep"), [inputs], facts=[facts])
    return answer


def _require_rows(
    judge: Judge, answer: Answer, sizes: Sequence[int], probe: Probe | None = None
) -> None:
    """A row for each size, with that size."""
    dtype = judge.facts["dtype"]
    for rank in probe.ranks if probe else range(RANKS):
        rows = answer.plain(rank, "measurements")
        if answer.get(rank, "rows", int) != len(sizes) or len(rows) != len(sizes):
            raise CheckFailed(
                f"rank {rank}: sweep returns {answer.get(rank, 'rows', int)} measurements for "
                f"{len(sizes)} sizes"
            )
        found = [measured(rank, row).size_bytes for row in rows]
        for place, (one, size) in enumerate(zip(found, sizes, strict=True)):
            if not is_close(one, size):
                n = len(probe.ranks) if probe else RANKS
                causes = wrong_size(one, size, ITEMSIZE[dtype], n)
                if sorted(found) == sorted(map(float, sizes)):
                    causes = ["consistent with the sizes being taken in another order"]
                raise CheckFailed(
                    f"rank {rank}: row {place + 1} of sweep is of another size than was asked for "
                    "there",
                    causes=causes,
                )
