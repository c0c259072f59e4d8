"""What the checks of the collectives share beyond plain values: accuracy, refusals, cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autograder import traffic
from autograder.agreement import compare, difference, likely_causes, require_values
from autograder.compare import Array, float_tolerance
from autograder.cost import Score, busiest, model, score_bytes, score_time, size_in_words, worst
from autograder.failure import CheckFailed
from autograder.grade import Outcome
from autograder.grading import Credit
from autograder.judge import Case, Judge, array, refuse_late, tensor
from autograder.measured import MODULUS, score_all_reduce
from autograder.scenario import ALLOWED, ROOTED, Scenario
from multirank import ReplayError, Trace

TO_ROOT = ("gather", "reduce")  # functions whose result is the root's alone
SMALL, LARGE = 64 << 10, 64 << 20  # bytes of the full tensor in the checks of cost
SHRUNK = 64  # the reference sends so many times less, and each byte of it counts so many times
_ALGORITHMS = {  # the reference's, in words
    "all_reduce": "a ring",
    "reduce_scatter": "a ring",
    "all_gather": "a ring",
    "all_to_all": "a pairwise exchange",
    "broadcast": "a binomial tree",
    "reduce": "a binomial tree",
}
_SAMPLES, _SAMPLE = 64, 1024  # so many pieces of a large result are looked at, each so long


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
                    f"{wrong}",
                    causes=likely_causes(scenario, drawn, ours),
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
        raised = refused.plain(rank, "raised")
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
    """all_reduce, reduce_scatter, all_gather, of 64 MiB: the worse of 4 and 8 ranks counts.

    For all_reduce measured time is in the same pool, unless the machine is too noisy for it.

    Raises:
        CheckFailed: wrong values, or no credit left.
    """
    rng = judge.seed.generator()
    scores = [_score_call(judge, function, world_size, LARGE, rng) for world_size in (4, 8)]
    by_bytes, by_time = zip(*scores, strict=True)
    score = worst(*by_bytes, *by_time)
    if function == "all_reduce" and score.part > 0:
        measured = score_all_reduce(judge)
        score = score if measured is None else worst(score, measured)
    give(credit, score)


def score_either_size(judge: Judge, credit: Credit, function: str) -> None:
    """broadcast, reduce, all_to_all, at 8 ranks: the better of 64 KiB and 64 MiB counts.

    Raises:
        CheckFailed: wrong values, or no credit left.
    """
    rng = judge.seed.generator()
    score = worst(*_score_call(judge, function, 8, SMALL, rng))
    if score.part < 1:
        large = worst(*_score_call(judge, function, 8, LARGE, rng))
        score = max(score, large, key=lambda one: one.part)
    give(credit, score)


def _score_call(
    judge: Judge, function: str, world_size: int, nbytes: int, rng: np.random.Generator
) -> tuple[Score, Score]:
    """One call of that many bytes, whose values must be right: bytes moved, and modelled time."""
    trace = _run_sized(judge, function, world_size, nbytes, rng)
    try:
        modelled = model(trace, world_size)
    except ReplayError as error:
        raise CheckFailed(f"the result is right, but its cost does not count: {error}") from error
    case, inputs = sized(function, world_size, nbytes // SHRUNK, [(1, 0)] * world_size)
    (reference,) = judge.run_reference(case, [inputs])
    least = model(reference.trace, world_size, SHRUNK).seconds
    bound = _bound(function, world_size, nbytes)
    return (
        score_bytes(busiest(trace, world_size), world_size, bound, nbytes),
        score_time(modelled, least, world_size, nbytes, _ALGORITHMS[function]),
    )


def _bound(function: str, world_size: int, nbytes: int) -> int:
    """The bytes that the docstring lets the busiest rank move."""
    rounds = (world_size - 1).bit_length()
    others = (world_size - 1) * nbytes // world_size
    match function:
        case "all_reduce":
            return 2 * others
        case "reduce_scatter" | "all_gather":
            return others
        case "all_to_all":
            return rounds * nbytes // 2
        case "broadcast" | "reduce":
            return rounds * nbytes
    raise ValueError(f"{function} has no bound here")


def sized(
    function: str, world_size: int, nbytes: int, numbers: Sequence[tuple[int, int]]
) -> tuple[Case, list[dict[str, Any]]]:
    """The case `large` and each rank's inputs.

    nbytes: of the full tensor. numbers: a and b of each rank's input.
    """
    full = nbytes // 4
    part = full // world_size
    outputs = {"all_gather": full, "reduce_scatter": part, "all_to_all": full}
    inputs = [
        {
            "function": function,
            "elements": part if function == "all_gather" else full,
            "output_elements": outputs.get(function),
            "root": 0 if function in ROOTED else None,
            "a": a,
            "b": b,
            "modulus": MODULUS,
        }
        for a, b in numbers
    ]
    return Case("collectives", "large", world_size, allowed=ALLOWED), inputs


def _run_sized(
    judge: Judge, function: str, world_size: int, nbytes: int, rng: np.random.Generator
) -> Trace:
    """The trace of one call; its result is compared at random places, chosen afterwards."""
    slopes = 1 + rng.choice(MODULUS - 1, size=world_size, replace=False)
    starts_at = rng.integers(0, MODULUS, size=world_size)
    numbers = [(int(a), int(b)) for a, b in zip(slopes, starts_at, strict=True)]
    case, inputs = sized(function, world_size, nbytes, numbers)
    size = nbytes // 4 // (world_size if function == "reduce_scatter" else 1)
    length = min(_SAMPLE, size)
    inner = rng.integers(0, size - length + 1, size=_SAMPLES - 2).tolist()
    starts = [0, size - length, *(int(start) for start in inner)]
    samples = {"starts": starts, "length": length}
    facts = {"world size": str(world_size), "dtype": "float32", "size": size_in_words(nbytes)}
    calls: list[list[dict[str, Any]]] = [inputs, [samples] * world_size]
    answer, sampled = judge.run(case, calls, timeout=60.0, facts=[facts, facts])
    refuse_late(sampled.trace)
    index = np.arange(length)[None, :] + np.array(starts)[:, None]
    for rank in [0] if function in TO_ROOT else range(world_size):
        expected = expected_elements(function, index, rank, nbytes // 4 // world_size, numbers)
        wanted = [Array("float32", piece.shape, piece) for piece in expected.astype(np.float64)]
        whole = answer.get(rank, "elements", int) == size
        got = {"result": sampled.get(rank, "pieces", list)}
        if not whole or difference(got, "result", wanted):
            raise CheckFailed(
                f"{function} of {facts['size']} on {world_size} ranks: rank {rank}'s result is not "
                "right, so its cost does not count"
            )
    for odd in traffic.too_little(answer.trace, function, world_size, nbytes):
        judge.flags.append(f"{odd} ({function}, {world_size} ranks)")
    return answer.trace


def expected_elements(
    function: str, index: Any, rank: int, part: int, numbers: Sequence[tuple[int, int]]
) -> np.ndarray[Any, Any]:
    """The elements at `index` of what the case `large` must give on a rank.

    part: elements of the full tensor over the number of ranks. numbers: as in `sized`.
    """
    if function == "broadcast":
        a, b = numbers[0]
        return np.asarray((a * index + b) % MODULUS)
    if function in ("all_gather", "all_to_all"):
        a, b = np.array(numbers).T[:, index // part]
        place = index % part + (rank * part if function == "all_to_all" else 0)
        return np.asarray((a * place + b) % MODULUS)
    if function == "reduce_scatter":
        index = index + rank * part
    return np.asarray(sum((a * index + b) % MODULUS for a, b in numbers))


def score_traffic(judge: Judge, credit: Credit, scenario: Scenario, bound: int, full: int) -> None:
    """One scenario: right values, then the bytes against `bound` of `full`.

    Raises:
        CheckFailed: wrong values, or no credit left.
    """
    (answer,) = require_values(judge, [scenario])
    moved = busiest(answer.trace, scenario.world_size)
    give(credit, score_bytes(moved, scenario.world_size, bound, full))


def give(credit: Credit, score: Score) -> None:
    """Gives full, partial or no credit.

    Raises:
        CheckFailed: no credit.
    """
    if score.part == 0:
        raise CheckFailed(score.why)
    if score.part < 1:
        credit(score.part, score.why)
