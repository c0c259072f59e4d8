"""Words for what went wrong: calls, tensors, and what a wrong value is consistent with.

The inputs of the tests are chosen so that a wrong value tells where it comes from. Likely causes
are found by `multirank.explain`; it is told here all that is known about the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp

import multirank

from .calls import Arguments, Call

_SHOWN = 12  # elements of a tensor
# The argument that holds the result, and the one that is put in; "tensor" for all others.
_RESULTS = {
    "gather": "gather_list",
    "all_gather": "output",
    "reduce_scatter": "output",
    "all_to_all": "output",
}
_INPUTS = {
    "scatter": "scatter_list",
    "all_gather": "input",
    "reduce_scatter": "input",
    "all_to_all": "input",
}


@dataclass(frozen=True, eq=False)
class WrongTensor:
    """A tensor of one rank that does not hold what it must after a call.

    name: of the argument, such as "output" or "gather_list[2]".
    """

    call: Call
    rank: int
    name: str
    held: Tensor
    wanted: Tensor

    @property
    def wrong(self) -> Tensor:
        """Which elements are wrong, in one dimension."""
        return (self.held != self.wanted).view(-1)

    @property
    def is_read_only(self) -> bool:
        """Whether the call must leave it as it was."""
        return self.name not in tensors(self.call.after.get(self.rank, {}))


def tensors(arguments: Arguments) -> dict[str, Tensor]:
    """The tensors among the arguments, those in lists by names such as `gather_list[2]`."""
    found = {}
    for name, value in arguments.items():
        if isinstance(value, Tensor):
            found[name] = value
        elif isinstance(value, list) and value and isinstance(value[0], Tensor):
            found |= {f"{name}[{i}]": item for i, item in enumerate(value)}
    return found


def combine(op: ReduceOp.RedOpType, values: Sequence[Tensor]) -> Tensor:
    """What a reduction of the values is, by its definition."""
    functions = {
        ReduceOp.PRODUCT: torch.mul,
        ReduceOp.MIN: torch.minimum,
        ReduceOp.MAX: torch.maximum,
    }
    total = values[0].clone()
    for value in values[1:]:
        total = functions.get(op, torch.add)(total, value)
    return total / len(values) if op == ReduceOp.AVG else total


# --- Naming -------------------------------------------------------------------------------------


def describe(call: Call, rank: int) -> str:
    """The call as `rank` makes it: `reduce(tensor=float32 of shape (5,), dst=2, op=SUM)`."""
    arguments = call.before.get(rank) or next(iter(call.before.values()), {})
    told = [f"{name}={_describe_value(value, call.width)}" for name, value in arguments.items()]
    if call.group is not None:
        told.append(f"group=the group of the global ranks {list(call.group)}")
    layout = "" if call.layout == "contiguous" else f", all tensors {call.layout}"
    return f"{call.function}({', '.join(told)}){layout}"


def _describe_value(value: Any, width: int) -> str:
    if isinstance(value, Tensor):
        shape = tuple(value.shape) if width == 1 else (*value.shape, width)
        return f"{str(value.dtype).removeprefix('torch.')} of shape {shape}"
    if isinstance(value, list) and value and isinstance(value[0], Tensor):
        return f"{len(value)} x {_describe_value(value[0], width)}"
    return value.name if isinstance(value, ReduceOp.RedOpType) else str(value)


def show(tensor: Tensor) -> str:
    """A small tensor whole, the beginning of another."""
    text = str(tensor.tolist())
    if tensor.numel() > _SHOWN:
        text = str(tensor.reshape(-1)[:_SHOWN].tolist())[:-1] + ", ...]"
    return text


def listed(ranks: Iterable[int]) -> str:
    """`rank 1`, `ranks 0 and 2`, `ranks 0, 1 and 3`."""
    names = [str(rank) for rank in ranks]
    if len(names) == 1:
        return f"rank {names[0]}"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"


def source_place(file: str, line: int) -> str:
    """`assignment/collectives.py:12`, from where pytest runs if the file lies below."""
    path = Path(file)
    return f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else file}:{line}"


def megabytes(nbytes: float) -> str:
    """`1.5 MiB`."""
    return f"{nbytes / 2**20:.4g} MiB"


# --- Telling what is wrong ----------------------------------------------------------------------


def tell(wrong: WrongTensor) -> list[str]:
    """What is wrong with the tensor, in lines."""
    held, wanted = wrong.held, wrong.wanted
    if held.shape != wanted.shape or held.dtype != wanted.dtype:
        return [
            f"{wrong.name} is {_describe_value(held, 1)}, "
            f"but must stay {_describe_value(wanted, 1)}"
        ]
    where = wrong.wrong.nonzero().view(-1)
    first = int(where[0])
    index = [int(i) for i in torch.unravel_index(torch.tensor(first), held.shape)]
    one = held.reshape(-1)[first].item(), wanted.reshape(-1)[first].item()
    wish = "before the call it was" if wrong.is_read_only else "it must be"
    lines = [
        f"{wrong.name}{index or ''} is {one[0]}, {wish} {one[1]} "
        f"({len(where)} of {held.numel()} elements are wrong)"
    ]
    if held.numel() > 1:
        lines += [f"  is      {show(held)}", f"  must be {show(wanted)}"]
    return lines


def likely_causes(
    found: Sequence[WrongTensor],
    world_size: int,
    received: Sequence[bool],
    earlier: Sequence[Call] = (),
) -> list[str]:
    """What these wrong tensors, which are of one call, are consistent with: at most two sentences.

    received: for each rank of the group, whether it received any message.
    earlier: the calls before in the same processes, whose results were right.
    """
    call = found[0].call
    if found[0].is_read_only:
        return ["consistent with working in memory that the caller still needs; work in a copy"]
    arguments = call.before[found[0].rank]
    op = arguments.get("op")
    facts = multirank.Facts(
        function=call.function,
        op=None if op is None else op.name,
        ranks=call.members,
        world_size=world_size,
        root=arguments.get("src", arguments.get("dst")),
        before=_by_rank(call, call.before, _result(call)),
        bystanders=_held(found, call.before) if call.function == "reduce" else None,
        previous=[
            _by_rank(one, one.after, _result(one)) for one in earlier if one.members == call.members
        ],
        splits=_by_rank(call, call.before, "input_split_sizes")
        if "input_split_sizes" in arguments
        else None,
        received=received,
        contiguous=call.layout == "contiguous",
    )
    return multirank.explain(
        _held(found, call.after),
        _by_rank(call, call.after, _result(call)),
        _by_rank(call, call.before, _INPUTS.get(call.function, "tensor")),
        facts,
    ).causes


def _result(call: Call) -> str:
    return _RESULTS.get(call.function, "tensor")


def _by_rank(call: Call, given: Mapping[int, Arguments], name: str) -> list[Any]:
    return [given.get(rank, {}).get(name) for rank in call.members]


def _held(found: Sequence[WrongTensor], named: Mapping[int, Arguments]) -> list[Any]:
    """For each rank, the result argument as it is after the call: as in `named`, or as found."""
    call = found[0].call
    held = {(one.rank, one.name): one.held for one in found}
    name = _result(call)
    return [
        [held.get((rank, f"{name}[{i}]"), item) for i, item in enumerate(value)]
        if isinstance(value, list)
        else held.get((rank, name), value)
        for rank, value in zip(call.members, _by_rank(call, named, name), strict=True)
    ]
