"""What runs on the ranks for the tests of bandwidth.py; it travels to them as `calls.py` does."""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

import multirank

OPERATIONS = (
    *("all_reduce", "reduce_scatter", "all_gather", "all_to_all"),
    *("broadcast", "reduce", "scatter", "gather"),
)


def time_op(
    package: str, module: str, group: str | None, device: dict[str, Any], asked: dict[str, int]
) -> dict[str, Any]:
    """time_op on a virtual device; the seconds, and what happened on it."""
    function = _function(package, module, "time_op")
    here = _group(group)
    if here is dist.GroupMember.NON_GROUP_MEMBER:
        return {}
    virtual = multirank.VirtualDevice(group=here, **device)
    tensor = torch.zeros(256)
    with virtual:
        seconds = function(lambda: virtual.operation(tensor), **_timing(virtual, here, asked))
    return {"seconds": float(seconds), "events": [list(event) for event in virtual.events]}


def time_for_real(package: str, module: str, sleep: float) -> dict[str, Any]:
    """time_op with a clock, synchronize and barrier of its own, of an operation that sleeps."""
    function = _function(package, module, "time_op")
    calls: list[None] = []

    def operation() -> None:
        calls.append(None)
        time.sleep(sleep)

    seconds = function(operation, warmup=1, iterations=3)
    return {"seconds": float(seconds), "calls": len(calls)}


def measure(
    package: str,
    module: str,
    group: str | None,
    device: dict[str, Any],
    asked: dict[str, int],
    calls: Sequence[tuple[str, int, str]],
) -> list[dict[str, Any]]:
    """measure for each op, number of elements and dtype, each on a virtual device of its own."""
    function = _function(package, module, "measure")
    here = _group(group)
    told = []
    for op, numel, dtype in calls if here is not dist.GroupMember.NON_GROUP_MEMBER else []:
        virtual = multirank.VirtualDevice(group=here, **device)
        with virtual:
            found = function(op, numel, getattr(torch, dtype), **_use(virtual, here, asked))
        told.append(_told(found) | {"events": [list(event) for event in virtual.events]})
    return told


def sweep(
    package: str,
    module: str,
    device: dict[str, Any],
    asked: dict[str, int],
    op: str,
    sizes: Sequence[int],
    dtype: str,
) -> dict[str, Any]:
    """sweep on a virtual device: its rows, and what happened."""
    function = _function(package, module, "sweep")
    virtual = multirank.VirtualDevice(**device)
    with virtual:
        rows = function(op, iter(sizes), getattr(torch, dtype), **_use(virtual, None, asked))
    events = [list(event) for event in virtual.events]
    return {"rows": [_told(row) for row in rows], "events": events}


def formulas(
    package: str, module: str, function: str, calls: Sequence[Sequence[Any]]
) -> list[float | str]:
    """What bus_factor or effective_bandwidth returns for these arguments, or what it raises."""
    found: list[float | str] = []
    for arguments in calls:
        try:
            found.append(float(_function(package, module, function)(*arguments)))
        except (ValueError, ArithmeticError) as error:
            found.append(type(error).__name__)
    return found


def _function(package: str, module: str, name: str) -> Any:
    function = getattr(importlib.import_module(f"{package}.{module}"), name)
    multirank.mark("call 0")
    return function


def _group(name: str | None) -> Any:
    if name is None:
        return None
    group = multirank.context().groups[name]
    return dist.GroupMember.NON_GROUP_MEMBER if group is None else group


def _timing(virtual: multirank.VirtualDevice, group: Any, asked: dict[str, int]) -> dict[str, Any]:
    given = {
        **asked,
        "clock": virtual.clock,
        "synchronize": virtual.synchronize,
        "barrier": virtual.barrier,
    }
    return given | ({} if group is None else {"group": group})


def _use(virtual: multirank.VirtualDevice, group: Any, asked: dict[str, int]) -> dict[str, Any]:
    collectives = dict.fromkeys(OPERATIONS, virtual.operation)
    return {"collectives": collectives} | _timing(virtual, group, asked)


def _told(found: Any) -> dict[str, Any]:
    return {
        "op": str(found.op),
        "dtype": str(found.dtype).removeprefix("torch."),
        "world_size": int(found.world_size),
        "size_bytes": float(found.size_bytes),
        "seconds": float(found.seconds),
        "bandwidth": float(found.bandwidth),
    }
