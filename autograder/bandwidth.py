"""What bandwidth is, by its definition; what measurements tell; what a wrong one looks like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from autograder.failure import CheckFailed
from autograder.timing import is_close

ITEMSIZE = {"float32": 4, "bfloat16": 2, "float64": 8}

_BOTH_PHASES = ("all_reduce",)
_ONE_PHASE = ("reduce_scatter", "all_gather", "all_to_all", "scatter", "gather")
_ALL = ("broadcast", "reduce")
OPERATIONS = (*_BOTH_PHASES, *_ONE_PHASE, *_ALL)


def factor(op: str, world_size: int) -> Fraction:
    """The bus factor, as nccl-tests define it."""
    if op in _ALL:
        return Fraction(1)
    return (2 if op in _BOTH_PHASES else 1) * Fraction(world_size - 1, world_size)


def wrong_factor(found: float, world_size: int) -> list[str]:
    """Whose factor a wrong one is, at most one sentence; with 3 ranks they all differ."""
    n = world_size
    if n == 1:
        return []
    known = {
        "consistent with the factor of all_reduce": Fraction(2 * (n - 1), n),
        "consistent with the factor of all_gather, of one half of an all_reduce": Fraction(
            n - 1, n
        ),
        "consistent with the factor of broadcast": Fraction(1),
        "consistent with the bytes that all ranks move together": Fraction(2 * (n - 1)),
        "consistent with the bytes that a root sends to all others": Fraction(n - 1),
    }
    return [words for words, one in known.items() if is_close(found, float(one))][:1]


def wrong_bandwidth(
    found: float,
    op: str,
    size_bytes: float,
    world_size: int,
    seconds: float,
    own: float | None = None,
) -> list[str] | None:
    """None where it is right; else what it is consistent with, at most one sentence.

    own: the submission's own number for it, which is right enough here: what is wrong about that
        costs its points elsewhere.
    """
    n = world_size
    algorithm = size_bytes / seconds
    right = float(factor(op, n)) * algorithm
    if is_close(found, right) or (own is not None and is_close(found, own)):
        return None
    known = {
        "gigabytes per second, where bytes are asked for": right / 1e9,
        "2^30 bytes per second, where bytes are asked for": right / 2**30,
        "a unit of 2^30 bytes being taken for one of 10^9": right * 1e9 / 2**30,
        "bits, where bytes are asked for": 8 * right,
        "the algorithm bandwidth, without the bus factor": algorithm,
        "a division by the bus factor": algorithm / float(factor(op, n) or 1),
        "the bus factor applied twice": right * float(factor(op, n)),
        "the bandwidth of all ranks together": right * n,
        "seconds being taken for milliseconds": right * 1e3,
        "size times seconds, where it is size over seconds": right * seconds * seconds,
    }
    return [f"consistent with {words}" for words, one in known.items() if is_close(found, one)][:1]


def wrong_size(found: float, size_bytes: int, itemsize: int, world_size: int) -> list[str]:
    """What a wrong S is consistent with, at most one sentence."""
    known = {
        "elements, where bytes are asked for": size_bytes / itemsize,
        "4 bytes for an element of any dtype": 4 * size_bytes / itemsize,
        "the part of one rank, where S is the size of the whole": size_bytes / world_size,
        "the whole of all ranks together, where S is that of one": size_bytes * world_size,
    }
    return [f"consistent with {words}" for words, one in known.items() if is_close(found, one)][:1]


@dataclass(frozen=True)
class Measured:
    """A measurement that a rank says it made, as `_told` of cases/bandwidth.py puts it.

    own: the bandwidth that the same submission makes of these seconds, if it makes one.
    """

    op: str
    dtype: str
    world_size: int
    size_bytes: float
    seconds: float
    bandwidth: float
    own: float | None


def measured(rank: int, found: object) -> Measured:
    """What a rank gave as a measurement, which may be anything.

    Raises:
        CheckFailed: it is none.
    """
    given: dict[str, Any] = found if isinstance(found, dict) else {}
    match given:
        case {
            "op": str(op),
            "dtype": str(dtype),
            "world_size": int(world_size),
            "size_bytes": float(size_bytes),
            "seconds": float(seconds),
            "bandwidth": float(bandwidth),
            "own": own,
        }:
            by_own = own if isinstance(own, float) else None
            return Measured(op, dtype, world_size, size_bytes, seconds, bandwidth, by_own)
    raise CheckFailed(f"rank {rank} gave no answer")


def require_measurement(
    what: str, one: Measured, op: str, dtype: str, size_bytes: int, world_size: int
) -> None:
    """S, world size and so on, and the bandwidth, given the seconds that are reported.

    what: how the measurement is called, as the beginning of a sentence.

    Raises:
        CheckFailed: something is not right.
    """
    itemsize = ITEMSIZE[dtype]
    if not is_close(one.size_bytes, size_bytes):
        raise CheckFailed(
            f"{what} reports another S",
            causes=wrong_size(one.size_bytes, size_bytes, itemsize, world_size),
        )
    if (one.op, one.dtype, one.world_size) != (op, dtype, world_size):
        raise CheckFailed(f"{what} reports another op, dtype or world_size")
    if not one.seconds > 0:
        raise CheckFailed(f"{what} reports a time that is not above 0")
    causes = wrong_bandwidth(one.bandwidth, op, size_bytes, world_size, one.seconds, one.own)
    if causes is not None:
        raise CheckFailed(f"{what} reports another bandwidth", causes=causes)


def require_launched(
    what: str, launched: Sequence[float], dtype: str, size_bytes: int, world_size: int
) -> None:
    """The operation must have been called with tensors of S bytes, and of nothing else.

    Raises:
        CheckFailed: it has not.
    """
    if not launched:
        raise CheckFailed(f"{what} does not call the operation of the collectives it was given")
    for one in launched:
        if one != size_bytes:
            causes = wrong_size(one, size_bytes, ITEMSIZE[dtype], world_size)
            raise CheckFailed(
                f"{what} calls the operation with tensors of another size", causes=causes
            )
