"""Checks of problem time_op, on a device of virtual time (but for the last)."""

from __future__ import annotations

from typing import Any

import numpy as np

from autograder.failure import CheckFailed
from autograder.judge import Case, Judge
from autograder.problem import problem
from autograder.timing import MS, Probe, require_times


def alone(rng: np.random.Generator) -> float:
    """What one call takes, in seconds: between 2 and 9 ms."""
    return float(rng.integers(200, 900)) / 100 * MS


@problem("time_op", share="3/20")
def test_waits_until_it_is_complete(judge: Judge) -> None:
    """An operation that returns when it is launched, as on a GPU."""
    took = alone(judge.seed.generator())
    probe = Probe([{"durations": [took], "asynchronous": True}] * 2)
    require_times(judge, [probe], "for an operation that returns at launch and is complete later")


@problem("time_op", share="1/10")
def test_warm_up(judge: Judge) -> None:
    """The first calls take far longer, and are not timed."""
    took = alone(judge.seed.generator())
    probe = Probe([{"durations": [1.0] * 4 + [took], "meet": False}] * 2, warmup=4)
    require_times(judge, [probe], "where the first calls, for warming up, take 1 s each")


@problem("time_op", share="1/5")
def test_slowest_rank(judge: Judge) -> None:
    """Another rank is slow in every iteration; each rank's clock has its own zero."""
    rng = judge.seed.generator()
    fast = [alone(rng) / 10 + int(place) * MS for place in rng.permutation(np.arange(1, 5))]
    slow = 20 * MS + alone(rng)
    late = rng.permutation(4)[:3]  # in each of three iterations
    devices: list[dict[str, Any]] = [
        {
            "durations": [fast[rank], *(slow if rank == one else fast[rank] for one in late)],
            "meet": False,
            "origin": 1000.0 * rank + float(rng.integers(100)),
        }
        for rank in range(4)
    ]
    require_times(judge, [Probe(devices)], "where another rank is the slow one in every iteration")


@problem("time_op", share="3/20")
def test_median(judge: Judge) -> None:
    """Every iteration takes another time, and one far longer than the others."""
    rng = judge.seed.generator()
    low, middle, high = (place * 10 * MS + alone(rng) for place in (0, 1, 2))
    times = [low, high, middle, low / 2, 30 * high]  # the median is neither first nor last
    probe = Probe([{"durations": [low, *times], "meet": False}] * 2, iterations=5)
    require_times(judge, [probe], "where one iteration takes far longer than the others")


@problem("time_op", share="1/5")
def test_ranks_start_together(judge: Judge) -> None:
    """Ranks that come late, before the first iteration and between two, and busy devices."""
    rng = judge.seed.generator()
    took = alone(rng)
    late = [(10 * int(place) + float(rng.integers(9))) * MS for place in rng.permutation(3)]
    hosts = [{"durations": [took], "late": one, "pause": 30 * MS - one} for one in late]
    devices = [{"durations": [took], "busy": one} for one in late]
    told = "where the ranks come to it at different times"
    require_times(judge, [Probe(hosts, 0, 1), Probe(hosts, 0, 3)], told)
    told = "where devices are still at work, for different times, with what came before"
    require_times(judge, [Probe(devices, 0, 1)], told)


@problem("time_op", share="1/10")
def test_barrier_is_not_timed(judge: Judge) -> None:
    """Barriers that take longer than the operation."""
    took = alone(judge.seed.generator())
    probe = Probe([{"durations": [took], "meet": False, "barrier_seconds": 20 * MS}] * 2)
    require_times(judge, [probe], "where a barrier takes longer than the operation")


@problem("time_op", share="1/20", kind="edges")
def test_sub_group(judge: Judge) -> None:
    """In a sub-group, and only there."""
    took = alone(judge.seed.generator())
    probe = Probe([{"durations": [took], "meet": False}] * 2, members=(1, 3))
    require_times(judge, [probe], "in a sub-group")


@problem("time_op", share="1/20", kind="edges")
def test_as_it_comes(judge: Judge) -> None:
    """With its own clock, synchronize and barrier, of an operation that sleeps."""
    sleep, world_size = 20 * MS, 2
    facts = {"world size": str(world_size), "warmup": "1", "iterations": "3"}
    inputs = [{"sleep": sleep}] * world_size
    (answer,) = judge.run(
        Case("bandwidth", "time_for_real", world_size, on_gpu=False), [inputs], facts=[facts]
    )
    for rank in range(world_size):
        if (calls := answer.get(rank, "calls", int)) != 4:
            raise CheckFailed(f"rank {rank}: time_op called the operation {calls} times, not 1 + 3")
        if not sleep <= answer.get(rank, "seconds", float) < 50 * sleep:
            raise CheckFailed(
                f"rank {rank}: time_op, with the clock that it has by default, does not report the "
                "seconds that the operation sleeps"
            )
