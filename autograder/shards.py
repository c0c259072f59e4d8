"""What every rank of a group must have of a tensor, compared rank by rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from autograder.agreement import difference
from autograder.compare import Array, float_tolerance
from autograder.failure import CheckFailed
from autograder.judge import Answer
from multirank import explain_shards

Parts = Sequence[Tensor]


@dataclass(frozen=True, eq=False)
class Wanted:
    """What the ranks must have.

    where: keys that lead to it in a rank's answer. what: its name, for the student.
    dtype: by torch's name. parts: for each member of the group, in float64.
    error: the largest error of the same computation on one device in this dtype; None: the numbers
        are such that every order of the sums is exact, and equality is asked for.
    guesses: what some mistakes lead to, by what completes "consistent with ...".
    scale: the largest of what it is computed with; what is all but zero is rounded as that is.
    """

    where: tuple[str, ...]
    what: str
    dtype: str
    parts: Parts
    error: float | None = None
    guesses: Mapping[str, Parts] = field(default_factory=dict)
    scale: float = 0.0


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
            scale = max(wanted.scale, float(part.abs().max()) if part.numel() else 0.0)
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
    held = [_inside(answer.outputs[rank], path) for rank in ranks]
    found = [one.get(name) if isinstance(one, dict) else None for one in held]
    real = [one if isinstance(one, Tensor) and not one.is_complex() else None for one in found]
    return explain_shards(real, wanted.parts, wanted.guesses)


def largest_error(actual: Tensor, exact: Tensor) -> float:
    """The largest absolute error of a tensor."""
    return float((actual.to(torch.float64) - exact).abs().max()) if exact.numel() else 0.0
