"""Runs one case on one rank: the only code of the grader's that shares a process with a submission.

It is sent as source, together with the case's, so nothing of the grader comes with it. The
implementation, whoever wrote it, is always the package `assignment`.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

import multirank


class Implementation:
    """The package `assignment`; a module is imported when it is first asked for."""

    def __getattr__(self, module: str) -> Any:
        return importlib.import_module(f"assignment.{module}")


@dataclass(frozen=True)
class Here:
    """Where a case runs.

    rank, world_size: of the default group. device: where tensors belong.
    group: the sub-group that the case is for; None: the default group.
    members: the global ranks of that group, in its order. place: the calling rank's index in it.
    """

    rank: int
    world_size: int
    device: torch.device
    group: dist.ProcessGroup | None
    members: list[int]
    place: int


def drive(
    case_text: str, case_file: str, case: str, inputs: dict[str, Any] | None, group: str | None
) -> Any:
    """Calls `case(implementation, here, inputs)`; a rank that is not of the group returns {}."""
    context = multirank.context()
    if inputs is None:
        return {}
    members = context.group_ranks[group] if group else list(range(context.world_size))
    here = Here(
        context.rank,
        context.world_size,
        context.device,
        context.groups[group] if group else None,
        members,
        members.index(context.rank),
    )
    if here.device.type == "cpu":  # a program sees the same, whatever machine it is graded on
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    function = multirank.Source(case_text, case, case_file).load()
    return function(Implementation(), here, placed(inputs, here.device))


def placed(inputs: Any, device: torch.device) -> Any:
    """The same, with every tensor in it on the device."""
    if isinstance(inputs, torch.Tensor):
        return inputs.to(device)
    if isinstance(inputs, dict):
        return {name: placed(value, device) for name, value in inputs.items()}
    if isinstance(inputs, list):
        return [placed(value, device) for value in inputs]
    return inputs


# dta-canary-5c1e7f0a9d3b
