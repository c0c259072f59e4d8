"""Checks of problem partition_buckets: one process, and nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from autograder.failure import CheckFailed
from autograder.judge import Case, Judge
from autograder.problem import problem
from autograder.training import Weight, buckets_of, megabytes, trainable

_CASE = Case("ddp", "partition_buckets", world_size=1, process_group=False)
Call = tuple[Sequence[Weight], float]  # the parameters, and the cap in bytes


def weights(sizes: Sequence[int], dtype: str = "float32") -> list[Weight]:
    """Parameters of so many elements."""
    return [Weight(str(place), (size,), dtype) for place, size in enumerate(sizes)]


@problem("partition_buckets", share="1/4")
def test_order(judge: Judge) -> None:
    """The parameters in reverse order, in one bucket or in several."""
    rng = judge.seed.generator()
    sizes = [int(size) for size in rng.permutation(9) + 30]
    require_buckets(judge, [(weights(sizes), cap) for cap in (500, 320, 10**6)])


@problem("partition_buckets", share="1/4")
def test_cap(judge: Judge) -> None:
    """No bucket above the cap, none that the next parameter would fit into; MiB have 2^20 bytes."""
    rng = judge.seed.generator()
    even = int(rng.integers(20, 40))
    sizes = [even] * 8
    random = [int(size) for size in rng.integers(1, 60, 20)]
    large = [125_000, 125_000, 12_000, 200_000, 60_000]  # between 10^6 and 2^20 bytes, and above
    require_buckets(
        judge,
        [
            (weights(sizes), 8 * even),  # two fit in, to the byte
            (weights(sizes), 8 * even - 1),
            (weights(sizes), 12 * even + 1),
            (weights(random), 300),
            (weights(large), 2**20),
            (weights(large), 2**19),
        ],
    )


@problem("partition_buckets", share="1/5")
def test_oversize(judge: Judge) -> None:
    """A parameter that is larger than the cap is alone, wherever it stands."""
    rng = judge.seed.generator()
    small = [int(size) for size in rng.permutation([5, 5, 5, 6, 6, 6])]
    calls: list[Call] = []
    for place in (0, 3, 6):
        calls.append((weights([*small[:place], 90, *small[place:]]), 100))
    calls.append((weights([80, 90, *small, 70, 70]), 100))
    require_buckets(judge, calls)


@problem("partition_buckets", share="3/20")
def test_dtypes(judge: Judge) -> None:
    """One dtype in a bucket, and bytes by the dtype."""
    rng = judge.seed.generator()
    even = 2 * int(rng.integers(10, 15))
    dtypes = ["float32"] * 3 + ["bfloat16"] * 5 + ["float64"] * 2 + ["float32"] * 2
    mixed = [
        replace(one, dtype=dtype) for one, dtype in zip(weights([even] * 12), dtypes, strict=True)
    ]
    half = weights([even] * 12, "bfloat16")
    require_buckets(judge, [(mixed, 9 * even), (mixed, 10**6), (half, 9 * even), (half, 5 * even)])


@problem("partition_buckets", share="1/10", kind="edges")
def test_frozen(judge: Judge) -> None:
    """Parameters that are not trainable are in no bucket."""
    rng = judge.seed.generator()
    sizes = [int(size) for size in rng.integers(20, 24, 8)]
    some = [replace(one, trainable=i not in (1, 2, 6)) for i, one in enumerate(weights(sizes))]
    require_buckets(judge, [(some, 220), (some, 10**6)])


@problem("partition_buckets", share="1/20", kind="edges")
def test_few(judge: Judge) -> None:
    """No parameter, one, or none that is trainable."""
    size = int(judge.seed.generator().integers(5, 50))
    one = weights([size])
    require_buckets(judge, [([], 100), (one, 1000), ([replace(one[0], trainable=False)], 1000)])


def require_buckets(judge: Judge, calls: Sequence[Call]) -> None:
    """All partitions must be those of the docstring's rule.

    Raises:
        CheckFailed: one is not.
    """
    inputs = {"calls": [[[one.described() for one in some], megabytes(cap)] for some, cap in calls]}
    (answer,) = judge.run(_CASE, [[inputs]])
    found = answer.plain(0, "buckets")
    if len(found) != len(calls):
        raise CheckFailed("rank 0 gave no answer")
    for (some, cap), buckets in zip(calls, found, strict=True):
        judge.note({"parameters": str(len(some)), "bucket cap": f"{cap:,} bytes"})
        places = {one.name: place for place, one in enumerate(some)}
        wanted = [[places[one.name] for one in bucket] for bucket in buckets_of(some, cap)]
        if buckets != wanted:
            raise CheckFailed(
                f"{len(some)} parameters, with a cap of {cap:,} bytes: "
                f"{_difference(some, cap, buckets, wanted)}",
                causes=_causes(calls, found),
            )


def _difference(some: Sequence[Weight], cap: float, found: object, wanted: list[list[int]]) -> str:
    """What is wrong, in a sentence that does not tell the right partition."""
    if not isinstance(found, list) or not all(isinstance(one, list) for one in found):
        return "partition_buckets does not return a list of lists"
    if not all(isinstance(place, int) and 0 <= place < len(some) for one in found for place in one):
        return "something is in a bucket that is no parameter"
    if [] in found:
        return "there is an empty bucket"
    flat = [place for one in found for place in one]
    if frozen := [place for place in flat if not some[place].trainable]:
        return f"parameter {frozen[0]} is in a bucket, but is not trainable"
    if len(set(flat)) < len(flat):
        return "a parameter is in more than one bucket, or several times in one"
    asked = [place for one in wanted for place in one]
    if missing := [place for place in asked if place not in flat]:
        return f"parameter {missing[0]} is in no bucket"
    if flat != asked:
        return "the buckets one after another are not the parameters in reverse order"
    for number, bucket in enumerate(found):
        held = sum(some[place].nbytes for place in bucket)
        if len({some[place].dtype for place in bucket}) > 1:
            return f"bucket {number} holds more than one dtype"
        if held > cap and len(bucket) > 1:
            return f"bucket {number} holds {held:,} bytes, more than the cap"
    return "a bucket is closed, although the next parameter would fit into it"


def _causes(calls: Sequence[Call], found: Sequence[object]) -> list[str]:
    """Which other rule leads to just these buckets, in all calls; at most one sentence."""
    readings = [_readings(some, cap) for some, cap in calls]
    return [
        f"consistent with {words}"
        for words in readings[0]
        if all(buckets == one[words] for buckets, one in zip(found, readings, strict=True))
    ][:1]


def _readings(some: Sequence[Weight], cap: float) -> dict[str, list[list[int]]]:
    """The buckets of other rules, by what is consistent with them."""
    places = {one.name: place for place, one in enumerate(some)}

    def by(rule_weights: Sequence[Weight], rule_cap: float) -> list[list[int]]:
        buckets = buckets_of(rule_weights, rule_cap)
        return [[places[one.name] for one in bucket] for bucket in buckets]

    forward = by([*reversed(some)], cap)
    as_float32 = [replace(one, shape=(prod(one.shape) ** 2 * 4 // one.nbytes,)) for one in some]
    return {
        "the order of the forward pass": forward,
        "buckets that were made in the order of the forward pass, and then reversed": forward[::-1],
        "a bucket for every parameter": [[places[one.name]] for one in reversed(trainable(some))],
        "a cap of at least 1 MiB": by(some, max(cap, 2**20)),
        "a MiB of 10^6 bytes": by(some, cap * 1e6 / 2**20),
        "a cap in units of 2^10 bytes": by(some, cap / 2**10),
        "elements being counted, where bytes were asked for": by(some, _as_elements(some, cap)),
        "4 bytes for an element of any dtype": by(as_float32, cap),
        "a bucket being closed only when it holds more than the cap": _overfull(some, cap, 1),
        "a bucket being closed when it has reached the cap, or more": _overfull(some, cap, 0),
        "a bucket being closed when it holds just the cap": by(some, float(np.nextafter(cap, 0))),
    }


def _as_elements(some: Sequence[Weight], cap: float) -> float:
    """The cap in bytes that comes to the same as counting elements, for parameters of one dtype."""
    return cap * max((one.nbytes // max(1, int(np.prod(one.shape))) for one in some), default=1)


def _overfull(some: Sequence[Weight], cap: float, beyond: int) -> list[list[int]]:
    """Parameters go in first, and then it is looked at whether the bucket is full."""
    places = {one.name: place for place, one in enumerate(some)}
    buckets: list[list[int]] = []
    held, dtype = 0, ""
    for one in reversed(trainable(some)):
        if not buckets or held >= cap + beyond or one.dtype != dtype:
            buckets.append([])
            held, dtype = 0, one.dtype
        buckets[-1].append(places[one.name])
        held += one.nbytes
    return buckets
