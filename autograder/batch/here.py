"""The local executor on this very machine: its room, and whether it can grade as it should."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from autograder import circumstances, machine
from autograder.backend import BackendName, NoSuchBackend, find
from autograder.batch.conduct import Settings
from autograder.batch.executor import CannotGradeHere
from autograder.batch.local import LocalExecutor
from autograder.batch.needs import Needs, TooFewGPUs, slots
from autograder.confine.modes import CannotConfine, Isolation, choose


def local_executor(out: Path, settings: Settings, at_once: int) -> LocalExecutor:
    """With as many workers as there is room for, or `at_once`.

    Raises:
        CannotGradeHere: the workers would only fail.
    """
    try:
        confinement, backend = (
            choose(Isolation(settings.isolation)),
            find(BackendName(settings.backend)),
        )
        places = slots(
            settings.needs,
            cores=machine.cores(),
            memory=_memory(settings.needs),
            gpus=_gpus(),
            most=at_once,
        )
    except (CannotConfine, NoSuchBackend, TooFewGPUs) as error:
        raise CannotGradeHere(str(error)) from None
    about = circumstances.about(settings.manifest, settings.secret, (), confinement, backend)
    if settings.official and about.unofficial:
        reasons = "; ".join(about.unofficial)
        raise CannotGradeHere(f"The grades would not be official: {reasons}.")
    return LocalExecutor(places, out / "log")


def _memory(needs: Needs) -> int:
    """Where the system does not say what is left, enough for a grading on each core."""
    try:
        return machine.free_memory()
    except (OSError, ValueError):
        return needs.memory * machine.cores()


def _gpus() -> list[str]:
    """Those that this process may use, by the names that its children must use."""
    if (given := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in given.split(",") if name]
    return [str(number) for number in range(torch.cuda.device_count())]
