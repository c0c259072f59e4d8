"""Mistakes in time_op: what is wrong with most benchmarks."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

OPERATION = "        operation()\n        synchronize()\n        seconds.append(clock() - start)"
READY = "        synchronize()\n        barrier()\n        start = clock()\n"
MAXIMUM = "dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group)"
MEDIAN = "return float(statistics.median(slowest.tolist()))"
VIRTUAL = [
    *("waits_until_it_is_complete", "warm_up", "slowest_rank", "median", "ranks_start_together"),
    *("barrier_is_not_timed", "sub_group"),
]

MUTANTS = [
    mutant(
        "time_op",
        "time_op stops the clock when the operation is launched",
        "On CPU the numbers were right.",
        (OPERATION, "        operation()\n        seconds.append(clock() - start)"),
        ["waits_until_it_is_complete"],
        told="stopped before the operation is complete",
    ),
    mutant(
        "time_op",
        "time_op synchronizes after it has stopped the clock",
        "One line too late.",
        (
            OPERATION,
            "        operation()\n        seconds.append(clock() - start)\n        synchronize()",
        ),
        ["waits_until_it_is_complete"],
        told="stopped before the operation is complete",
    ),
    mutant(
        "time_op",
        "time_op waits for a CUDA device alone",
        "torch.cuda.synchronize() if torch.cuda.is_available(), as in every example.",
        (
            OPERATION,
            "        operation()\n"
            "        if torch.cuda.is_available():\n"
            "            torch.cuda.synchronize()\n"
            "        seconds.append(clock() - start)",
        ),
        ["waits_until_it_is_complete"],
        told="stopped before the operation is complete",
    ),
    mutant(
        "time_op",
        "time_op does not warm up",
        "The first call connects the ranks, and nobody knew.",
        ("        operation()\n    seconds = []", "        pass\n    seconds = []"),
        ["warm_up", "median", "as_it_comes"],
        told="too few calls",
        also=["where the median is asked for", "where the slowest rank counts"],
    ),
    mutant(
        "time_op",
        "time_op warms up once, whatever is asked for",
        "Once is enough for everybody.",
        ("for _ in range(warmup):", "for _ in range(min(warmup, 1)):"),
        ["warm_up"],
        told="too few calls",
    ),
    mutant(
        "time_op",
        "time_op times the first calls as well",
        "One loop for all of them, and one list.",
        (
            "    for _ in range(warmup):\n        operation()\n    seconds = []\n"
            "    for _ in range(iterations):",
            "    seconds = []\n    for _ in range(warmup + iterations):",
        ),
        ["warm_up", "median"],
        told="the first calls, which are for warming up, being timed",
    ),
    mutant(
        "time_op",
        "time_op reports every rank's own time",
        "Rank 0 prints it anyway.",
        (MAXIMUM, "pass"),
        ["slowest_rank"],
        told="every rank's own time, where the slowest rank counts",
    ),
    mutant(
        "time_op",
        "time_op reports the time of rank 0",
        "It was broadcast, so that all ranks agree.",
        (MAXIMUM, "dist.broadcast(slowest, dist.get_global_rank(group, 0) if group else 0, group)"),
        ["slowest_rank"],
        told="the time of one rank alone",
        also=["the fastest rank"],
    ),
    mutant(
        "time_op",
        "time_op takes the mean over the ranks",
        "As in the lecture.",
        (MAXIMUM, "dist.all_reduce(slowest, dist.ReduceOp.AVG, group=group)"),
        ["slowest_rank"],
        told="the mean over the ranks, where the slowest rank counts",
    ),
    mutant(
        "time_op",
        "time_op adds up the times of all ranks",
        "SUM is the default.",
        (MAXIMUM, "dist.all_reduce(slowest, group=group)"),
        VIRTUAL,
        told="the sum over the ranks, where the slowest rank counts",
    ),
    mutant(
        "time_op",
        "time_op takes the slowest of the ranks' medians",
        "The median first, and then the maximum: one number to send.",
        {
            "time_op": (
                f"{MAXIMUM}\n    {MEDIAN}",
                "slowest = slowest.median()\n"
                "    dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group)\n"
                "    return slowest.item()",
            )
        },
        ["slowest_rank"],
        told="the largest of the ranks' medians",
        also=["where the slowest rank counts", "the fastest rank"],
    ),
    mutant(
        "time_op",
        "time_op compares the clocks of different ranks",
        "From the first start to the last stop.",
        """
        for _ in range(warmup):
            operation()
        seconds = []
        for _ in range(iterations):
            synchronize()
            barrier()
            start = clock()
            operation()
            synchronize()
            ends = torch.tensor([-start, clock()], dtype=torch.float64)
            dist.all_reduce(ends, dist.ReduceOp.MAX, group=group)
            seconds.append(ends.sum().item())
        return statistics.median(seconds)
        """,
        ["slowest_rank"],
        told="readings of different ranks' clocks being compared",
    ),
    mutant(
        "time_op",
        "time_op takes the mean over the iterations",
        "The median was for statisticians.",
        (MEDIAN, "return slowest.mean().item()"),
        ["median"],
        told="the mean over the iterations, where the median is asked for",
    ),
    mutant(
        "time_op",
        "time_op takes the best iteration",
        "As timeit advises.",
        (MEDIAN, "return slowest.min().item()"),
        ["median"],
        told="the fastest iteration, where the median is asked for",
    ),
    mutant(
        "time_op",
        "time_op has one reading of the clock for all iterations",
        "As nccl-tests do it: launch all, wait once, divide.",
        """
        for _ in range(warmup):
            operation()
        synchronize()
        barrier()
        start = clock()
        for _ in range(iterations):
            operation()
        synchronize()
        slowest = torch.tensor((clock() - start) / iterations, dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group)
        return slowest.item()
        """,
        ["waits_until_it_is_complete", "slowest_rank", "median"],
        told="each call is to be timed for itself",
    ),
    mutant(
        "time_op",
        "time_op starts without a barrier",
        "Each rank for itself.",
        (READY, "        synchronize()\n        start = clock()\n"),
        ["ranks_start_together"],
        told="no barrier before the clock is started",
    ),
    mutant(
        "time_op",
        "time_op has one barrier, before all iterations",
        "They had met once.",
        (
            f"    for _ in range(iterations):\n{READY}",
            "    synchronize()\n    barrier()\n    for _ in range(iterations):\n"
            "        synchronize()\n        start = clock()\n",
        ),
        ["ranks_start_together"],
        told="no barrier before the clock is started",
    ),
    mutant(
        "time_op",
        "time_op passes the barrier before it synchronizes",
        "The two lines seemed to be as good in the other order.",
        (READY, "        barrier()\n        synchronize()\n        start = clock()\n"),
        ["ranks_start_together"],
        told="synchronize() after the barrier",
    ),
    mutant(
        "time_op",
        "time_op does not synchronize before it starts the clock",
        "What had been launched before was timed as well.",
        (READY, "        barrier()\n        start = clock()\n"),
        ["ranks_start_together"],
        told="no synchronize() before the clock is started",
    ),
    mutant(
        "time_op",
        "time_op closes with a barrier inside the clock",
        "As in the lecture: everybody is ready then.",
        (
            OPERATION,
            "        operation()\n        synchronize()\n        barrier()\n"
            "        seconds.append(clock() - start)",
        ),
        ["barrier_is_not_timed"],
        told="a barrier between start and stop of the clock",
    ),
    mutant(
        "time_op",
        "time_op starts the clock and then waits for the others",
        "Start, barrier, operation.",
        (READY, "        synchronize()\n        start = clock()\n        barrier()\n"),
        ["barrier_is_not_timed", "ranks_start_together", "slowest_rank"],
        told="a barrier between start and stop of the clock",
    ),
    mutant(
        "time_op",
        "time_op calls dist.barrier, whatever barrier it was given",
        "The argument was overlooked.",
        ("        barrier()\n", "        dist.barrier(group)\n"),
        ["ranks_start_together", "waits_until_it_is_complete"],
        told="no barrier before the clock is started",
    ),
    mutant(
        "time_op",
        "time_op reads a clock of its own",
        "time.perf_counter() was typed in.",
        {
            "time_op": (
                "    for _ in range(warmup):\n        operation()\n",
                "    clock = time.perf_counter\n    for _ in range(warmup):\n        operation()\n",
            )
        },
        VIRTUAL,
        told="a clock of its own",
    ),
    mutant(
        "time_op",
        "time_op asks the ranks of the whole world",
        "The group was left out of the all_reduce.",
        (MAXIMUM, "dist.all_reduce(slowest, dist.ReduceOp.MAX)"),
        ["sub_group"],
    ),
    mutant(
        "time_op",
        "time_op reports milliseconds",
        "As tables do.",
        (MEDIAN, f"{MEDIAN} * 1e3"),
        ["*"],
        told="with the clock that it has by default, does not report",
    ),
]
