"""Calls of your functions: what each rank passes, what must be there afterwards, and how ranks run.

A `Call` is plain data. `perform` and the other functions at the end run on every rank, in a process
of their own, and import your module there; this file travels to them as a whole, so it imports
torch and multirank only.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import multirank

Arguments = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a collective by every rank of a group.

    Attributes:
        function: its name.
        before: for each global rank that calls, the arguments by name, without group.
        after: for each of them, the arguments that must have changed, and what they hold then. All
            other tensors must hold what they held before.
        group: the global ranks of a sub-group; None: all ranks, as the default group.
        layout: how the tensors lie in memory: "contiguous"; "strided", with gaps; "transposed",
            the last dimension first; "expanded", one row that stands for all.
        width: the ranks get tensors with a further, last dimension of this size, along which each
            element is repeated. So a large tensor can be described by a small one.
    """

    function: str
    before: dict[int, Arguments]
    after: dict[int, Arguments] = field(default_factory=dict)
    group: tuple[int, ...] | None = None
    layout: str = "contiguous"
    width: int = 1

    @property
    def members(self) -> list[int]:
        """The global ranks of the group, in order."""
        return list(self.group or sorted(self.before))


def group_name(group: tuple[int, ...]) -> str:
    """What a world calls a sub-group."""
    return str(list(group))


def call_label(number: int) -> str:
    """Stands in the trace where a rank makes call `number`."""
    return f"call {number}"


# --- On the ranks -------------------------------------------------------------------------------


def perform(package: str, module: str, calls: Sequence[Call]) -> list[Arguments]:
    """Makes the calls, one after another; for each the calling rank's arguments afterwards."""
    functions = importlib.import_module(f"{package}.{module}")
    outcomes = []
    for number, call in enumerate(calls):
        multirank.mark(call_label(number))
        outcomes.append(_make(getattr(functions, call.function), call))
    return outcomes


def attempt(package: str, module: str, bad_calls: Sequence[Call]) -> list[str | None]:
    """Makes calls with wrong arguments, until one is not refused.

    Returns:
        for each what it raised: "ValueError", the name of something else, or "" for nothing; None
        for a call that is not for the calling rank.
    """
    functions = importlib.import_module(f"{package}.{module}")
    raised: list[str | None] = []
    for number, call in enumerate(bad_calls):
        if multirank.context().rank not in call.before:
            raised.append(None)
            continue
        multirank.mark(call_label(number))
        try:
            _make(getattr(functions, call.function), call)
            raised.append("")
        except Exception as error:
            raised.append("ValueError" if isinstance(error, ValueError) else type(error).__name__)
        if raised[-1] != "ValueError":
            break
    return raised


def compare(package: str, module: str, calls: Sequence[Call]) -> list[list[Arguments]]:
    """Makes each call with torch.distributed and then with yours; the arguments after both."""
    functions = importlib.import_module(f"{package}.{module}")
    outcomes = []
    for number, call in enumerate(calls):
        contiguous = Call(call.function, call.before, group=call.group)
        theirs = _make(_torch_function(call.function), contiguous)
        multirank.mark(call_label(number))
        outcomes.append([theirs, _make(getattr(functions, call.function), call)])
        multirank.mark("torch.distributed")
    return outcomes


def pass_barriers(
    package: str, module: str, members: Sequence[int], group: str | None, late_by: float
) -> list[list[float]]:
    """One barrier for each member, who is late to it; when each was entered and left, in seconds.

    All processes of a machine read the same clock.
    """
    barrier = importlib.import_module(f"{package}.{module}").barrier
    here = multirank.context()
    times = []
    for number, late in enumerate(members if here.rank in members else []):
        multirank.mark(call_label(number))
        if here.rank == late:
            time.sleep(late_by)
        entered = time.monotonic()
        barrier(**_group_argument(group))
        times.append([entered, time.monotonic()])
    return times


def _make(function: Callable[..., Any], call: Call) -> Arguments:
    here = multirank.context()
    if here.rank not in call.before:
        return {}
    arguments = {
        name: _each(value, lambda tensor: _lay_out(_widen(tensor, call.width), call.layout))
        for name, value in call.before[here.rank].items()
    }
    given = {
        name: [*value] if isinstance(value, list) else value for name, value in arguments.items()
    }
    function(**given, **_group_argument(None if call.group is None else group_name(call.group)))
    return {
        name: _each(value, lambda tensor: _narrow(tensor, call.width))
        for name, value in arguments.items()
        if name in ("tensor", "input", "output", "scatter_list", "gather_list")
    }


def _group_argument(name: str | None) -> Arguments:
    if name is None:
        return {}
    group = multirank.context().groups[name]
    # What torch gives to a rank that is not a member of the group.
    return {"group": dist.GroupMember.NON_GROUP_MEMBER if group is None else group}


def _torch_function(name: str) -> Callable[..., Any]:
    names = {
        "all_gather": "all_gather_into_tensor",
        "reduce_scatter": "reduce_scatter_tensor",
        "all_to_all": "all_to_all_single",
    }
    arguments = {"all_gather": ("output_tensor", "input_tensor")}
    function = getattr(dist, names.get(name, name))

    def call(**given: Any) -> None:
        for ours, theirs in zip(("output", "input"), arguments.get(name, ()), strict=False):
            given[theirs] = given.pop(ours)
        function(**given)

    return call


def _each(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The value with its tensors, which may be in a list, changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, list):
        return [_each(item, change) for item in value]
    return value


def _lay_out(tensor: Tensor, layout: str) -> Tensor:
    if layout == "strided" and tensor.dim() > 0:
        room = tensor.new_full((*tensor.shape[:-1], 2 * tensor.shape[-1]), 99)
        room[..., ::2] = tensor
        return room[..., ::2]
    if layout == "transposed" and tensor.dim() > 1:
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "expanded":
        return tensor[:1].expand_as(tensor)
    return tensor


def _widen(tensor: Tensor, width: int) -> Tensor:
    return tensor.clone() if width == 1 else tensor[..., None].expand(*tensor.shape, width).clone()


def _narrow(tensor: Tensor, width: int) -> Tensor:
    """The opposite of `_widen`; NaN where the repeated elements are not all the same."""
    if width == 1:
        return tensor
    first = tensor[..., 0]
    same = (tensor == first.unsqueeze(-1)).all(-1)
    return torch.where(same, first, torch.nan)
