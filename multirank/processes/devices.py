"""Where a rank's tensors belong: in main memory, or on a GPU of its own."""

from __future__ import annotations

import torch

BACKENDS = ("gloo", "nccl")


def take_device(backend: str, rank: int) -> torch.device:
    """The rank's device, selected before anything else of its process can touch another one.

    Raises:
        RuntimeError: there are too few GPUs.
    """
    if backend == "gloo":
        return torch.device("cpu")
    if (count := torch.cuda.device_count()) <= rank:
        raise RuntimeError(
            f"with backend {backend} each rank needs a GPU of its own; torch sees {count} here"
        )
    torch.cuda.set_device(rank)
    return torch.device("cuda", rank)
