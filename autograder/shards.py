"""What every rank of a group must have of a tensor, and what it looks like if they have not.

Parts are compared rank by rank. Wrong ones are read all together: whether they are n times too
large, add up to what is right, or belong to another rank says which communication is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from autograder.agreement import difference
from autograder.compare import Array, float_tolerance
from autograder.failure import CheckFailed
from autograder.judge import Answer, array

Parts = Sequence[Tensor]
_Values = npt.NDArray[np.float64]
_NEAR = {"float32": 1e-3, "float64": 1e-6, "bfloat16": 5e-2}  # of the largest element


@dataclass(frozen=True, eq=False)
class Wanted:
    """What the ranks must have.

    where: keys that lead to it in a rank's answer. what: its name, for the student.
    dtype: by torch's name. parts: for each member of the group, in float64.
    error: the largest error of the same computation on one device in this dtype; None: the numbers
        are such that every order of the sums is exact, and equality is asked for.
    guesses: what some mistakes lead to, by what completes "consistent with ...".
    """

    where: tuple[str, ...]
    what: str
    dtype: str
    parts: Parts
    error: float | None = None
    guesses: Mapping[str, Parts] = field(default_factory=dict)


def require_parts(told: str, answer: Answer, ranks: Sequence[int], wanted: Wanted) -> None:
    """Compares what each rank has with its part.

    Args:
        told: what was run, in words.

    Raises:
        CheckFailed: at the first rank whose part is not right.
    """
    (*path, name), dtype = wanted.where, wanted.dtype
    for rank, part in zip(ranks, wanted.parts, strict=True):
        exact = Array(dtype, tuple(part.shape), part.numpy())
        tolerance = None
        if wanted.error is not None:
            scale = float(part.abs().max()) if part.numel() else 0.0
            tolerance = float_tolerance(wanted.error, dtype, len(ranks), scale)
        if wrong := difference(_inside(answer.outputs[rank], path), name, exact, tolerance):
            raise CheckFailed(
                f"{told}: on rank {rank}, {wanted.what} is not right: {wrong}",
                causes=[f"consistent with {cause}" for cause in _causes(answer, ranks, wanted)],
            )


def _inside(output: Any, path: Sequence[str]) -> Any:
    for name in path:
        output = output.get(name) if isinstance(output, dict) else None
    return output


def _causes(answer: Answer, ranks: Sequence[int], wanted: Wanted) -> list[str]:
    """What completes "consistent with ...", at most two."""
    *path, name = wanted.where
    found = [_inside(_inside(answer.outputs[rank], path), [name]) for rank in ranks]
    if all(one is None for one in found):
        if not name.startswith("output"):
            return ["communication that autograd does not know of, so that no gradient comes back"]
        return []
    got = [array(one) for one in found if isinstance(one, Tensor)]
    if len(got) != len(ranks):
        return []
    parts = [part.numpy() for part in wanted.parts]
    values = [one.values.astype(np.float64) for one in got]
    near = _NEAR.get(got[0].dtype, 1e-3)
    if any(one.shape != part.shape for one, part in zip(values, parts, strict=True)):
        return []
    causes = [
        cause
        for cause, guess in wanted.guesses.items()
        if _all_near(values, [part.numpy() for part in guess], near)
    ]
    return list(dict.fromkeys(causes + _general(values, parts, near)))[:2]


def _general(values: list[_Values], parts: list[_Values], near: float) -> list[str]:
    """Mistakes that any communication can have."""
    n = len(parts)
    if n == 1:
        return []
    causes = []
    if _all_near(values, [n * part for part in parts], near):
        causes.append(f"a sum over the ranks of what all of them have alike: {n} times too large")
    if _all_near([n * one for one in values], parts, near):
        causes.append(f"a division by the number of ranks: 1/{n} of what is right")
    alike = _all_near(parts, [parts[0]] * n, near)
    if alike and _all_near([sum(values)], [parts[0]], near) and not _all_near(values, parts, near):  # type: ignore[list-item]
        causes.append("a sum over the ranks that is missing: each rank has its own summand")
    if not alike and all(
        any(_all_near([one], [part], near) for part in parts if part.shape == one.shape)
        for one in values
    ):
        causes.append("the parts of other ranks: each rank has a part, but not its own")
    if _all_near(values, [np.zeros_like(part) for part in parts], near):
        causes.append("nothing that arrives: it is zero on every rank")
    return causes


def _all_near(values: Sequence[_Values], others: Sequence[_Values], near: float) -> bool:
    """Whether they are the same, but for rounding; of zeros alone nothing can be told."""
    scale = max((float(np.abs(one).max(initial=0.0)) for one in (*values, *others)), default=0.0)
    return scale > 0 and all(
        one.shape == other.shape and bool(np.all(np.abs(one - other) <= near * scale))
        for one, other in zip(values, others, strict=True)
    )


def largest_error(actual: Tensor, exact: Tensor) -> float:
    """The largest absolute error of a tensor."""
    return float((actual.to(torch.float64) - exact).abs().max()) if exact.numel() else 0.0
