"""What graded worlds communicate with: gloo in main memory, or NCCL with a GPU for each rank."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch
import torch.distributed as dist

from autograder.failure import CheckFailed
from autograder.grade import Outcome
from autograder.machine import ENOUGH_GPUS


class BackendName(StrEnum):
    """What can be asked for."""

    AUTO = "auto"
    GLOO = "gloo"
    NCCL = "nccl"


class NoSuchBackend(RuntimeError):
    """What was asked for does not work on this machine."""


@dataclass(frozen=True)
class Backend:
    """What is used.

    gpus: how many there are for it; 0 with gloo.
    device: their name.
    """

    name: BackendName = BackendName.GLOO
    gpus: int = 0
    device: str = "CPU"

    @property
    def on_gpus(self) -> bool:
        return self.name is BackendName.NCCL

    def require(self, ranks: int) -> None:
        """Returns when there are enough devices for so many ranks.

        Raises:
            CheckFailed: there are not; it needs hardware.
        """
        if self.on_gpus and ranks > self.gpus:
            raise CheckFailed(
                f"needs {ranks} GPUs, one for each rank; there {_are(self.gpus)} here",
                outcome=Outcome.NEEDS_HARDWARE,
            )


GLOO = Backend()


def find(name: BackendName) -> Backend:
    """The backend on this machine; `auto` is NCCL where there are enough GPUs for it.

    Raises:
        NoSuchBackend: it does not work here.
    """
    if name is BackendName.GLOO:
        return GLOO
    gpus = torch.cuda.device_count()
    if name is BackendName.AUTO and (gpus < ENOUGH_GPUS or not dist.is_nccl_available()):
        return GLOO
    if not dist.is_nccl_available() or not gpus:
        why = "sees no GPU here" if dist.is_nccl_available() else "was built without NCCL"
        raise NoSuchBackend(f"--backend nccl does not work here: this torch {why}.")
    return Backend(BackendName.NCCL, gpus, torch.cuda.get_device_name(0))


def _are(count: int) -> str:
    return "is 1" if count == 1 else f"are {count}"
