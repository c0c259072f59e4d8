"""A device in virtual time behaves as a GPU does, and takes just as long as it was told."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import multirank
from multirank import VirtualDevice
from multirank.modelling.virtual_device import KERNEL, LAUNCH


def alone(program: Callable[[], Any]) -> Any:
    """What it returns on one rank."""
    return multirank.run(program, 1).results[0]


def test_an_asynchronous_operation_returns_at_launch_and_synchronize_waits_for_it() -> None:
    def program() -> list[float]:
        device = VirtualDevice([0.5], asynchronous=True)
        device.operation()
        launched = device.clock()
        device.synchronize()
        return [launched, device.clock()]

    assert alone(program) == pytest.approx([LAUNCH, LAUNCH + 0.5], rel=1e-12)


def test_a_blocking_operation_is_complete_when_it_returns() -> None:
    def program() -> float:
        device = VirtualDevice([0.5])
        device.operation()
        return device.clock()

    assert alone(program) == pytest.approx(LAUNCH + 0.5, rel=1e-12)


def test_operations_take_their_turns_on_the_device_and_the_last_duration_stays() -> None:
    def program() -> float:
        device = VirtualDevice([0.25, 0.5], seconds_per_byte=0.125, asynchronous=True)
        for _ in range(3):
            device.operation(torch.zeros(2, dtype=torch.uint8))
        device.synchronize()
        return device.clock()

    assert alone(program) == pytest.approx(LAUNCH + 0.25 + 2 * 0.5 + 3 * 0.25, rel=1e-12)


def test_nothing_waits_for_real() -> None:
    def program() -> float:
        device, started = VirtualDevice([1000.0]), time.monotonic()
        device.operation()
        return time.monotonic() - started

    assert alone(program) < 10


def test_touching_a_tensor_that_is_not_complete_waits_for_it_as_a_stream_does() -> None:
    def program() -> list[Any]:
        device, tensor = VirtualDevice([0.5], asynchronous=True), torch.zeros(4)
        with device:
            device.operation(tensor)
            tensor[0].item()
        return [device.clock(), [event[0] for event in device.events]]

    now, kinds = alone(program)
    assert now == pytest.approx(LAUNCH + 0.5 + KERNEL, rel=1e-9)
    assert "touch" in kinds


def test_torchs_own_operations_take_time_inside_the_block_alone_and_views_take_none() -> None:
    def program() -> list[float]:
        device, tensor = VirtualDevice([0.5]), torch.zeros(4)
        tensor.fill_(1)
        with device:
            tensor.view(2, 2)
            before = device.clock()
            tensor.fill_(2)
            return [before, device.clock()]

    assert alone(program) == pytest.approx([0, KERNEL], rel=1e-12)


def test_a_launch_tells_the_bytes_of_the_larger_side_and_of_all_tensors_of_a_list() -> None:
    def program() -> list[Any]:
        device = VirtualDevice([0.5])
        part = torch.zeros(3, dtype=torch.bfloat16)
        device.operation(part, torch.zeros(6, dtype=torch.bfloat16))
        device.operation(part, [part, part, part], 0)
        return [event[2] for event in device.events]

    assert alone(program) == [12, 18]


def test_an_operation_starts_when_the_last_rank_has_launched_it() -> None:
    def program() -> float:
        rank = dist.get_rank()
        device = VirtualDevice([0.5 + rank], late=float(rank), asynchronous=True)
        device.operation()
        device.synchronize()
        return device.clock()

    assert multirank.run(program, 2).results == pytest.approx([1.5 + LAUNCH, 2.5 + LAUNCH])


def test_a_barrier_lets_hosts_wait_while_devices_may_still_work() -> None:
    def program() -> list[float]:
        rank = dist.get_rank()
        device = VirtualDevice([0.5], late=float(rank), busy=5.0 + rank, barrier_seconds=0.25)
        device.barrier()
        passed = device.clock()
        device.synchronize()
        return [passed, device.clock()]

    first, second = multirank.run(program, 2).results
    assert first == pytest.approx([1.25, 5.0])
    assert second == pytest.approx([1.25, 6.0])


def test_clocks_have_an_origin_of_their_own_and_the_host_may_pause_after_a_reading() -> None:
    def program() -> list[float]:
        device = VirtualDevice([0.5], origin=1000.0, pause=2.0)
        before = device.clock()
        device.operation()
        return [before, device.clock(), device.clock()]

    assert alone(program) == pytest.approx([1000, 1000.5 + LAUNCH, 1002.5 + LAUNCH])


def test_ranks_of_a_sub_group_meet_without_the_others() -> None:
    def program() -> float | None:
        group = multirank.context().groups["some"]
        if group is None:
            return None
        device = VirtualDevice([0.5], group=group, late=float(dist.get_rank()))
        device.barrier()
        return device.clock()

    with multirank.World(3, groups={"some": (0, 2)}) as world:
        assert world.call(program).results == [2.0, None, 2.0]
