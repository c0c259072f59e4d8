"""Checks of problem bus_bandwidth: exact numbers, from the table in the docstring."""

from __future__ import annotations

from typing import Any

from autograder.bandwidth import OPERATIONS, factor, wrong_bandwidth, wrong_factor
from autograder.failure import CheckFailed
from autograder.judge import Answer, Case, Judge
from autograder.problem import problem
from autograder.timing import is_close

Calls = list[list[Any]]


@problem("bus_bandwidth", share="9/20")
def test_bus_factor(judge: Judge) -> None:
    """The bus factor of every operation, on 2, 3 and 8 ranks."""
    calls: Calls = [[op, n] for n in (3, 8, 2) for op in OPERATIONS]
    (answer,) = _run(judge, (calls, []))
    _require_factors(judge, answer, calls)


@problem("bus_bandwidth", share="2/5", function="effective_bandwidth")
def test_effective_bandwidth(judge: Judge) -> None:
    """Bytes per second, for every operation and sizes of all dtypes; the docstring's example."""
    rng = judge.seed.generator()
    calls: Calls = [["all_reduce", 400_000_000, 4, 0.0016]]
    for itemsize in (1, 2, 4, 8):
        for op in OPERATIONS:
            n = int(rng.choice([2, 3, 8]))
            calls.append([op, itemsize * n * int(rng.integers(1, 10**7)), n, rng.uniform(1e-5, 1)])
    (answer,) = _run(judge, ([[op, n] for op, _, n, _ in calls], calls))
    _require_bandwidths(judge, answer, calls)


@problem("bus_bandwidth", share="3/20", kind="edges")
def test_one_rank_and_refusals(judge: Judge) -> None:
    """One rank, and nothing to send; bad arguments raise ValueError."""
    factors: Calls = [[op, 1] for op in OPERATIONS]
    bandwidths: Calls = [["all_reduce", 64, 1, 0.5], ["broadcast", 0, 4, 0.5]]
    alone, nothing, bad = _run(
        judge,
        (factors, []),
        ([[op, n] for op, _, n, _ in bandwidths], bandwidths),
        (
            [["all_reduces", 4], ["all_reduce", 0]],
            [["all_reduce", 64, 4, 0.0], ["all_reduce", -64, 4, 0.5]],
        ),
    )
    _require_factors(judge, alone, factors)
    _require_bandwidths(judge, nothing, bandwidths)
    raised = [*_numbers(bad, "factors", 2), *_numbers(bad, "bandwidths", 2)]
    for found, what in zip(raised, _BAD, strict=True):
        if found != "ValueError":
            raise CheckFailed(f"{what} must raise ValueError")


_BAD = (
    "bus_factor of an operation that there is not",
    "bus_factor with a world size of 0",
    "effective_bandwidth with a time of 0 s",
    "effective_bandwidth with a negative size",
)


def _require_factors(judge: Judge, answer: Answer, calls: Calls) -> None:
    for (op, n), number in zip(calls, _numbers(answer, "factors", len(calls)), strict=True):
        judge.note({"operation": op, "world size": str(n)})
        if not isinstance(number, float):
            raise CheckFailed(f"bus_factor({op!r}, {n}) raises {number}")
        if not is_close(number, float(factor(op, n))):
            raise CheckFailed(f"bus_factor({op!r}, {n}) is wrong", causes=wrong_factor(number, n))


def _require_bandwidths(judge: Judge, answer: Answer, calls: Calls) -> None:
    """By the right factor, or by the submission's own: a wrong one costs its points elsewhere."""
    found, factors = (_numbers(answer, name, len(calls)) for name in ("bandwidths", "factors"))
    for (op, size, n, seconds), number, own in zip(calls, found, factors, strict=True):
        judge.note({"operation": op, "world size": str(n)})
        if not isinstance(number, float):
            raise CheckFailed(f"effective_bandwidth of {op} on {n} ranks raises {number}")
        by_own_factor = own * size / seconds if isinstance(own, float) else None
        causes = wrong_bandwidth(number, op, size, n, seconds, by_own_factor)
        if causes is not None:
            raise CheckFailed(f"effective_bandwidth of {op} on {n} ranks is wrong", causes=causes)


def _run(judge: Judge, *calls: tuple[Calls, Calls]) -> list[Answer]:
    """bus_factor and effective_bandwidth, with each of these arguments."""
    inputs = [{"factors": factors, "bandwidths": bandwidths} for factors, bandwidths in calls]
    return judge.run(Case("bandwidth", "formulas", 1, on_gpu=False), [[one] for one in inputs])


def _numbers(answer: Answer, name: str, count: int) -> list[float | str]:
    """Numbers, or names of what was raised in their place."""
    found = [one for one in answer.plain(0, name) if isinstance(one, float | str)]
    if len(found) != count:
        raise CheckFailed("rank 0 gave no answer")
    return found
