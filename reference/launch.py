# Problems in this file (points in problems.toml):
#   1.1  launch  1 point
"""Starting a distributed program: every process says who it is, and where they all meet.

A distributed program is one program, started once for each rank. ``setup`` makes a process group
of these processes, ``cleanup`` takes it apart. Run the lecture's first program with

    torchrun --nproc-per-node 4 -m assignment.launch

torchrun starts the processes and tells each through environment variables who it is (RANK out of
WORLD_SIZE, LOCAL_RANK on its machine) and where the ranks meet (MASTER_ADDR, MASTER_PORT).

Where a machine's own name does not resolve (some Macs), gloo needs the name of the network
interface: set GLOO_SOCKET_IFNAME=lo0 (Linux: lo) to stay on one machine.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor


def setup(
    rank: int | None = None,
    world_size: int | None = None,
    backend: str | None = None,
    *,
    address: str = "127.0.0.1",
    port: int = 29500,
    file: str | os.PathLike[str] | None = None,
    timeout: timedelta = timedelta(minutes=2),
) -> None:
    """Make the default process group, with one call of ``dist.init_process_group``.

    The ranks find one another in one of three ways:
        through torchrun  rank and world_size left out: read from RANK and WORLD_SIZE; init_method
                          "env://", which reads MASTER_ADDR and MASTER_PORT
        through a file    init_method "file://" and the absolute path of a file that all ranks can
                          write to, and that does not exist before
        through a port    init_method "tcp://address:port"; rank 0 listens there

    ``init_process_group`` gets the backend, and by name init_method, rank, world_size and timeout.

    Args:
        rank: who this process is, from 0 to world_size - 1.
        world_size: how many processes there are.
        backend: "gloo" or "nccl". None: nccl where there is a CUDA device, otherwise gloo. With
            nccl, the process first selects its own GPU: number LOCAL_RANK, or ``rank`` where that
            variable is not set.
        address: the name or number of rank 0's machine.
        port: a free port there.
        file: the path of the file, for a meeting through a file.
        timeout: how long a rank waits for the others, here and in every operation later.

    Raises:
        ValueError: only one of rank and world_size is given; rank is not in 0 to world_size - 1; a
            file is given without them; one of torchrun's four variables is missing or is no number
            where it should be one.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#initialization
    """
    if (rank is None) != (world_size is None):
        raise ValueError(f"give both rank and world_size or neither, not {rank=}, {world_size=}")
    if rank is None or world_size is None:
        _check_environment(file)
    else:
        _check_rank("rank", rank, world_size)
    if backend is None:
        backend = "nccl" if torch.cuda.is_available() else "gloo"
    # BEGIN SOLUTION
    # dta-canary-5c1e7f0a9d3b
    if rank is None or world_size is None:
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        init_method = "env://"
    elif file is not None:
        init_method = f"file://{Path(file).absolute()}"
    else:
        init_method = f"tcp://{address}:{port}"
    if backend == "nccl":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
    dist.init_process_group(
        backend, init_method=init_method, rank=rank, world_size=world_size, timeout=timeout
    )
    # END SOLUTION


def cleanup() -> None:
    """Take the process group apart with ``dist.destroy_process_group``, if there is one.

    So a second call does no harm. A program that ends without it can leave its peers hanging.
    """
    # BEGIN SOLUTION
    if dist.is_initialized():
        dist.destroy_process_group()
    # END SOLUTION


def first_program() -> Tensor:
    """The lecture's first program: rank r has [0, 1, 2, 3] + r, and everybody gets the sum.

    Needs a process group, whoever made it. Prints the tensor before and after, and returns it:
    float32, of shape (4,), with n [0, 1, 2, 3] + n (n-1) / 2 for n ranks.
    """
    rank = dist.get_rank()
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    tensor = torch.tensor([0.0, 1.0, 2.0, 3.0], device=device) + rank
    print(f"rank {rank} before all_reduce: {tensor.tolist()}", flush=True)
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    print(f"rank {rank} after all_reduce:  {tensor.tolist()}", flush=True)
    return tensor


def main() -> None:
    """Start, run the first program, stop: what torchrun runs on every rank."""
    setup()
    try:
        first_program()
    finally:
        cleanup()


# --- Given: what is refused ---------------------------------------------------------------------


def _check_environment(file: str | os.PathLike[str] | None) -> None:
    """Refuse a start without rank and world_size that torchrun has not prepared."""
    if file is not None:
        raise ValueError(f"{file=} also needs rank and world_size; give both")
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise ValueError(
            f"the environment has no {', '.join(missing)}: start the program with torchrun, which "
            "sets them, or give setup rank and world_size"
        )
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"):
        if not os.environ[name].isdecimal():
            raise ValueError(f"{name} is {os.environ[name]!r} in the environment, not a number")
    _check_rank("RANK", int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))


def _check_rank(name: str, rank: int, world_size: int) -> None:
    """Refuse a rank that there cannot be."""
    if world_size < 1:
        raise ValueError(f"the world size is {world_size}, but must be 1 or more")
    if not 0 <= rank < world_size:
        raise ValueError(f"{name} is {rank}, but must be from 0 to {world_size - 1}")


if __name__ == "__main__":
    main()
