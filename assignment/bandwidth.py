# Problems in this file (points in problems.toml):
#   2.1  bus_bandwidth  2 points
#   2.2  time_op        4 points
#   2.3  measure        2 points
#   2.4  sweep          2 points
"""How fast communication is: the seconds that an operation takes, as bytes per second.

Two things are easy to get wrong. *When to look at the clock*: on a GPU a collective returns when it
is launched, long before it is complete, and ranks that do not start together measure how long they
wait for one another. And *what to divide by*: the same seconds are good news for one operation and
bad news for another. ``python -m assignment.bandwidth`` measures your collectives and torch's,
prints a table, and draws bandwidth against size.

Size
    S is the size in bytes of the larger one of what a rank puts in and what it gets out, as in
    nccl-tests:

        all_reduce, broadcast, reduce    the tensor
        reduce_scatter                   the whole ``input``
        all_gather                       the whole ``output``
        all_to_all                       ``input`` (or ``output``: they are of one size here)
        scatter, gather                  all n tensors of the root's list together

Bandwidth
    S / seconds is called the algorithm bandwidth. An all_reduce cannot reach the bandwidth of the
    links with it: 2 (n-1)/n S bytes have to leave each of the n ranks, first to combine all parts,
    (n-1)/n S, and then to distribute them, (n-1)/n S again. A reduce_scatter is the first half of
    that, in half the time. So the time is judged by the bytes that a rank has to move, the bus
    factor times S; and that is the bus bandwidth, or effective bandwidth. It does not depend on
    operation or n where the links are what limits, and can be compared with what a device's maker
    promises for one direction. With one rank nothing has to move: the factor is 0 then.

        bus factor    2 (n-1)/n    all_reduce
                        (n-1)/n    reduce_scatter, all_gather, all_to_all, scatter, gather
                              1    broadcast, reduce (with one rank, too)

Units
    Bytes, seconds, and bytes per second; 1 GB/s is 10^9 bytes per second, 1 MiB is 2^20 bytes.

Sources
    https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md: sizes and factors.
    Patarasuk, Yuan 2009, Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations: no
    all_reduce moves fewer bytes. Hoefler, Belli 2015, Scientific Benchmarking of Parallel Computing
    Systems: medians, and the slowest rank.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

Collectives = Mapping[str, Callable[..., object]]
"""The operations by name, called as those of collectives.py: `vars(collectives)` is one."""

TORCH: Collectives = {
    "all_reduce": dist.all_reduce,
    "reduce_scatter": dist.reduce_scatter_tensor,
    "all_gather": dist.all_gather_into_tensor,
    "all_to_all": dist.all_to_all_single,
    "broadcast": dist.broadcast,
    "reduce": dist.reduce,
    "scatter": dist.scatter,
    "gather": dist.gather,
}


@dataclass(frozen=True)
class Measurement:
    """What came of measuring an operation of one size.

    op: its name. dtype: of the elements. world_size: n.
    size_bytes: S. seconds: that it took. bandwidth: the bus bandwidth, in bytes per second.
    """

    op: str
    dtype: torch.dtype
    world_size: int
    size_bytes: int
    seconds: float
    bandwidth: float


def bus_factor(op: str, world_size: int) -> float:
    """The bytes that a rank has to move for an operation, in units of S: see the table above.

    Args:
        op: one of the eight names in the table.
        world_size: n, at least 1.

    Raises:
        ValueError: another op; world_size is below 1.
    """
    _check_op(op)
    _check_world_size(world_size)
    raise NotImplementedError("Problem 2.1, bus_factor: not written yet")


def effective_bandwidth(op: str, size_bytes: int, world_size: int, seconds: float) -> float:
    """The bus bandwidth in bytes per second: the bytes that a rank has to move, over the time.

    For example, an all_reduce of 100 million float32 on 4 ranks in 1.6 ms: 375e9, or 375 GB/s.

    Args:
        op, world_size: as for bus_factor.
        size_bytes: S; may be 0.
        seconds: above 0.

    Raises:
        ValueError: as bus_factor; size_bytes is below 0; seconds is not above 0.
    """
    _check_op(op)
    _check_world_size(world_size)
    if size_bytes < 0:
        raise ValueError(f"size_bytes: it is {size_bytes}, but must not be negative")
    if not seconds > 0:
        raise ValueError(f"seconds: it is {seconds}, but must be above 0")
    raise NotImplementedError("Problem 2.1, effective_bandwidth: not written yet")


def time_op(
    operation: Callable[[], object],
    *,
    warmup: int = 2,
    iterations: int = 11,
    group: ProcessGroup | None = None,
    clock: Callable[[], float] = time.perf_counter,
    synchronize: Callable[[], object] | None = None,
    barrier: Callable[[], object] | None = None,
) -> float:
    """The seconds that an operation takes, of which all ranks of the group are a part.

    Every rank of the group calls this. The operation is called ``warmup`` times first, which is not
    timed: the first call connects the ranks. Then it is called ``iterations`` times, each time so:

        synchronize   what this rank has launched before is complete now
        barrier       all ranks are here. The other way round it would mean nothing: a rank may
                      pass a barrier while its device still works
        clock         start
        operation     on a GPU, this only launches it
        synchronize   now it is complete
        clock         stop

    Nothing else happens between start and stop. An iteration takes as long as its slowest rank, and
    the result is the median over the iterations of that, the same on every rank: one late rank or a
    garbage collection must not decide. (With an even number of iterations, which of the two in the
    middle it is, or their mean, is left open.)

    The lecture's benchmark differs in two places. It has a barrier between operation and stop, and
    so times that as well, which counts for small sizes; here the ranks meet again at the barrier of
    the next iteration, before the clock is started. And it takes the mean over the ranks, where a
    training step would have to wait for the slowest.

    The clocks of two ranks need not agree: only differences of the same clock mean anything.

    Args:
        operation: called without arguments.
        warmup: calls before, 0 or more.
        iterations: calls that are timed, 1 or more.
        group: the ranks that take part.
        clock: gives the time in seconds.
        synchronize: waits until all that the calling rank has launched is complete. None: waits for
            the group's device; on CPU a collective is complete when it returns.
        barrier: waits until all ranks of the group have called it. None: dist.barrier.

    Raises:
        ValueError: warmup is negative; iterations is below 1.
    """
    if warmup < 0:
        raise ValueError(f"warmup: it is {warmup}, but must not be negative")
    if iterations < 1:
        raise ValueError(f"iterations: it is {iterations}, but must be at least 1")
    synchronize = synchronize or _synchronizer(group)
    barrier = barrier or _barrier(group)
    raise NotImplementedError("Problem 2.2, time_op: not written yet")


def measure(
    op: str,
    numel: int,
    dtype: torch.dtype = torch.float32,
    *,
    collectives: Collectives = TORCH,
    group: ProcessGroup | None = None,
    **timing: Any,
) -> Measurement:
    """The bus bandwidth of an operation of one size. Every rank of the group calls this.

    The tensors are made once, before anything is timed (``make_arguments`` does it): to allocate or
    fill memory takes time as well, on a large tensor as long as the operation. What ``time_op``
    gets is the call of the operation and nothing else.

    Args:
        op: one of the names in the table at the top.
        numel: the number of elements whose bytes are S; n divides it.
        dtype: of the elements.
        collectives: whose operation it is; ``TORCH``, or ``vars(collectives)`` for your own.
        group: the ranks that take part, in the operation and in the measurement.
        timing: further arguments for ``time_op``, by name.

    Raises:
        ValueError: there is no such op; n does not divide numel; numel is below 0.
    """
    arguments = make_arguments(op, numel, dtype, group)
    raise NotImplementedError("Problem 2.3, measure: not written yet")


def sweep(
    op: str,
    sizes: Iterable[int],
    dtype: torch.dtype = torch.float32,
    *,
    collectives: Collectives = TORCH,
    group: ProcessGroup | None = None,
    **timing: Any,
) -> list[Measurement]:
    """Measures an operation at several sizes. Every rank of the group calls this.

    Args:
        op, dtype, collectives, group, timing: as for ``measure``.
        sizes: in bytes, what S is to be, 0 or more each; gone through once. Each is rounded down to
            a whole number of elements that n divides, but not to fewer than n elements. So the same
            sizes do for all operations.

    Returns:
        a measurement for each size, in the order of the sizes.

    Raises:
        ValueError: there is no such op.
    """
    _check_op(op)
    raise NotImplementedError("Problem 2.4, sweep: not written yet")


# --- Given: what is refused ----------------------------------------------------------------------


def _check_op(op: str) -> None:
    """Refuse an operation that is not in the table."""
    if op not in TORCH:
        raise ValueError(f"op: there is no {op!r}; it must be one of {', '.join(TORCH)}")


def _check_world_size(world_size: int) -> None:
    """Refuse a number of ranks that there cannot be."""
    if world_size < 1:
        raise ValueError(f"world_size: it is {world_size}, but must be at least 1")


# --- Given: what an operation works on -----------------------------------------------------------


def make_arguments(
    op: str, numel: int, dtype: torch.dtype, group: ProcessGroup | None
) -> tuple[Any, ...]:
    """What to call an operation with, before ``group=``: tensors of zeros, and a root.

    Args:
        numel: elements of which the bytes are S.

    Raises:
        ValueError: there is no such op; n does not divide numel; numel is below 0.
    """
    _check_op(op)
    ranks = dist.get_process_group_ranks(group)
    n, root = len(ranks), ranks[0]
    if numel < 0 or numel % n != 0:
        raise ValueError(f"numel: it is {numel}, but must be 0 or a multiple of the {n} ranks")

    def zeros(elements: int) -> Tensor:
        return torch.zeros(elements, dtype=dtype, device=group_device(group))

    if op == "all_reduce":
        return (zeros(numel),)
    if op in ("broadcast", "reduce"):
        return (zeros(numel), root)
    if op == "reduce_scatter":
        return (zeros(numel // n), zeros(numel))
    if op == "all_gather":
        return (zeros(numel), zeros(numel // n))
    if op == "all_to_all":
        return (zeros(numel), zeros(numel))
    at_root = dist.get_rank() == root
    return (zeros(numel // n), [zeros(numel // n) for _ in ranks] if at_root else None, root)


def sizes_between(smallest: int, largest: int, factor: int = 2) -> list[int]:
    """Sizes in bytes, each ``factor`` times the one before: as nccl-tests' -b, -e and -f."""
    if not 0 < smallest <= largest or factor < 2:
        raise ValueError(f"there are no sizes from {smallest} to {largest} by a factor of {factor}")
    sizes = [smallest]
    while sizes[-1] * factor <= largest:
        sizes.append(sizes[-1] * factor)
    return sizes


# --- Given: the device ---------------------------------------------------------------------------


def group_device(group: ProcessGroup | None) -> torch.device:
    """Where the group's collectives want tensors: the accelerator that its backend is for, or CPU.

    A tensor with which the ranks tell one another something has to be there, too.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    backend = dist.get_backend(group)
    # torch names gloo for a Mac's GPU as well, whose tensors gloo cannot send.
    if accelerator is None or backend == dist.Backend.GLOO:
        return torch.device("cpu")
    wanted = dist.get_default_backend_for_device(accelerator.type)
    return accelerator if backend == wanted else torch.device("cpu")


def _synchronizer(group: ProcessGroup | None) -> Callable[[], None]:
    """What waits until the group's device has done all that was launched."""
    if group_device(group).type == "cpu":
        return lambda: None
    return torch.accelerator.synchronize


def _barrier(group: ProcessGroup | None) -> Callable[[], object]:
    """dist.barrier, which is told the device where there may be several."""
    if group_device(group).type == "cpu":
        return lambda: dist.barrier(group)
    here = [torch.accelerator.current_device_index()]
    return lambda: dist.barrier(group, device_ids=here)


if __name__ == "__main__":
    from .bandwidth_report import main

    main()
