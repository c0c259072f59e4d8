"""Checks of problem all_reduce_gradients, naive and flat."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from autograder.failure import CheckFailed
from autograder.inputs import exact_bound, integers_by_rank
from autograder.judge import Answer, Case, Judge, tensor
from autograder.overlap import issued_in, require_messages
from autograder.problem import problem
from autograder.training import (
    LAYERS,
    Values,
    Weight,
    as_values,
    distinct,
    gradient_causes,
    ranks_in_words,
    trainable,
    wrong_gradient,
)

MIXED = (
    Weight("embedding.weight", (6, 5), "bfloat16"),
    Weight("norm.weight", (9,)),
    Weight("body.weight", (7, 4), "bfloat16"),
    Weight("body.bias", (11,), "float64"),
    Weight("head.weight", (4, 9)),
)
FROZEN_AND_TIED = (
    LAYERS[0],
    replace(LAYERS[1], trainable=False),
    LAYERS[2],
    Weight("head.weight", same_as="embedding.weight"),
    replace(LAYERS[4], trainable=False),
)


@dataclass(frozen=True)
class Reduction:
    """One call. unused: by place in the group, the names whose gradient is None there."""

    flat: bool
    world_size: int = 4
    weights: Sequence[Weight] = LAYERS
    members: tuple[int, ...] | None = None
    unused: Mapping[int, Collection[str]] = field(default_factory=dict)
    given: bool = False

    @property
    def group(self) -> tuple[int, ...]:
        return self.members or tuple(range(self.world_size))

    def users(self, name: str) -> list[int]:
        """The global ranks that have a gradient of a parameter."""
        return [
            rank for place, rank in enumerate(self.group) if name not in self.unused.get(place, ())
        ]

    def __str__(self) -> str:
        return f"all_reduce_gradients({'flat=True' if self.flat else ''})"


@problem("all_reduce_gradients", share="1/5")
def test_naive(judge: Judge) -> None:
    """The mean over the ranks, for 1 to 4 ranks."""
    for n in (4, 2, 3, 1):
        require_means(judge, Reduction(flat=False, world_size=n))


@problem("all_reduce_gradients", share="1/5")
def test_flat(judge: Judge) -> None:
    """The same with flat=True."""
    for n in (4, 2, 3, 1):
        require_means(judge, Reduction(flat=True, world_size=n))


@problem("all_reduce_gradients", share="1/10")
def test_unused_on_a_rank(judge: Judge) -> None:
    """Parameters that some ranks have not used count as zero there."""
    unused = {1: ("head.bias",), 2: ("head.bias", "body.weight")}
    for flat in (False, True):
        require_means(judge, Reduction(flat, 3, unused=unused))


@problem("all_reduce_gradients", share="1/10")
def test_mixed_dtypes(judge: Judge) -> None:
    """Parameters of three dtypes; each gradient keeps its own."""
    for flat in (False, True):
        require_means(judge, Reduction(flat, 4, MIXED))


@problem("all_reduce_gradients", share="1/20")
def test_given_all_reduce(judge: Judge) -> None:
    """Everything goes through the all_reduce that it is given."""
    for flat in (False, True):
        call = Reduction(flat, 3, given=True)
        answer = require_means(judge, call)
        for rank in call.group:
            issued = len(issued_in(answer.trace, rank, "step"))
            calls = answer.get(rank, "calls", int)
            if calls == 0 or calls != issued:
                raise CheckFailed(
                    f"{call}, on rank {rank}: the all_reduce that it was given was called {calls} "
                    f"times, and torch.distributed {issued} times; all must go through it"
                )


@problem("all_reduce_gradients", share="1/20", kind="edges")
def test_frozen_and_tied(judge: Judge) -> None:
    """Parameters that are not trainable, and tied weights."""
    for flat in (False, True):
        require_means(judge, Reduction(flat, 3, FROZEN_AND_TIED))


@problem("all_reduce_gradients", share="1/20", kind="edges")
def test_sub_group(judge: Judge) -> None:
    """In a sub-group, and divided by its size."""
    for flat in (False, True):
        require_means(judge, Reduction(flat, 4, members=(0, 2, 3)))


@problem("all_reduce_gradients", share="1/20", kind="edges")
def test_unused_everywhere(judge: Judge) -> None:
    """A parameter that no rank has used: None or zero."""
    unused = dict.fromkeys(range(3), ("body.bias",))
    for flat in (False, True):
        require_means(judge, Reduction(flat, 3, unused=unused))


@problem("all_reduce_gradients", share="1/5", kind="cost")
def test_calls_and_bytes(judge: Judge) -> None:
    """The bytes of the gradients, in one call for each parameter; flat, for each dtype."""
    for flat in (False, True):
        call = Reduction(flat, 3, (*MIXED, *LAYERS[2:4]) if flat else FROZEN_AND_TIED)
        call = replace(call, weights=_renamed(call.weights))
        answer = require_means(judge, call)
        weights = trainable(call.weights)
        least = len({one.dtype for one in weights}) if flat else len(weights)
        why = "one for each dtype" if flat else "one for each trainable parameter"
        for rank in call.group:
            sent = issued_in(answer.trace, rank, "step")
            require_messages(f"{call}, on rank {rank}", sent, call.weights, least, why)


def _renamed(weights: Sequence[Weight]) -> list[Weight]:
    """With the first of each name alone."""
    return list({one.name: one for one in reversed(weights)}.values())[::-1]


def require_means(judge: Judge, call: Reduction) -> Answer:
    """All gradients must be the means over the ranks.

    Raises:
        CheckFailed: one is not.
    """
    rng = judge.seed.generator(str(call))
    n = len(call.group)
    local: dict[str, list[Values | None]] = {}
    inputs: list[dict[str, Any] | None] = [None] * call.world_size
    for rank in call.group:
        inputs[rank] = {
            "parameters": [one.described() for one in call.weights],
            "values": {
                one.name: torch.zeros(one.shape, dtype=getattr(torch, one.dtype))
                for one in distinct(call.weights)
            },
            "gradients": {},
            "flat": call.flat,
            "given": call.given,
        }
    for one in trainable(call.weights):
        bound = min(exact_bound(one.dtype, n, "avg", 12), 12 * 2**14)
        drawn = integers_by_rank(rng, n, one.shape, one.dtype, -bound, bound, 12)
        users = call.users(one.name)
        local[one.name] = [
            own.astype(np.float64) if rank in users else None
            for rank, own in zip(call.group, drawn, strict=True)
        ]
        for rank, own in zip(call.group, drawn, strict=True):
            given = inputs[rank]
            assert given is not None
            given["gradients"][one.name] = tensor(own, one.dtype) if rank in users else None
    facts = {"world size": str(call.world_size), "flat": str(call.flat)}
    facts |= {"group": str(list(call.members))} if call.members else {}
    case = Case("ddp", "all_reduce_gradients", call.world_size, call.members)
    try:
        (answer,) = judge.run(case, [inputs], facts=[facts])
    except CheckFailed as failed:
        _add_unused(call, failed)
        raise
    for one in distinct(call.weights):
        _require_mean(call, one, local.get(one.name, [None] * n), answer)
    return answer


def _add_unused(call: Reduction, failed: CheckFailed) -> None:
    """Says which parameters were unused, where it does not come to an end."""
    if not call.unused or "not written yet" in failed.message:
        return
    name = next(name for names in call.unused.values() for name in names)
    idle = [rank for rank in call.group if rank not in call.users(name)]
    failed.message = (
        f"parameter `{name}` was not used on {ranks_in_words(idle)}, so p.grad is None there:\n"
        f"{failed.message}"
    )
    failed.causes = (
        "consistent with a parameter that is left out, or not provided for, where its gradient is "
        "None: all ranks must issue the same calls",
    )


def _require_mean(
    call: Reduction, one: Weight, local: Sequence[Values | None], answer: Answer
) -> None:
    found = [
        as_values(rank, one, answer.get(rank, "gradients", dict).get(one.name))
        for rank in call.group
    ]
    mean = None
    if any(own is not None for own in local):
        zeros = np.zeros(one.shape)
        mean = np.asarray(np.mean([zeros if own is None else own for own in local], axis=0))
    users = call.users(one.name)
    if wrong := wrong_gradient(one, call.group, users, found, mean):
        causes = gradient_causes(
            call.group,
            call.world_size,
            users,
            found,
            local,
            received=[bool(issued_in(answer.trace, rank, "step")) for rank in call.group],
            dtype=one.dtype,
        )
        raise CheckFailed(f"{call}: {wrong}", causes=causes if mean is not None else [])
