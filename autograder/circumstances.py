"""The circumstances of a grading here: versions, isolation, whether its result is official."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version

import torch

from autograder.backend import Backend
from autograder.confine import privacy
from autograder.confine.modes import Confinement
from autograder.digest import grader_digest
from autograder.grade import About
from autograder.inputs import Secret
from autograder.manifest import Manifest


def about(
    manifest: Manifest,
    secret: Secret,
    only: Sequence[str],
    confinement: Confinement,
    backend: Backend,
) -> About:
    """What is known about a grading before it begins, but for the submission."""
    unofficial = privacy.why_not_official(confinement, connecting=backend.on_gpus)
    layers = [*confinement.layers, *([] if unofficial else [privacy.NAME])]
    if secret.default:
        unofficial.append("its inputs come from a known number, not from the course's secret")
    if only:
        unofficial.append("only some of the checks were asked for")
    return About(
        course=manifest.course.name,
        backend=backend.name,
        isolation_mode=confinement.mode,
        isolation=layers,
        unofficial=unofficial,
        versions={
            "grader": grader_digest(),
            "torch": str(torch.__version__),
            "device": backend.device,
            "python": platform.python_version(),
            "gradescope-utils": version("gradescope-utils"),
        },
        secret_fingerprint=secret.fingerprint,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
    )
