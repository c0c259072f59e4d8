"""Checks of problem partition_layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autograder.failure import CheckFailed
from autograder.judge import Case, Judge
from autograder.pipeline import require_refusals
from autograder.problem import problem


@problem("partition_layers", share="17/20")
def test_partition(judge: Judge) -> None:
    """Every layer once, in order, in parts of almost the same size."""
    rng = judge.seed.generator()
    calls = [(layers, stages) for stages in range(1, 7) for layers in range(stages, 3 * stages + 2)]
    calls += [(int(rng.integers(64, 200)), int(rng.integers(5, 64))) for _ in range(8)]
    _require_partitions(judge, calls)


def _require_partitions(judge: Judge, calls: Sequence[tuple[int, int]]) -> None:
    case = Case("pipeline_parallel", "partitions", 1, process_group=False)
    (answer,) = judge.run(case, [[{"calls": [list(call) for call in calls]}]])
    found = answer.plain(0, "found")
    if len(found) != len(calls):
        raise CheckFailed("rank 0 gave no answer")
    for (layers, stages), parts in zip(calls, found, strict=True):
        _require_parts(f"partition_layers({layers}, {stages})", layers, stages, parts)


def _require_parts(what: str, layers: int, stages: int, parts: Any) -> None:
    if not isinstance(parts, list) or len(parts) != stages:
        raise CheckFailed(f"{what} does not give one range for each stage")
    if not all(isinstance(part, list) for part in parts):
        raise CheckFailed(f"{what} gives something that is no range")
    given = [layer for part in parts for layer in part]
    if missing := [layer for layer in range(layers) if layer not in given]:
        last = missing == list(range(missing[0], layers))
        which = "the last layers are" if last else f"layer {missing[0]} is"
        raise CheckFailed(f"{what}: {which} on no stage")
    if len(given) > layers:
        raise CheckFailed(f"{what}: a layer is on two stages, or there is no such layer")
    if given != list(range(layers)):
        raise CheckFailed(f"{what}: the layers are not in order, from stage to stage")
    sizes = [len(part) for part in parts]
    if max(sizes) - min(sizes) > 1:
        raise CheckFailed(
            f"{what}: the stages have from {min(sizes)} to {max(sizes)} layers; they must differ "
            "by at most one"
        )


@problem("partition_layers", share="3/20", kind="edges")
def test_refusals(judge: Judge) -> None:
    """As many layers as stages, one stage; fewer layers than stages raise ValueError."""
    _require_partitions(judge, [(7, 3), (4, 4), (5, 1)])
    require_refusals(
        judge,
        [
            ("partition_layers", [3, 4], "fewer layers than stages"),
            ("partition_layers", [3, 0], "no stages"),
        ],
    )
