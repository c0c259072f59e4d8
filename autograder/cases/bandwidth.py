"""Cases for bandwidth.py: on a device of virtual time, what it reports and what it did.

The device's settings ("device", see `multirank.VirtualDevice`) differ by rank. What comes back is
"seconds" or "measurements", and "events", from which the check works out what is right.
"""

from __future__ import annotations

import time  # as it is before a submission is imported
from typing import Any

import torch
import torch.distributed as dist

import multirank

VirtualDevice = multirank.VirtualDevice
clock = time.perf_counter
Event: Any = torch.cuda.Event
synchronize = torch.cuda.synchronize


def formulas(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """bus_factor and effective_bandwidth for each of inputs["factors"] and ["bandwidths"]."""
    bandwidth = impl.bandwidth
    return {
        "factors": [_number(bandwidth.bus_factor, one) for one in inputs["factors"]],
        "bandwidths": [_number(bandwidth.effective_bandwidth, one) for one in inputs["bandwidths"]],
    }


def _number(function: Any, arguments: list[Any]) -> float | str:
    """What it returns, as a float; or the name of what it raises."""
    try:
        return float(function(*arguments))
    except NotImplementedError:
        raise
    except Exception as error:
        return type(error).__name__


def time_op(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """time_op on a virtual device, with inputs["warmup"] and ["iterations"]."""
    function = impl.bandwidth.time_op
    device = VirtualDevice(group=here.group, **inputs["device"])
    tensor = torch.zeros(256, device=here.device)
    with device:
        seconds = function(lambda: device.operation(tensor), **_timing(device, here, inputs))
    return {"seconds": float(seconds), "events": [list(event) for event in device.events]}


def time_for_real(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """time_op with clock, synchronize and barrier of its own, of a rank that sleeps."""
    calls: list[float] = []

    def operation() -> None:
        calls.append(clock())
        time.sleep(inputs["sleep"])

    seconds = impl.bandwidth.time_op(operation, warmup=1, iterations=3)
    return {"seconds": float(seconds), "calls": len(calls)}


def measure(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """measure for each of inputs["calls"] (op, numel, dtype), each on a device of its own.

    inputs["sizes"]: S for each of them.
    """
    module = impl.bandwidth
    told = []
    for (op, numel, dtype), size in zip(inputs["calls"], inputs["sizes"], strict=True):
        device, used = _device(here, inputs)
        with device:
            found = module.measure(op, numel, getattr(torch, dtype), **used)
        told.append(_told(module, found, op, size, here) | _noted(device, here))
    return {"measurements": told}


def sweep(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """sweep of inputs["op"] over ["asked"] in ["dtype"], where S must become ["sizes"]."""
    module, op = impl.bandwidth, inputs["op"]
    device, used = _device(here, inputs)
    with device:
        found = list(
            module.sweep(op, iter(inputs["asked"]), getattr(torch, inputs["dtype"]), **used)
        )
    rows = [
        _told(module, one, op, size, here)
        for one, size in zip(found, inputs["sizes"], strict=False)
    ]
    return {"measurements": rows, "rows": len(found)} | _noted(device, here)


def measure_for_real(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """What measure says of one torch.distributed.all_reduce of inputs["numel"] float32."""
    found = impl.bandwidth.measure("all_reduce", inputs["numel"], warmup=1, iterations=1)
    return {"seconds": float(found.seconds)}


def clocked_all_reduce(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """What the grader's own clock says of it."""
    tensor = torch.zeros(inputs["numel"], device=here.device)
    dist.all_reduce(tensor)
    if here.device.type != "cpu":
        return {"seconds": seconds_on_gpu(tensor)}
    dist.barrier()
    start = clock()
    dist.all_reduce(tensor)
    return {"seconds": clock() - start}


def seconds_on_gpu(tensor: torch.Tensor) -> float:
    """What one all_reduce takes on the GPU itself, once all ranks are there."""
    start, stop = Event(enable_timing=True), Event(enable_timing=True)
    dist.barrier(device_ids=[tensor.device.index])
    start.record()
    dist.all_reduce(tensor)
    stop.record()
    synchronize()
    return float(start.elapsed_time(stop)) / 1e3


class Device(VirtualDevice):  # type: ignore[no-untyped-call]
    """Also remembers in which groups it was called."""

    groups: tuple[Any, ...] = ()

    def operation(self, *arguments: Any, group: Any = None, **more: Any) -> None:
        self.groups += (group,)
        super().operation(*arguments, **more)


def _device(here: Any, inputs: dict[str, Any]) -> tuple[Device, dict[str, Any]]:
    """A device, and the arguments by name with which measure and sweep use it."""
    device = Device(group=here.group, **inputs["device"])
    names = (
        *("all_reduce", "reduce_scatter", "all_gather", "all_to_all"),
        *("broadcast", "reduce", "scatter", "gather"),
    )
    timing = _timing(device, here, inputs)
    return device, {"collectives": dict.fromkeys(names, device.operation)} | timing


def _timing(device: VirtualDevice, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """The arguments that time_op gets by name."""
    given = {
        "warmup": inputs["warmup"],
        "iterations": inputs["iterations"],
        "clock": device.clock,
        "synchronize": device.synchronize,
        "barrier": device.barrier,
    }
    return given | ({} if here.group is None else {"group": here.group})


def _noted(device: Device, here: Any) -> dict[str, Any]:
    """What happened, and whether always in the right group."""
    return {
        "events": [list(event) for event in device.events],
        "grouped": all(group is here.group for group in device.groups),
    }


def _told(module: Any, found: Any, op: str, size: int, here: Any) -> dict[str, Any]:
    """A measurement as plain values.

    "own": the bandwidth that effective_bandwidth of the same submission makes of its seconds.
    """
    seconds, n = float(found.seconds), len(here.members)
    return {
        "op": str(found.op),
        "dtype": str(found.dtype).removeprefix("torch."),
        "world_size": int(found.world_size),
        "size_bytes": float(found.size_bytes),
        "seconds": seconds,
        "bandwidth": float(found.bandwidth),
        "own": _number(module.effective_bandwidth, [op, size, n, seconds]),
    }
