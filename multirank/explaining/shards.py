"""What wrong parts of a tensor are consistent with, where the ranks share in a computation.

Each rank should have the whole of something, the same as all others, or a part of it of its own.
Read all together, wrong ones say which communication is wrong: they are n times too large, add up
to what is right, or are another rank's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

# What rounding may make of the largest element.
_NEAR = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
_Parts = Sequence[Tensor]


def explain_shards(
    actual: Sequence[Tensor | None],
    expected: _Parts,
    guesses: Mapping[str, _Parts] | None = None,
) -> list[str]:
    """What the ranks' parts look like: at most two causes, most likely first.

    Args:
        actual: what each rank has; None where there is nothing.
        expected: what each should have.
        guesses: what particular mistakes would lead to, by what completes "consistent with ...".

    Returns:
        what completes "consistent with ..."; nothing where all is right, or nothing is known.
    """
    parts = [part for part in actual if part is not None]
    if not parts:
        return ["a communication that autograd does not know of: nothing comes back through it"]
    if len(parts) < len(expected):
        return []
    near = _NEAR.get(parts[0].dtype, 1e-3)
    found, right = [part.double() for part in parts], [part.double() for part in expected]
    if _alike(found, right, near) or any(
        one.shape != other.shape for one, other in zip(found, right, strict=True)
    ):
        return []
    causes = [
        cause
        for cause, guess in (guesses or {}).items()
        if _alike(found, [one.double() for one in guess], near)
    ]
    return (causes + _general(found, right, near))[:2]


def _general(found: _Parts, right: _Parts, near: float) -> list[str]:
    """What any communication can have wrong."""
    n = len(right)
    if n == 1:
        return []
    whole = _alike(right, [right[0]] * n, near)
    causes = []
    if _alike(found, [n * one for one in right], near):
        causes.append(f"a sum over the ranks of what all of them have alike: {n} times too large")
    if _alike([n * one for one in found], right, near):
        causes.append(f"a division by the number of ranks: 1/{n} of what is right")
    elif whole and _alike([torch.stack(list(found)).sum(0)], right[:1], near):
        causes.append("a sum over the ranks that is missing: each rank has its own summand")
    if not whole and all(any(_alike([one], [other], near) for other in right) for one in found):
        causes.append("the parts of other ranks: each rank has a part, but some not their own")
    return causes


def _alike(parts: _Parts, others: _Parts, near: float) -> bool:
    """Whether they are the same but for rounding. Of zeros alone nothing can be told."""
    scale = max((float(one.abs().max()) for one in (*parts, *others) if one.numel()), default=0.0)
    return scale > 0 and all(
        one.shape == other.shape and bool(((one - other).abs() <= near * scale).all())
        for one, other in zip(parts, others, strict=True)
    )
