"""Your bandwidth measurements, on a device of virtual time: there is no noise, and no waiting.

`multirank.VirtualDevice` stands in for the device and its clock. It knows what every operation
takes, and behaves as a GPU does where a test says so: calls return at launch, and are complete
later. Each test is about one way in which benchmarks are often wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import pytest

import multirank
from multirank import Run

from . import timings
from .calls import Call, group_name
from .running import Subject, Worlds, fail, require_finished

MS = 1e-3
LAUNCH = 5e-6  # seconds that a launch takes on a virtual device
ITEMSIZE = {"float32": 4, "bfloat16": 2, "float64": 8}
Device = dict[str, Any]


@pytest.fixture
def subject(implementation: str) -> Subject:
    """The module that is tested."""
    return Subject(implementation, "bandwidth")


Runner = Callable[..., Run]


@pytest.fixture
def run(subject: Subject, worlds: Worlds) -> Runner:
    """`run(name, world_size, function, *args)`: calls a function of timings.py on every rank."""

    def run(name: str, world_size: int, function: Callable[..., Any], *args: Any) -> Run:
        __tracebackhide__ = True
        calls = [Call(name, {rank: {} for rank in range(world_size)})]
        done = worlds.call(subject, world_size, calls, function, *args)
        require_finished(subject, done, calls)
        return done

    return run


def is_close(found: float, right: float) -> bool:
    return abs(found - right) <= 1e-4 * abs(right)


# --- bus_factor and effective_bandwidth ---------------------------------------------------------


def bus_factor(op: str, n: int) -> float:
    """As the docstring's table says."""
    if op in ("broadcast", "reduce"):
        return 1.0
    return (2 if op == "all_reduce" else 1) * (n - 1) / n


@pytest.mark.problem("bus_bandwidth", share=0.5)
def test_bus_factor_is_as_in_the_table_for_every_operation(run: Runner) -> None:
    calls = [(op, n) for n in (3, 2, 8, 1) for op in timings.OPERATIONS]
    found = run("bus_factor", 1, timings.formulas, "bus_factor", calls).results[0]
    for (op, n), number in zip(calls, found, strict=True):
        if isinstance(number, str) or not is_close(number, bus_factor(op, n)):
            fail(f"bus_factor({op!r}, {n}) gives {number}; it must be {bus_factor(op, n):.6g}.")


@pytest.mark.problem("bus_bandwidth", share=0.4)
def test_effective_bandwidth_is_in_bytes_per_second(run: Runner) -> None:
    calls = [
        ("all_reduce", 400_000_000, 4, 1.6e-3),  # the docstring's example: 375 GB/s
        ("all_gather", 2 << 20, 3, 2e-3),
        ("broadcast", 1 << 30, 8, 0.5),
        ("all_to_all", 123_456, 2, 1e-5),
        ("all_reduce", 64, 1, 0.5),
    ]
    done = run("effective_bandwidth", 1, timings.formulas, "effective_bandwidth", calls)
    for (op, size, n, seconds), number in zip(calls, done.results[0], strict=True):
        right = bus_factor(op, n) * size / seconds
        if isinstance(number, str) or not is_close(number, right):
            fail(
                f"effective_bandwidth({op!r}, {size}, {n}, {seconds}) gives {number}; "
                f"it must be {right:.6g} bytes per second.",
                guessed=unit(number, right) if isinstance(number, float) else [],
            )


def unit(found: float, right: float) -> list[str]:
    """Whether it is right in another unit."""
    known = {
        "gigabytes per second, where bytes are asked for": 1e9,
        "2^30 bytes being taken for a gigabyte, which is 10^9": 2**30 / 1e9,
        "bits, where bytes are asked for": 1 / 8,
    }
    return [words for words, one in known.items() if is_close(found * one, right)]


@pytest.mark.problem("bus_bandwidth", share=0.1)
def test_effective_bandwidth_refuses_what_cannot_be(run: Runner) -> None:
    calls = [("all_reduce", 64, 4, 0.5), ("all_reduce", 64, 4, 0.0), ("reduce_all", 64, 4, 0.5)]
    found = run("effective_bandwidth", 1, timings.formulas, "effective_bandwidth", calls).results[0]
    if found[1:] != ["ValueError"] * 2 or isinstance(found[0], str):
        fail("effective_bandwidth must raise ValueError for 0 seconds, and for an unknown op.")


# --- time_op ------------------------------------------------------------------------------------


