"""Runs one case on one rank: the only code of the grader's that shares a process with a submission.

It is sent as source, together with the case's, so nothing of the grader comes with it. The
implementation, whoever wrote it, is always the package `assignment`.

It also looks whether functions that everybody relies on are still themselves. Who replaces them
could replace what looks, too; so this tells a person where to look, and decides nothing.
"""

from __future__ import annotations

import importlib
import os
import time
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
import torch.distributed as dist

import multirank
from multirank.recording import trace, watch

MOST = 20  # of what was replaced is named


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
    """What `case(implementation, here, inputs)` returns ({} where the rank is not of the group), as
    "outputs"; and as "replaced", names of functions that are not what they were."""
    context = multirank.context()
    if "functions" not in context.state:  # once, and not in a call that is timed
        context.state["functions"] = functions_in_use()
    known = context.state["functions"]
    outputs = {} if inputs is None else run(context, case_text, case_file, case, inputs, group)
    return {"outputs": outputs, "replaced": replaced(known)}


def run(
    context: Any,
    case_text: str,
    case_file: str,
    case: str,
    inputs: dict[str, Any],
    group: str | None,
) -> Any:
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


def functions_in_use() -> dict[str, tuple[Any, Any, Any]]:
    """Functions, methods and classes of torch's, Python's and our own that results rest on: by
    name where each is found, it, and its code."""
    spaces = {
        "time": time,
        "torch.distributed": dist,
        "torch.distributed.distributed_c10d": dist.distributed_c10d,
        "torch.distributed.ProcessGroup": dist.ProcessGroup,
        "torch.cuda": torch.cuda,
        "torch.cuda.Event": torch.cuda.Event,
        "torch.cuda.Stream": torch.cuda.Stream,
        "multirank": multirank,
        "multirank.watch": watch,
        "multirank.watch.WatchedProcessGroup": watch.WatchedProcessGroup,
        "multirank.watch.WatchedWork": watch.WatchedWork,
        "multirank.trace.Recorder": trace.Recorder,
    }
    return {
        f"{space}.{name}": (vars(where), name, (value, code_of(value)))
        for space, where in spaces.items()
        for name, value in vars(where).items()
        if issubclass(type(value), (FunctionType, BuiltinFunctionType, type))  # asks it nothing
    }


def code_of(value: Any) -> list[Any]:
    """Of a function, and of what it wraps."""
    wrapped = getattr(value, "__wrapped__", None)
    return [getattr(one, "__code__", None) for one in (value, wrapped)]


def replaced(known: dict[str, tuple[Any, Any, Any]]) -> list[str]:
    """The names of those that are not what they were."""
    try:
        return [
            name
            for name, (where, key, (value, code)) in known.items()
            if where.get(key) is not value or code_of(value) != code
        ][:MOST]
    except Exception:  # whatever a submission has put there
        return ["(something with which nothing can be compared)"]


# dta-canary-5c1e7f0a9d3b
