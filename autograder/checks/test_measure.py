"""Checks of problem measure: what a measurement says, on a device of virtual time and for real."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autograder.bandwidth import (
    ITEMSIZE,
    OPERATIONS,
    Measured,
    measured,
    require_launched,
    require_measurement,
)
from autograder.failure import CheckFailed
from autograder.judge import Judge
from autograder.measured import require_agreement
from autograder.problem import problem
from autograder.timing import MS, Probe, checked_events, launched, require_seconds

Call = tuple[str, int, str]  # op, elements whose bytes are S, dtype


@problem("measure", share="2/5")
def test_bandwidth(judge: Judge) -> None:
    """S and the bus bandwidth, for every operation and several dtypes, on 3 ranks."""
    rng = judge.seed.generator()
    dtypes = rng.permutation([*ITEMSIZE, *ITEMSIZE, *ITEMSIZE])
    calls = [
        (op, 3 * int(rng.integers(2, 200)), str(dtype))
        for op, dtype in zip(OPERATIONS, dtypes, strict=False)
    ]
    _require_measurements(judge, Probe([_plain(rng)] * 3), calls)


@problem("measure", share="1/4")
def test_nothing_else_is_timed(judge: Judge) -> None:
    """As many calls as asked for, and nothing between start and stop but the operation."""
    rng = judge.seed.generator()
    plain = _plain(rng)
    slow_at_first = plain | {"durations": [1.0] * 3 + plain["durations"]}
    probe = Probe([slow_at_first] * 2, warmup=3, iterations=3)
    calls = [(op, 2 * int(rng.integers(2, 200)), "float32") for op in ("all_reduce", "all_gather")]
    answers = _measure(judge, probe, calls)
    for place, (op, _, _) in enumerate(calls):
        judge.note(probe.facts | {"operation": op})
        reported = [answers[rank][place][0].seconds for rank in range(2)]
        happened = [answers[rank][place][1] for rank in range(2)]
        if (count := len(launched(happened[0]))) != 3 + 3:
            raise CheckFailed(
                f"measure(warmup=3, iterations=3) calls the operation {count} times, not 3 + 3"
            )
        told = "where the first calls take 1 s each, and torch's own operations take time, too"
        require_seconds("measure", reported, probe.seconds(), happened, probe, told)


@problem("measure", share="1/10", kind="edges")
def test_sub_group(judge: Judge) -> None:
    """In a sub-group, and only there."""
    rng = judge.seed.generator()
    probe = Probe([_plain(rng)] * 2, members=(1, 3))
    _require_measurements(judge, probe, [("all_gather", 2 * int(rng.integers(2, 200)), "float32")])


@problem("measure", share="1/4")
def test_agrees_with_the_graders_clock(judge: Judge) -> None:
    """torch's all_reduce of 16 MiB on 4 ranks, against the grader's own clock."""
    require_agreement(judge)


def _plain(rng: np.random.Generator) -> dict[str, Any]:
    """A device on which every call takes the same, and nobody waits for anybody."""
    return {"durations": [float(rng.integers(200, 900)) / 100 * MS], "meet": False}


def _require_measurements(judge: Judge, probe: Probe, calls: Sequence[Call]) -> None:
    answers = _measure(judge, probe, calls)
    n = len(probe.ranks)
    for place, (op, numel, dtype) in enumerate(calls):
        judge.note(probe.facts | {"operation": op, "dtype": dtype})
        size = numel * ITEMSIZE[dtype]
        for rank in probe.ranks:
            one, happened, grouped = answers[rank][place]
            what = f"rank {rank}: measure of {op} in {dtype}"
            if rank == probe.ranks[0]:  # of scatter and gather, only the root has it all
                require_launched(what, launched(happened), dtype, size, n)
            require_measurement(what, one, op, dtype, size, n)
            if not grouped:
                raise CheckFailed(f"{what} calls the operation without the group that it was given")


def _measure(
    judge: Judge, probe: Probe, calls: Sequence[Call]
) -> dict[int, list[tuple[Measured, list[Any], bool]]]:
    """For each rank: its measurements, each with what happened and whether in the right group."""
    inputs = probe.inputs(
        calls=[list(call) for call in calls],
        sizes=[numel * ITEMSIZE[dtype] for _, numel, dtype in calls],
    )
    (answer,) = judge.run(probe.case("measure"), [inputs], facts=[probe.facts])
    told = {}
    for rank in probe.ranks:
        given = [one for one in answer.plain(rank, "measurements") if isinstance(one, dict)]
        if len(given) != len(calls):
            raise CheckFailed(f"rank {rank} gave no answer")
        told[rank] = [
            (
                measured(rank, one),
                checked_events(rank, one.get("events")),
                one.get("grouped") is True,
            )
            for one in given
        ]
    return told
