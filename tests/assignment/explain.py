"""Words for what went wrong: calls, tensors, and what a wrong value is consistent with.

The inputs of the tests are chosen so that a wrong value tells where it comes from. Each function in
`_GUESSES` knows one mistake that people make, and says so where the numbers bear it out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from .calls import Arguments, Call

_SHOWN = 12  # elements of a tensor


@dataclass(frozen=True, eq=False)
class WrongTensor:
    """A tensor of one rank that does not hold what it must after a call.

    name: of the argument, such as "output" or "gather_list[2]".
    """

    call: Call
    rank: int
    name: str
    before: Tensor
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

    @property
    def place(self) -> int:
        """Of the rank in the group."""
        return self.call.members.index(self.rank)


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


def guesses(found: Sequence[WrongTensor]) -> list[str]:
    """The most telling likely cause of the first of these, which are of one call.

    To be read after "consistent with". Empty where nothing fits.
    """
    wrong = found[0]
    if wrong.held.shape != wrong.wanted.shape or wrong.held.dtype != wrong.wanted.dtype:
        return []
    if guess := _another_root(found):
        return [guess]
    if wrong.is_read_only:
        return ["memory that the caller still needs being used to work in; work in a copy"]
    return [guess for find in _GUESSES if (guess := find(wrong))][:1]


# --- Guesses ------------------------------------------------------------------------------------


def _exact(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).to(torch.float64 if tensor.is_floating_point() else torch.int64)


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool((one == other).all())


def _never_written(wrong: WrongTensor) -> str | None:
    if not _same(wrong.held, wrong.before):
        return None
    dimensions = {"strided": 1, "transposed": 2}.get(wrong.call.layout)
    if dimensions is not None and wrong.before.dim() >= dimensions:
        return "the result having been left in a contiguous copy, and not brought back"
    if len(set(wrong.before.reshape(-1).tolist())) == 1:
        return f"nothing having been written to {wrong.name}: it still holds what the test put in"
    return "nothing having been communicated, or the result having gone into another tensor"


def _rounded_integers(wrong: WrongTensor) -> str | None:
    if wrong.held.is_floating_point():
        return None
    error = (wrong.held - wrong.wanted).abs()
    if bool((error <= wrong.wanted.abs() // 2**20).all()):
        return "integers that went through floating point, where they were rounded"
    return None


def _forgotten_rest(wrong: WrongTensor) -> str | None:
    where = wrong.wrong.nonzero().view(-1)
    size, n = wrong.held.numel(), len(wrong.call.members)
    left = wrong.held.view(-1)[where]
    untouched = _same(left, wrong.before.reshape(-1)[where])
    if not (untouched or bool((left == 0).all())) or len(where) == size:
        return None
    what = "as before the call" if untouched else "zero"
    if int(where[0]) == size - len(where) and size % n != 0:
        return f"a forgotten rest: {size} does not divide by {n}, and the last are {what}"
    return f"a part that nobody filled: the wrong elements are {what}"


def _another_op(wrong: WrongTensor) -> str | None:
    op, parts = wrong.call.before[wrong.rank].get("op"), _contributions(wrong)
    if not parts or op is None:
        return None
    n = len(parts)
    held, total = _exact(wrong.held), combine(ReduceOp.SUM, parts)
    if op == ReduceOp.AVG:
        if _same(held, total):
            return f"a sum that was not divided by the number of ranks, {n}"
        if _same(held, total / 2):
            return f"a division by 2, where there are {n} ranks"
        if bool(torch.allclose(held, total / n**2, rtol=1e-2)):
            return f"a division by {n} that was done twice"
    if op == ReduceOp.SUM and held.is_floating_point() and _same(held, total / n):
        return "a mean, where a sum was asked for"
    for other in (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX):
        if other != op and n > 1 and _same(held, combine(other, parts)):
            return f"{other.name} having been computed, and op ignored"
    return None


def _wrong_terms(wrong: WrongTensor) -> str | None:
    """Whether a sum leaves ranks out, counts them twice, or takes another part of what they had."""
    op, parts = wrong.call.before[wrong.rank].get("op"), _contributions(wrong)
    if not parts or op not in (ReduceOp.SUM, ReduceOp.AVG):
        return None
    factor = len(parts) if op == ReduceOp.AVG else 1
    held = _exact(wrong.held) * factor
    first = int(wrong.wrong.nonzero()[0])
    for chosen in _fewest_mistakes_first([_terms(wrong, rank) for rank in wrong.call.members]):
        total = torch.stack([term for _, term in chosen]).sum(0)
        fits = [bool(one) for one in (held == total)[first:]]
        if not fits[0]:
            continue
        last = first + (fits.index(False) if False in fits else len(fits)) - 1
        where = f"elements {first} to {last}" if last > first else f"element {first}"
        mistakes: dict[str, list[int]] = {}
        for rank, (mistake, _) in zip(wrong.call.members, chosen, strict=True):
            mistakes.setdefault(mistake, []).append(rank)
        told = [f"what {listed(ranks)} put in {m}" for m, ranks in mistakes.items() if m]
        return f"{' and '.join(told)}, in {where}"
    return None


_Term = tuple[str, Tensor]  # a mistake, or "" for none, and what it puts into a sum


def _terms(wrong: WrongTensor, rank: int) -> list[_Term]:
    """What a rank's term in a sum may be."""
    call = wrong.call
    own = _contributions(wrong)[call.members.index(rank)]
    terms = [("", own), ("missing", torch.zeros_like(own)), ("counted twice", 2 * own)]
    if call.function == "reduce_scatter":
        parts = _exact(call.before[rank]["input"]).tensor_split(len(call.members))
        terms += [
            (f"taken from part {i} where part {wrong.place} belongs", part)
            for i, part in enumerate(parts)
            if i != wrong.place
        ]
    return terms


