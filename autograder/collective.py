"""What the checks of the collectives share beyond plain values: accuracy, refusals, traffic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from autograder.agreement import compare, difference, require_values
from autograder.compare import Array, float_tolerance
from autograder.failure import CheckFailed
from autograder.grade import Outcome
from autograder.grading import Credit
from autograder.judge import Case, Judge, array, tensor
from autograder.scenario import ALLOWED, Scenario
from autograder.traffic import Moved, busiest, credit
from multirank import Trace

TO_ROOT = ("gather", "reduce")  # functions whose result is the root's alone
LARGE = 64 << 20  # bytes of the full tensor in the checks of all_reduce, reduce_scatter, all_gather
_SAMPLES, _SAMPLE = 64, 1024  # so many pieces of a large result are looked at, each so long
_MODULUS = 4093  # prime, so that no chunk is a whole number of periods


def require_agreement_with_torch(judge: Judge, scenarios: Iterable[Scenario]) -> None:
    """The results must equal torch.distributed's own, on every rank that gets one.

    Raises:
        CheckFailed: they do not.
    """
    rng = judge.seed.generator()
    for scenario in scenarios:
        drawn = scenario.draw(rng)
        (ours,) = judge.run(drawn.case, [drawn.inputs], facts=[scenario.facts])
        (torchs,) = judge.run_oracle(replace(drawn.case, allowed=None), [drawn.inputs])
        for rank in scenario.group:
            if scenario.function in TO_ROOT and rank != scenario.root:
                continue
            expected = torchs.outputs[rank]["result"]
            wanted = [array(e) for e in expected] if isinstance(expected, list) else array(expected)
            if wrong := difference(ours.outputs[rank], "result", wanted):
                raise CheckFailed(
                    f"{scenario}: on rank {rank} the result differs from torch.distributed's: "
                    f"{wrong}"
                )


def require_accuracy(judge: Judge, function: str, op: str, world_size: int = 4) -> None:
    """Random floats: within the error that any sensible order of the sums has, by a float64 oracle.

    Raises:
        CheckFailed: the error is larger.
    """
    rng = judge.seed.generator()
    size = 96 * world_size
    given = [rng.standard_normal(size).astype(np.float32) for _ in range(world_size)]
    inputs = [
        {"tensor": tensor(own, "float32"), "layout": "plain", "op": op}
        | ({"output_shape": [size // world_size]} if function == "reduce_scatter" else {})
        for own in given
    ]
    case = Case("collectives", function, world_size, allowed=ALLOWED)
    facts = {"world size": str(world_size), "dtype": "float32", "operation": op}
    (answer,) = judge.run(case, [inputs], facts=[facts])
    (reference,) = judge.run_reference(case, [inputs])
    wide = np.stack([own.astype(np.float64) for own in given])
    exact, scale = wide.sum(axis=0), np.abs(wide).sum(axis=0)
    if op == "AVG":
        exact, scale = exact / world_size, scale / world_size
    for rank in range(world_size):
        part = slice(None)
        if function == "reduce_scatter":
            part = slice(rank * size // world_size, (rank + 1) * size // world_size)
        error = np.abs(array(reference.outputs[rank]["result"]).values - exact[part]).max()
        tolerance = float_tolerance(float(error), "float32", world_size, scale[part])
        wanted = Array("float32", exact[part].shape, exact[part])
        if wrong := difference(answer.outputs[rank], "result", wanted, tolerance):
            raise CheckFailed(
                f"{function} of random floats: on rank {rank} the error is larger than rounding "
                f"explains: {wrong}"
            )


def require_refusals(
    judge: Judge, good: Scenario, calls: Sequence[tuple[str, Mapping[str, Any], str]]
) -> None:
    """A good call must give right values, and every bad one raise ValueError before it sends.

    Args:
        calls: function, arguments by name (see `refusals` in cases/collectives.py), and what is
            wrong with them in words.

    Raises:
        CheckFailed: otherwise.
    """
    drawn = good.draw(judge.seed.generator())
    case = replace(drawn.case, function="refusals")
    told = {"arguments": "; ".join(f"{function} with {what}" for function, _, what in calls)}
    bad = {"calls": [[function, dict(arguments)] for function, arguments, _ in calls]}
    inputs: list[list[dict[str, Any] | None]] = [
        [own if own is None else {"good": good.function, "inputs": own} for own in drawn.inputs],
        [own if own is None else bad for own in drawn.inputs],
    ]
    try:
        right, refused = judge.run(case, inputs, timeout=4.0, facts=[good.facts, told])
    except CheckFailed as failed:
        if failed.outcome is Outcome.TIMED_OUT and judge.facts == told:
            failed.message = (
                "a call with bad arguments must raise ValueError before anything is sent; one of "
                f"these did not return:\n{failed.message}"
            )
        raise
    compare(judge, good, drawn, right)
    for rank in good.group:
        raised = refused.get(rank, "raised", list)
        for place, (function, _, what) in enumerate(calls):
            found = raised[place] if place < len(raised) else "nothing"
            if found != "ValueError":
                raise CheckFailed(
                    f"{function} with {what}: it must raise ValueError; on rank {rank} it raised "
                    f"{found}"
                )
    for operation in refused.trace.operations:
        raise CheckFailed(
            "a bad call was refused too late: something had been sent or received already "
            f"({operation.name} on rank {operation.rank})"
        )


def score_large(judge: Judge, credit: Credit, function: str) -> None:
    """all_reduce, reduce_scatter, all_gather at 4 and 8 ranks: right values, then the traffic.

    Raises:
        CheckFailed: wrong values, or no credit left.
    """
    rng = judge.seed.generator()
    worst: tuple[Fraction, str] = (Fraction(1), "")
    for world_size in (4, 8):
        trace = _run_large(judge, function, world_size, rng)
        rounds = 2 if function == "all_reduce" else 1
        bound = rounds * (world_size - 1) * LARGE // world_size
        scored = score_traffic(trace, world_size, bound, LARGE)
        worst = min(worst, scored, key=lambda pair: pair[0])
    give(credit, *worst)


def _run_large(judge: Judge, function: str, world_size: int, rng: np.random.Generator) -> Trace:
    """The trace of one call; its result is compared at random places, chosen afterwards."""
    full = LARGE // 4
    part = full // world_size
    slopes = 1 + rng.choice(_MODULUS - 1, size=world_size, replace=False)
    starts_at = rng.integers(0, _MODULUS, size=world_size)
    numbers = [(int(a), int(b)) for a, b in zip(slopes, starts_at, strict=True)]
    inputs = [
        {
            "function": function,
            "elements": part if function == "all_gather" else full,
            "output_elements": {"all_gather": full, "reduce_scatter": part}.get(function),
            "a": a,
            "b": b,
            "modulus": _MODULUS,
        }
        for a, b in numbers
    ]
    size = part if function == "reduce_scatter" else full
    inner = rng.integers(0, size - _SAMPLE, size=_SAMPLES - 2).tolist()
    starts = [0, size - _SAMPLE, *(int(start) for start in inner)]
    samples = {"starts": starts, "length": _SAMPLE}
    facts = {
        "world size": str(world_size),
        "dtype": "float32",
        "size": f"{LARGE / 2**20:g} MiB",
    }
    case = Case("collectives", "large", world_size, allowed=ALLOWED)
    calls: list[list[dict[str, Any]]] = [inputs, [samples] * world_size]
    answer, sampled = judge.run(case, calls, timeout=60.0, facts=[facts, facts])
    index = np.arange(_SAMPLE)[None, :] + np.array(starts)[:, None]
    for rank in range(world_size):
        expected = _large_expected(function, index, rank, numbers).astype(np.float64)
        wanted = [Array("float32", piece.shape, piece) for piece in expected]
        whole = answer.get(rank, "elements", int) == size
        got = {"result": sampled.get(rank, "pieces", list)}
        if not whole or difference(got, "result", wanted):
            raise CheckFailed(
                f"{function} of {facts['size']} on {world_size} ranks: rank {rank}'s result is not "
                "right, so its cost does not count"
            )
    return answer.trace


def _large_expected(
    function: str, index: Any, rank: int, numbers: Sequence[tuple[int, int]]
) -> np.ndarray[Any, Any]:
    """The elements at `index` of what the case `large` must give on a rank.

    numbers: a and b of each rank's input.
    """
    part = LARGE // 4 // len(numbers)
    if function == "all_gather":
        a, b = np.array(numbers).T[:, index // part]
        return np.asarray((a * (index % part) + b) % _MODULUS)
    if function == "reduce_scatter":
        index = index + rank * part
    return np.asarray(sum((a * index + b) % _MODULUS for a, b in numbers))


def score_scenario(judge: Judge, scenario: Scenario, bound: int, full: int) -> tuple[Fraction, str]:
    """One scenario: right values, then the traffic against `bound` bytes of `full`.

    Raises:
        CheckFailed: the values are wrong.
    """
    (answer,) = require_values(judge, [scenario])
    return score_traffic(answer.trace, scenario.world_size, bound, full)


def score_traffic(trace: Trace, world_size: int, bound: int, full: int) -> tuple[Fraction, str]:
    """The part of the points for cost that the traffic earns, and why not all (float32)."""
    moved = busiest(trace, world_size)
    return credit(moved, bound, 4), _in_words(moved, world_size, bound, full)


def _in_words(moved: Moved, world_size: int, bound: int, full: int) -> str:
    return (
        f"with {world_size} ranks, rank {moved.rank} {moved.direction} "
        f"{moved.nbytes / full:.2f} S; {bound / full:.2f} S is enough "
        f"(S is the full tensor, {full / 2**20:.3g} MiB)"
    )


def give(credit: Credit, part: Fraction, why: str) -> None:
    """Gives full, partial or no credit.

    Raises:
        CheckFailed: no credit.
    """
    if part == 0:
        raise CheckFailed(why)
    if part < 1:
        credit(part, why)
