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
    initial_values,
    parameters_for_gradients,
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

    flat: bool = False
    world_size: int = 4
    weights: Sequence[Weight] = LAYERS
    members: tuple[int, ...] | None = None
    unused: Mapping[int, Collection[str]] = field(default_factory=dict)
    given: bool = False

    @property
    def group(self) -> tuple[int, ...]:
        return self.members or tuple(range(self.world_size))

    @property
    def facts(self) -> dict[str, str]:
        """What a student is told about it."""
        facts = {"world size": str(self.world_size), "flat": str(self.flat)}
        return facts | ({"group": str(list(self.members))} if self.members else {})

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
        require_means(judge, [Reduction(world_size=n)])


@problem("all_reduce_gradients", share="1/5")
def test_flat(judge: Judge) -> None:
    """The same with flat=True."""
    for n in (4, 2, 3, 1):
        require_means(judge, [Reduction(flat=True, world_size=n)])


@problem("all_reduce_gradients", share="1/10")
def test_unused_on_a_rank(judge: Judge) -> None:
    """Parameters that some ranks have not used count as zero there."""
    unused = {1: ("head.bias",), 2: ("head.bias", "body.weight")}
    require_means(judge, both(Reduction(world_size=3, unused=unused)))


@problem("all_reduce_gradients", share="1/10")
def test_mixed_dtypes(judge: Judge) -> None:
    """Parameters of three dtypes; each gradient keeps its own."""
    require_means(judge, both(Reduction(weights=MIXED)))


@problem("all_reduce_gradients", share="1/20")
def test_given_all_reduce(judge: Judge) -> None:
    """Everything goes through the all_reduce that it is given."""
    calls = both(Reduction(world_size=3, given=True))
    for call, answer in zip(calls, require_means(judge, calls), strict=True):
        for rank in call.group:
            issued = len(issued_in(answer.trace, rank, "step"))
            times = answer.get(rank, "calls", int)
            if times == 0 or times != issued:
                raise CheckFailed(
                    f"{call}, on rank {rank}: the all_reduce that it was given was called {times} "
                    f"times, and torch.distributed {issued} times; all must go through it"
                )


@problem("all_reduce_gradients", share="1/20", kind="edges")
def test_frozen_and_tied(judge: Judge) -> None:
    """Parameters that are not trainable, and tied weights."""
    require_means(judge, both(Reduction(world_size=3, weights=FROZEN_AND_TIED)))


@problem("all_reduce_gradients", share="1/20", kind="edges")
def test_sub_group(judge: Judge) -> None:
    """In a sub-group, and divided by its size."""
    require_means(judge, both(Reduction(members=(0, 2, 3))))


@problem("all_reduce_gradients", share="1/20", kind="edges")
def test_unused_everywhere(judge: Judge) -> None:
    """A parameter that no rank has used: None or zero."""
    unused = dict.fromkeys(range(3), ("body.bias",))
    require_means(judge, both(Reduction(world_size=3, unused=unused)))


@problem("all_reduce_gradients", share="1/5", kind="cost")
def test_calls_and_bytes(judge: Judge) -> None:
    """The bytes of the gradients, in one call for each parameter; flat, for each dtype."""
    calls = [
        Reduction(world_size=3, weights=FROZEN_AND_TIED),
        Reduction(flat=True, world_size=3, weights=(*MIXED, Weight("head.bias", (8,)))),
    ]
    for call, answer in zip(calls, require_means(judge, calls), strict=True):
        weights = trainable(call.weights)
        least = len({one.dtype for one in weights}) if call.flat else len(weights)
        why = "one for each dtype" if call.flat else "one for each trainable parameter"
        for rank in call.group:
            sent = issued_in(answer.trace, rank, "step")
            require_messages(f"{call}, on rank {rank}", sent, call.weights, least, why)


def both(call: Reduction) -> list[Reduction]:
    """Naive and flat."""
    return [call, replace(call, flat=True)]


Local = dict[str, list[Values | None]]  # by name, for each member its own gradient


def require_means(judge: Judge, calls: Sequence[Reduction]) -> list[Answer]:
    """All gradients must be the means over the ranks. The calls are made in one world.

    Raises:
        CheckFailed: one is not.
    """
    rng = judge.seed.generator(str(calls))
    drawn = [_draw(call, rng) for call in calls]
    first = calls[0]
    case = Case("ddp", "all_reduce_gradients", first.world_size, first.members)
    try:
        answers = judge.run(
            case, [inputs for inputs, _ in drawn], facts=[call.facts for call in calls]
        )
    except CheckFailed as failed:
        _add_unused(first, failed)
        raise
    for call, (inputs, local), answer in zip(calls, drawn, answers, strict=True):
        judge.note(call.facts)
        given = inputs[call.group[0]]
        assert given is not None
        for one in distinct(call.weights):
            own = local.get(one.name, [None] * len(call.group))
            _require_mean(call, one, given["values"][one.name], own, answer)
    return answers


def _draw(call: Reduction, rng: np.random.Generator) -> tuple[list[dict[str, Any] | None], Local]:
    """Each rank's inputs, and what its gradients are in them."""
    n = len(call.group)
    local: Local = {}
    gradients: list[dict[str, Any]] = [{} for _ in call.group]
    for one in trainable(call.weights):
        bound = min(exact_bound(one.dtype, n, "avg", 12), 12 * 2**14)
        values = integers_by_rank(rng, n, one.shape, one.dtype, -bound, bound, 12)
        users = call.users(one.name)
        local[one.name] = [
            own.astype(np.float64) if rank in users else None
            for rank, own in zip(call.group, values, strict=True)
        ]
        for rank, own, given in zip(call.group, values, gradients, strict=True):
            given[one.name] = tensor(own, one.dtype) if rank in users else None
    parameters = initial_values(rng, call.weights)  # the same everywhere, as in training
    inputs: list[dict[str, Any] | None] = [None] * call.world_size
    for rank, given in zip(call.group, gradients, strict=True):
        inputs[rank] = {
            "parameters": [one.described() for one in call.weights],
            "values": parameters,
            "gradients": given,
            "flat": call.flat,
            "given": call.given,
        }
    return inputs, local


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
    call: Reduction,
    one: Weight,
    parameter: torch.Tensor,
    local: Sequence[Values | None],
    answer: Answer,
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
        causes = parameters_for_gradients(found, parameter) or gradient_causes(
            call.group,
            call.world_size,
            users,
            found,
            local,
            received=[bool(issued_in(answer.trace, rank, "step")) for rank in call.group],
            dtype=one.dtype,
        )
        raise CheckFailed(f"{call}: {wrong}", causes=causes if mean is not None else [])