def require_time(
    run: Runner,
    devices: Sequence[Device],
    told: str,
    warmup: int = 1,
    iterations: int = 3,
    group: tuple[int, ...] | None = None,
) -> None:
    """time_op reports the median over the iterations of what the slowest rank's device takes."""
    __tracebackhide__ = True
    world_size = len(devices) if group is None else 4
    ranks = list(group or range(world_size))
    by_rank = [devices[ranks.index(rank)] if rank in ranks else {} for rank in range(world_size)]
    asked = {"warmup": warmup, "iterations": iterations}
    name = None if group is None else group_name(group)
    done = run("time_op", world_size, timings.time_op, name, multirank.per_rank(by_rank), asked)
    found = [done.results[rank] for rank in ranks]
    right = LAUNCH + median(
        max(taken(device, call) for device in devices)
        for call in range(warmup, warmup + iterations)
    )
    reported = [one["seconds"] for one in found]
    for rank, seconds in zip(ranks, reported, strict=True):
        if not is_close(seconds, right):
            why = multirank.explain_timing(
                [one["events"] for one in found], reported, warmup, iterations
            )
            fail(
                f"time_op reports {seconds / MS:.6g} ms on rank {rank}; "
                f"it must be {right / MS:.6g} ms {told}.",
                [f"asked for: warmup={warmup}, iterations={iterations}, on ranks {ranks}"],
                [why.removeprefix("consistent with ")] if why else [],
            )


def taken(device: Device, call: int) -> float:
    """Seconds that a call takes on a device."""
    durations: list[float] = device["durations"]
    return durations[min(call, len(durations) - 1)]


@pytest.mark.problem("time_op", share=0.15)
def test_time_op_waits_until_the_operation_is_complete(run: Runner) -> None:
    device = {"durations": [4 * MS], "asynchronous": True}
    require_time(run, [device] * 2, "for an operation that returns at launch, as on a GPU")


@pytest.mark.problem("time_op", share=0.1)
def test_time_op_leaves_the_warm_up_out(run: Runner) -> None:
    device = {"durations": [1.0, 1.0, 1.0, 1.0, 3 * MS], "meet": False}
    require_time(run, [device] * 2, "where the first four calls take 1 s", warmup=4)


@pytest.mark.problem("time_op", share=0.2)
def test_time_op_takes_the_slowest_rank_of_each_iteration(run: Runner) -> None:
    devices: list[Device] = []
    for rank in range(4):
        fast, slow = (2 + rank % 3 + rank / 10) * MS, 25 * MS
        durations = [fast, *(slow if rank == late else fast for late in (2, 3, 1))]
        devices.append({"durations": durations, "meet": False, "origin": 1000.0 * rank})
    require_time(run, devices, "where each iteration has another slow rank, and every rank a clock")


@pytest.mark.problem("time_op", share=0.15)
def test_time_op_takes_the_median_of_the_iterations(run: Runner) -> None:
    device = {"durations": [MS, 2 * MS, 9 * MS, 4 * MS, MS, 300 * MS], "meet": False}
    require_time(run, [device] * 2, "where one iteration takes far longer", iterations=5)


@pytest.mark.problem("time_op", share=0.1)
def test_time_op_lets_late_ranks_come_before_it_starts_the_clock(run: Runner) -> None:
    devices: list[Device] = [
        {"durations": [5 * MS], "late": late * MS, "pause": (40 - late) * MS}
        for late in (20, 0, 30)
    ]
    require_time(run, devices, "where ranks come late to it", 0, 1)
    require_time(run, devices, "where ranks come late to every iteration", 0, 3)


@pytest.mark.problem("time_op", share=0.1)
def test_time_op_waits_for_earlier_work_and_then_for_the_others(run: Runner) -> None:
    devices: list[Device] = [{"durations": [5 * MS], "busy": busy * MS} for busy in (20, 0, 30)]
    require_time(run, devices, "where devices are still at work with what came before", 0, 1)


@pytest.mark.problem("time_op", share=0.1)
def test_time_op_does_not_time_the_barrier(run: Runner) -> None:
    device = {"durations": [3 * MS], "meet": False, "barrier_seconds": 20 * MS}
    require_time(run, [device] * 2, "where a barrier takes 20 ms")


@pytest.mark.problem("time_op", share=0.05)
def test_time_op_works_in_a_sub_group(run: Runner) -> None:
    device = {"durations": [3 * MS], "meet": False}
    require_time(run, [device] * 2, "in a sub-group", group=(1, 3))


@pytest.mark.problem("time_op", share=0.05)
def test_time_op_has_a_clock_of_its_own(run: Runner) -> None:
    done = run("time_op", 2, timings.time_for_real, 10 * MS)
    for rank, found in enumerate(done.results):
        if found["calls"] != 4 or not 10 * MS <= found["seconds"] < 500 * MS:
            fail(
                f"time_op(operation, warmup=1, iterations=3) on rank {rank} reports "
                f"{found['seconds']:.4f} s after {found['calls']} calls of an operation that "
                "sleeps for 0.01 s; it must be that or a little more, after 4 calls."
            )


# --- measure ------------------------------------------------------------------------------------

CALLS = [(op, 96, dtype) for op, dtype in zip(timings.OPERATIONS, [*ITEMSIZE] * 3, strict=False)]


def require_measurement(
    what: str, found: dict[str, Any], op: str, size: int, dtype: str, n: int
) -> None:
    """All of a measurement, given the seconds that it reports."""
    __tracebackhide__ = True
    if found["size_bytes"] != size:
        fail(f"{what}: size_bytes is {found['size_bytes']:.0f}; S is {size} bytes.")
    if (found["op"], found["dtype"], found["world_size"]) != (op, dtype, n):
        fail(f"{what}: op, dtype or world_size is not what was measured: {found}.")
    right = bus_factor(op, n) * size / found["seconds"]
    if not is_close(found["bandwidth"], right):
        fail(
            f"{what}: the bandwidth is {found['bandwidth']:.6g}; it must be {right:.6g} bytes per "
            "second."
        )