def _fewest_mistakes_first(terms: list[list[_Term]]) -> list[tuple[_Term, ...]]:
    every = itertools.product(*terms)
    return sorted(every, key=lambda chosen: sum(1 for mistake, _ in chosen if mistake))


def _contributions(wrong: WrongTensor) -> list[Tensor]:
    """What each rank put into a reduction for this rank's result; nothing for another function."""
    call = wrong.call
    if call.function in ("all_reduce", "reduce"):
        return [_exact(call.before[rank]["tensor"]) for rank in call.members]
    if call.function == "reduce_scatter":
        wholes = [_exact(call.before[rank]["input"]) for rank in call.members]
        return [whole.tensor_split(len(wholes))[wrong.place] for whole in wholes]
    return []


def _somebody_elses(wrong: WrongTensor) -> str | None:
    """Whether it is right, but for another rank or another place in the list."""
    for rank in wrong.call.members:
        for name, wanted in tensors(wrong.call.after[rank]).items():
            if not _same(wrong.held, wanted):
                continue
            if name != wrong.name:
                return f"places in the list being mixed up: this belongs into {name}"
            n = len(wrong.call.members)
            step = (wrong.call.members.index(rank) - wrong.place) % n
            off = {1: ", one place further", n - 1: ", one place back"}.get(step, "")
            return f"an index that is off: this belongs to rank {rank}{off if n > 2 else ''}"
    return None


def _another_root(found: Sequence[WrongTensor]) -> str | None:
    """Whether another rank's tensor was broadcast, or another rank got the result."""
    call = found[0].call
    name = {"broadcast": "src", "reduce": "dst"}.get(call.function)
    if name is None:
        return None
    root = call.before[found[0].rank][name]
    for one in found:
        for rank in call.members:
            if name == "src" and rank not in (root, one.rank):
                due = call.before[rank]["tensor"]
            elif name == "dst" and root != rank == one.rank:
                due = call.after[root]["tensor"]
            else:
                continue
            if _same(one.held, due):
                return f"rank {rank} being taken for the root, which is rank {root}"
    return None


def _mixed_parts(wrong: WrongTensor) -> str | None:
    """Whether a part of the output holds what belongs into another."""
    call = wrong.call
    if call.function not in ("all_gather", "all_to_all"):
        return None
    sizes = call.before[wrong.rank].get("output_split_sizes")
    cuts: Any = sizes or [len(wrong.held) // len(call.members)] * len(call.members)
    held, wanted = torch.split(wrong.held, cuts), torch.split(wrong.wanted, cuts)
    first = next(i for i in range(len(held)) if not _same(held[i], wanted[i]))
    for i, part in enumerate(wanted):
        if i != first and _same(held[first], part):
            return (
                f"parts in the wrong places: what rank {call.members[i]} sent lies where that of "
                f"rank {call.members[first]} belongs"
            )
    if call.function == "all_to_all":
        source = call.before[call.members[first]]
        meant: Any = source.get("input_split_sizes") or len(source["input"]) // len(call.members)
        for rank, part in zip(call.members, torch.split(source["input"], meant), strict=True):
            if rank != wrong.rank and _same(held[first], part):
                return (
                    f"rank {call.members[first]} having sent the part for rank {rank} to rank "
                    f"{wrong.rank}"
                )
    return None


_GUESSES = (
    _never_written,
    _rounded_integers,
    _another_op,
    _forgotten_rest,
    _somebody_elses,
    _mixed_parts,
    _wrong_terms,
)
