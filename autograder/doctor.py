"""What this machine can do for grading: backends, GPUs, and each layer of isolation."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from autograder.confine import modes, privacy
from autograder.confine.modes import MODES, Isolation, choose
from autograder.inputs import SecretError, course_secret
from autograder.machine import cores, free_memory
from autograder.paths import SECRET_NAME, private_directory


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, whether it is there, and the details or the reason why not."""

    topic: str
    name: str
    good: bool
    told: str


def findings() -> list[Finding]:
    """Everything, in the order in which it should be read."""
    return [*_machine(), *_backends(), *_gpus(), *_layers(), *_modes(), *_secret()]


def can_be_official(found: Sequence[Finding]) -> bool:
    """Whether a result from this machine can count."""
    modes_here = any(one.good for one in found if one.topic == "mode")
    return modes_here and all(one.good for one in found if one.topic == "course secret")


SHARED_FOR_NCCL = 1 << 30  # bytes


def _machine() -> list[Finding]:
    found = [
        Finding("machine", "cores", True, str(cores())),
        Finding("machine", "torch", True, str(torch.__version__)),
    ]
    with contextlib.suppress(OSError, ValueError):  # only Linux says
        found.append(Finding("machine", "free memory", True, f"{free_memory() / 2**30:.1f} GiB"))
    with contextlib.suppress(OSError):
        size = shutil.disk_usage("/dev/shm").total
        enough = size >= SHARED_FOR_NCCL or not torch.cuda.device_count()
        told = f"{size / 2**20:.0f} MiB" + ("" if enough else "; NCCL needs more: --shm-size 2g")
        found.append(Finding("machine", "shared memory", enough, told))
    return found


def _backends() -> list[Finding]:
    there = {"gloo": dist.is_gloo_available(), "nccl": dist.is_nccl_available()}
    return [
        Finding("backend", name, good, "" if good else "this torch was built without it")
        for name, good in there.items()
    ]


def _gpus() -> list[Finding]:
    count = torch.cuda.device_count()
    if not count:
        return [Finding("GPUs", "none", False, "all points can be earned without one")]
    return [
        Finding("GPUs", str(place), True, torch.cuda.get_device_name(place))
        for place in range(count)
    ]


def _layers() -> list[Finding]:
    return [
        Finding("isolation", name, not reason, reason) for name, reason in modes.probed().items()
    ]


def _modes() -> list[Finding]:
    strongest = choose().mode
    found = []
    for mode in MODES:
        missing = modes.missing(mode)
        reason = f"without {', '.join(missing)}" if missing else ""
        if mode is not Isolation.NONE and not reason:
            reason = "; ".join(privacy.why_not_official(choose(mode)))
        told = reason or (
            "nothing separates a submission from you; never official"
            if mode is Isolation.NONE
            else "official"
        )
        name = f"{mode.value} (auto)" if mode is strongest else mode.value
        found.append(Finding("mode", name, not reason and mode is not Isolation.NONE, told))
    return found


def _secret() -> list[Finding]:
    """What inputs are drawn from. One that is not there yet is not made."""
    place = private_directory()
    if not (place / SECRET_NAME).exists():
        return [Finding("course secret", str(place), False, "none; the first grading makes one")]
    try:
        fingerprint = course_secret(place).fingerprint
    except SecretError as error:
        return [Finding("course secret", str(place), False, str(error))]
    return [
        Finding("course secret", str(place), True, f"its fingerprint begins {fingerprint[:12]}")
    ]