def launched(events: Sequence[Sequence[Any]]) -> list[int]:
    """Bytes of each operation that was launched."""
    return [event[2] for event in events if event[0] == "launch"]


@pytest.mark.problem("measure", share=0.5)
def test_measure_reports_size_and_bandwidth_of_every_operation(run: Runner) -> None:
    device = {"durations": [3 * MS], "meet": False}
    asked = {"warmup": 1, "iterations": 3}
    done = run("measure", 3, timings.measure, None, device, asked, CALLS)
    for rank, found in enumerate(done.results):
        for (op, numel, dtype), one in zip(CALLS, found, strict=True):
            what = f"measure({op!r}, {numel}, torch.{dtype}) on rank {rank} of 3"
            size = numel * ITEMSIZE[dtype]
            if rank == 0 and set(launched(one["events"])) != {size}:
                fail(f"{what} does not call the operation it was given with S = {size} bytes.")
            require_measurement(what, one, op, size, dtype, 3)


@pytest.mark.problem("measure", share=0.4)
def test_measure_times_the_operation_and_nothing_else(run: Runner) -> None:
    device = {"durations": [1.0, 1.0, 1.0, 3 * MS], "meet": False}
    asked = {"warmup": 3, "iterations": 3}
    calls = [("all_reduce", 64, "float32"), ("reduce_scatter", 64, "float32")]
    done = run("measure", 2, timings.measure, None, device, asked, calls)
    for place, (op, _, _) in enumerate(calls):
        found = [rank[place] for rank in done.results]
        events, reported = [one["events"] for one in found], [one["seconds"] for one in found]
        if (count := len(launched(events[0]))) != 6:
            fail(f"measure(warmup=3, iterations=3) calls {op} {count} times; it must 6 times.")
        if not all(is_close(seconds, 3 * MS + LAUNCH) for seconds in reported):
            why = multirank.explain_timing(events, reported, 3, 3)
            fail(
                f"measure of {op} reports {reported[0] / MS:.6g} ms; the operation takes 3.005 ms.",
                ["torch's own operations take time here, too: 2 ms each"],
                [why.removeprefix("consistent with ")] if why else [],
            )


@pytest.mark.problem("measure", share=0.1)
def test_measure_works_in_a_sub_group(run: Runner) -> None:
    device, group = {"durations": [3 * MS], "meet": False}, (1, 3)
    asked = {"warmup": 1, "iterations": 3}
    calls = [("all_gather", 64, "float32")]
    done = run("measure", 4, timings.measure, group_name(group), device, asked, calls)
    for rank in group:
        what = f"measure of all_gather in the group {list(group)}, on rank {rank}"
        require_measurement(what, done.results[rank][0], "all_gather", 256, "float32", 2)


# --- sweep --------------------------------------------------------------------------------------


def require_sweep(
    run: Runner, op: str, dtype: str, sizes: Sequence[int], rounded: Sequence[int]
) -> None:
    """A row for each size, with the time that this size takes."""
    __tracebackhide__ = True
    device = {"durations": [3 * MS], "seconds_per_byte": 1e-6, "meet": False}
    asked = {"warmup": 1, "iterations": 3}
    done = run("sweep", 3, timings.sweep, device, asked, op, sizes, dtype)
    for rank, found in enumerate(done.results):
        what = f"sweep({op!r}, {list(sizes)}, torch.{dtype}) on rank {rank} of 3"
        rows = [int(row["size_bytes"]) for row in found["rows"]]
        if rows != list(rounded):
            fail(f"{what} has rows of {rows} bytes; they must be {list(rounded)}.")
        if launched(found["events"]) != [size for size in rounded for _ in range(4)]:
            fail(
                f"{what} must call the operation 1 + 3 times with tensors of each size; it was "
                f"called with {launched(found['events'])} bytes."
            )
        for row, size in zip(found["rows"], rounded, strict=True):
            right = 3 * MS + size * 1e-6 + LAUNCH
            if not is_close(row["seconds"], right):
                fail(
                    f"{what} reports {row['seconds'] / MS:.6g} ms for {size} bytes, which take "
                    f"{right / MS:.6g} ms."
                )
            require_measurement(f"{what}, {size} bytes", row, op, size, dtype, 3)


@pytest.mark.problem("sweep", share=0.8)
def test_sweep_has_a_row_for_every_size_in_their_order(run: Runner) -> None:
    sizes = [480, 2400, 960, 4800]
    require_sweep(run, "all_reduce", "float32", sizes, sizes)
    require_sweep(run, "reduce_scatter", "bfloat16", sizes, sizes)


@pytest.mark.problem("sweep", share=0.2)
def test_sweep_rounds_sizes_down_but_not_to_nothing(run: Runner) -> None:
    require_sweep(run, "all_gather", "float32", [500, 1201, 11, 0], [492, 1200, 12, 12])
