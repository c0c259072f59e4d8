"""Random calls of the collectives; what they must do is asked of torch.distributed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from .calls import Arguments, Call

_DTYPES = (  # those that gloo can reduce
    *(torch.float32, torch.float64, torch.bfloat16, torch.float16),
    *(torch.int64, torch.int32, torch.int8, torch.uint8),
)
_OPS = (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.AVG)
_ROOTS = {"broadcast": "src", "scatter": "src", "gather": "dst", "reduce": "dst"}
_REDUCING = ("reduce", "reduce_scatter", "all_reduce")
FUNCTIONS = (*_ROOTS, "all_gather", "reduce_scatter", "all_reduce", "all_to_all")


@dataclass(frozen=True)
class RandomCall:
    """A call, and how many ranks there are."""

    world_size: int
    call: Call


def random_call(function: str, seed: int) -> RandomCall:
    """The call of a function that belongs to this seed; its `after` holds names and no values."""
    return _Dice(seed).call(function)


class _Dice:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.torch = torch.Generator().manual_seed(seed)

    def call(self, function: str) -> RandomCall:
        pick = self.random
        n = pick.randint(1, 4)
        ranks = tuple(range(n))
        group = None
        if pick.random() < 0.4:
            ranks = group = tuple(sorted(pick.sample(range(n), pick.randint(1, n))))
        self.dtype = pick.choice(_DTYPES)
        shared: Arguments = {}
        if function in _ROOTS:
            shared[_ROOTS[function]] = pick.choice(ranks)
        if function in _REDUCING:
            shared["op"] = pick.choice(_OPS if self.dtype.is_floating_point else _OPS[:-1])
        self.factor = 12 if shared.get("op") == ReduceOp.AVG else 1  # divides by 2, 3 and 4
        self.largest = 2 if shared.get("op") == ReduceOp.PRODUCT else 9
        given = getattr(self, f"_{function}")(ranks, shared)
        written = {"all_gather": "output", "reduce_scatter": "output", "all_to_all": "output"}
        written["gather"] = "gather_list"
        name = written.get(function, "tensor")
        receivers = [shared["dst"]] if "dst" in shared else ranks
        return RandomCall(
            n,
            Call(
                function,
                {rank: own | shared for rank, own in zip(ranks, given, strict=True)},
                {rank: {name: None} if rank in receivers else {} for rank in ranks},
                group,
                pick.choice(("contiguous", "contiguous", "strided", "transposed")),
            ),
        )

    def _shape(self, fewest: int = 0) -> tuple[int, ...]:
        return tuple(self.random.randint(0, 5) for _ in range(self.random.randint(fewest, 3)))

    def _values(self, shape: tuple[int, ...]) -> Tensor:
        whole = torch.randint(1, self.largest + 1, shape, generator=self.torch) * self.factor
        return whole.to(self.dtype)

    def _in_place(self, ranks: tuple[int, ...], shared: Arguments) -> list[Arguments]:
        shape = self._shape()
        return [{"tensor": self._values(shape)} for _ in ranks]

    _broadcast = _reduce = _all_reduce = _in_place

    def _scatter(self, ranks: tuple[int, ...], shared: Arguments) -> list[Arguments]:
        return self._with_list("scatter_list", "src", ranks, shared)

    def _gather(self, ranks: tuple[int, ...], shared: Arguments) -> list[Arguments]:
        return self._with_list("gather_list", "dst", ranks, shared)

    def _with_list(
        self, name: str, root: str, ranks: tuple[int, ...], shared: Arguments
    ) -> list[Arguments]:
        shape = self._shape()
        return [
            {
                "tensor": self._values(shape),
                name: [self._values(shape) for _ in ranks] if rank == shared[root] else None,
            }
            for rank in ranks
        ]

    def _all_gather(self, ranks: tuple[int, ...], shared: Arguments) -> list[Arguments]:
        part, whole = self._part_and_whole(len(ranks))
        return [{"output": self._values(whole), "input": self._values(part)} for _ in ranks]

    def _reduce_scatter(self, ranks: tuple[int, ...], shared: Arguments) -> list[Arguments]:
        part, whole = self._part_and_whole(len(ranks))
        return [{"output": self._values(part), "input": self._values(whole)} for _ in ranks]

    def _part_and_whole(self, n: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        part = self._shape(fewest=1)
        return part, (n * part[0], *part[1:])

    def _all_to_all(self, ranks: tuple[int, ...], shared: Arguments) -> list[Arguments]:
        n, row = len(ranks), self._shape()
        uneven = self.random.random() < 0.7
        same = self.random.randint(0, 3)
        table = [[self.random.randint(0, 3) if uneven else same for _ in ranks] for _ in ranks]
        given = []
        for i in range(n):
            sent, received = table[i], [table[j][i] for j in range(n)]
            own: dict[str, Any] = {
                "output": self._values((sum(received), *row)),
                "input": self._values((sum(sent), *row)),
            }
            if uneven:
                own |= {"output_split_sizes": received, "input_split_sizes": sent}
            given.append(own)
        return given
