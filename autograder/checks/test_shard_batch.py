"""Checks of problem shard_batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from autograder.failure import CheckFailed
from autograder.judge import Case, Judge
from autograder.problem import problem
from autograder.training import is_just

_CASE = Case("ddp", "shard_batch", world_size=1, process_group=False)


@problem("shard_batch", share="9/20")
def test_batches_that_divide(judge: Judge) -> None:
    """Batches that the ranks divide, for 1 to 8 ranks."""
    rng = judge.seed.generator()
    calls = [(n, (n * int(rng.integers(2, 7)), 3), "float32") for n in (1, 2, 3, 4, 8)]
    require_parts(judge, calls)


@problem("shard_batch", share="2/5")
def test_remainder(judge: Judge) -> None:
    """Batches that the ranks do not divide, and with fewer rows than there are ranks."""
    rng = judge.seed.generator()
    calls = [
        (n, (n * int(rng.integers(2, 7)) + rest, 2), "float32")
        for n, rest in ((3, 2), (4, 3), (4, 2), (2, 1), (4, 1), (7, 5))
    ]
    require_parts(judge, [*calls, (4, (3, 2), "float32"), (8, (1, 2), "float32")])


@problem("shard_batch", share="3/20", kind="edges")
def test_dtypes_and_dimensions(judge: Judge) -> None:
    """Integers, one and three dimensions, a batch without rows; the batch is as it was."""
    rows = 11 + 12 * int(judge.seed.generator().integers(3))
    calls = [
        (4, (rows,), "int64"),
        (3, (rows, 2, 3), "float64"),
        (3, (0, 2), "float32"),
        (2, (rows, 0), "int64"),
    ]
    require_parts(judge, calls)


Call = tuple[int, tuple[int, ...], str]  # world size, shape, dtype


def require_parts(judge: Judge, calls: Sequence[Call]) -> None:
    """Every rank's part of each batch.

    Raises:
        CheckFailed: one is not right, or the batch has changed.
    """
    rng = judge.seed.generator("batches")
    batches = [
        torch.from_numpy(rng.permutation(int(np.prod(shape))).reshape(shape) + 1).to(
            getattr(torch, dtype)
        )
        for _, shape, dtype in calls
    ]
    inputs = {"batches": batches, "world_sizes": [n for n, _, _ in calls]}
    (answer,) = judge.run(_CASE, [[inputs]])
    found, after = answer.get(0, "parts", list), answer.get(0, "batches", list)
    for place, ((n, _, dtype), batch) in enumerate(zip(calls, batches, strict=True)):
        told = f"a batch of shape {tuple(batch.shape)}, {dtype}, on {n} ranks"
        judge.note({"world size": str(n), "shape": str(tuple(batch.shape)), "dtype": dtype})
        parts = found[place] if place < len(found) and isinstance(found[place], list) else []
        if len(parts) != n or not all(isinstance(one, torch.Tensor) for one in parts):
            raise CheckFailed("rank 0 gave no answer")
        wanted = torch.tensor_split(batch, n)
        for rank, part in enumerate(parts):
            if part.dtype != batch.dtype or part.shape[1:] != batch.shape[1:] or not part.dim():
                raise CheckFailed(
                    f"{told}: the part of rank {rank} has another shape or dtype than the batch"
                )
        for rank, part in enumerate(parts):
            if not torch.equal(part, wanted[rank]):
                right = len(part) == len(wanted[rank])
                raise CheckFailed(
                    f"{told}: the part of rank {rank} is not right; it has "
                    + ("other rows" if right else f"{len(part)} rows"),
                    causes=likely_causes(batch, parts),
                )
        if place >= len(after) or not is_just(after[place], batch):
            raise CheckFailed(f"{told}: the batch itself has been changed")


def likely_causes(batch: torch.Tensor, parts: Sequence[torch.Tensor]) -> list[str]:
    """What wrong parts are consistent with, at most one sentence."""
    n, rows = len(parts), len(batch)
    each, rest = divmod(rows, n)
    cuts = {
        "the remainder being dropped": [
            batch[rank * each : (rank + 1) * each] for rank in range(n)
        ],
        "all of the remainder going to the last rank": [
            batch[rank * each : (rank + 1) * each if rank < n - 1 else rows] for rank in range(n)
        ],
        "the remainder going to the last ranks": _cut(
            batch, [each + (rank >= n - rest) for rank in range(n)]
        ),
        "parts of the rounded-up size, so that the last ranks have too few rows": [
            batch[rank * -(-rows // n) : (rank + 1) * -(-rows // n)] for rank in range(n)
        ],
        "every n-th row, where rows that follow one another were asked for": [
            batch[rank::n] for rank in range(n)
        ],
        "every rank having the whole batch": [batch] * n,
        "every rank having the first part": [batch[: len(parts[0])]] * n,
    }
    return [
        f"consistent with {words}"
        for words, wanted in cuts.items()
        if all(torch.equal(one, other) for one, other in zip(parts, wanted, strict=True))
    ][:1]


def _cut(batch: torch.Tensor, sizes: Sequence[int]) -> list[torch.Tensor]:
    return list(torch.split(batch, list(sizes)))
