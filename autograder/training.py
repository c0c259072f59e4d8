"""Data-parallel training whose gradients are known exactly, and what wrong ones look like.

A training is data: which parameters there are, and which of them each rank uses when. Gradients are
whole numbers, and so are their means over the ranks, in every order of the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from autograder.compare import EPSILON, Array, mismatch
from autograder.failure import CheckFailed
from autograder.inputs import integers_by_rank
from autograder.judge import Answer, Case, Judge, array, tensor
from multirank import Facts, explain

Values = npt.NDArray[Any]
ROWS = 2  # of each rank's micro-batch
_FINE = 12  # 2, 3 and 4 ranks divide it
_MOST = {"bfloat16": 20}  # in units of 12: so many that a sum of four is still exact
_MOST_OTHERS = 2**12

_NEVER_COMES = "a bucket that waits for a gradient which never comes"
_LEFT_OUT = "a bucket without the gradients that were not used here"


@dataclass(frozen=True)
class Weight:
    """A parameter.

    name: such as "head.bias". same_as: the one that it is tied to; it is then the same parameter.
    """

    name: str
    shape: tuple[int, ...] = (8,)
    dtype: str = "float32"
    trainable: bool = True
    same_as: str | None = None

    @property
    def nbytes(self) -> int:
        dtype: torch.dtype = getattr(torch, self.dtype)
        return prod(self.shape) * dtype.itemsize

    def described(self) -> dict[str, Any]:
        """As the cases want it."""
        if self.same_as:
            return {"name": self.name, "same_as": self.same_as}
        return {
            "name": self.name,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "trainable": self.trainable,
        }


LAYERS = (
    Weight("embedding.weight", (6, 5)),
    Weight("body.weight", (7, 4)),
    Weight("body.bias", (11,)),
    Weight("head.weight", (4, 9)),
    Weight("head.bias", (8,)),
)


def distinct(weights: Sequence[Weight]) -> list[Weight]:
    """Without those that are tied to others."""
    return [one for one in weights if one.same_as is None]


def trainable(weights: Sequence[Weight]) -> list[Weight]:
    return [one for one in distinct(weights) if one.trainable]


def buckets_of(weights: Sequence[Weight], cap: float) -> list[list[Weight]]:
    """The buckets of partition_buckets, for a cap in bytes."""
    buckets: list[list[Weight]] = []
    for weight in reversed(trainable(weights)):
        last = buckets[-1] if buckets else []
        held = sum(one.nbytes for one in last)
        if not last or last[0].dtype != weight.dtype or held + weight.nbytes > cap:
            buckets.append([])
        buckets[-1].append(weight)
    return buckets


def megabytes(nbytes: float) -> float:
    """Bytes as a bucket's cap, in MiB."""
    return nbytes / 2**20


def everything(step: int, micro_batch: int, place: int) -> Collection[str]:
    """Nothing is unused."""
    return ()


@dataclass(frozen=True)
class Training:
    """What the ranks of a group do with a model in DistributedDataParallel.

    cap: bytes of a bucket. members: of a sub-group of `world_size` ranks; None: all.
    steps, micro_batches, calls: how many steps there are, micro-batches in each, and calls of the
        model in each of those.
    unused: by step, micro-batch and place in the group, the names of what is not used.
    keep: gradients are not set to None between the steps.
    interrupted: the step in which, before the last micro-batch, no_sync is left by an exception.
    seconds: that the forward of each layer declares as compute; its backward declares twice that.
    """

    weights: tuple[Weight, ...] = LAYERS
    world_size: int = 4
    members: tuple[int, ...] | None = None
    cap: float = 150
    steps: int = 2
    micro_batches: int = 1
    calls: int = 1
    unused: Callable[[int, int, int], Collection[str]] = everything
    keep: bool = False
    interrupted: int | None = None
    seconds: float = 0.0

    @property
    def group(self) -> tuple[int, ...]:
        """The global ranks that take part."""
        return self.members or tuple(range(self.world_size))

    @property
    def case(self) -> Case:
        return Case("ddp", "train", self.world_size, self.members)

    @property
    def facts(self) -> dict[str, str]:
        """What a student is told about it."""
        facts = {"world size": str(self.world_size), "bucket cap": f"{self.cap:g} bytes"}
        if self.members:
            facts["group"] = str(list(self.members))
        if self.micro_batches > 1:
            facts["micro-batches"] = str(self.micro_batches)
        return facts

    def users(self, name: str, step: int) -> list[int]:
        """The global ranks that use a parameter in a step."""
        names = {one.name for one in self.weights if name in (one.name, one.same_as)}
        return [
            rank
            for place, rank in enumerate(self.group)
            if any(
                names - set(self.unused(step, micro, place)) for micro in range(self.micro_batches)
            )
        ]

    def draw(self, rng: np.random.Generator) -> Drawn:
        """Inputs for every rank, and what its gradients are by itself."""
        by_rank = [self._constant(rng) for _ in self.group]
        drawn = Drawn(self)
        for step in range(self.steps):
            micro_batches: list[list[list[Any]]] = [[] for _ in self.group]
            own: list[dict[str, list[Values]]] = [{} for _ in self.group]
            for micro in range(self.micro_batches):
                calls: list[list[Any]] = [[] for _ in self.group]
                summed: list[dict[str, Values]] = [{} for _ in self.group]
                for _ in range(self.calls):
                    used = self._uses(rng, step, micro)
                    for place, uses in enumerate(used):
                        calls[place].append([[name, torch.from_numpy(v)] for name, v in uses])
                        for name, values in uses:
                            owner = self._owner(name)
                            gradient = values.mean(axis=0)
                            summed[place][owner] = summed[place].get(owner, 0) + gradient
                for place, batch in enumerate(calls):
                    micro_batches[place].append(batch)
                    for name, gradient in summed[place].items():
                        own[place].setdefault(name, []).append(gradient)
            for place, inputs in enumerate(by_rank):
                inputs["steps"].append(micro_batches[place])
            drawn.own.append(own)
        for rank, inputs in zip(self.group, by_rank, strict=True):
            drawn.inputs[rank] = inputs
        return drawn

    def _constant(self, rng: np.random.Generator) -> dict[str, Any]:
        """A rank's inputs, without the steps."""
        return {
            "parameters": [one.described() for one in self.weights],
            "values": initial_values(rng, self.weights),
            "cap": megabytes(self.cap),
            "rows": ROWS,
            "keep": self.keep,
            "interrupted": self.interrupted,
            "seconds": self.seconds,
            "steps": [],
        }

    def _uses(
        self, rng: np.random.Generator, step: int, micro: int
    ) -> list[list[tuple[str, Values]]]:
        """For each member, the names that one call of the model uses, and with which values."""
        used: list[list[tuple[str, Values]]] = [[] for _ in self.group]
        for weight in self.weights:
            owner = next(one for one in self.weights if one.name == self._owner(weight.name))
            most = _MOST.get(owner.dtype, _MOST_OTHERS)
            shape = (ROWS, *owner.shape)
            bound, multiple = most * _FINE, ROWS * _FINE  # so that the mean of the rows is exact
            drawn = integers_by_rank(
                rng, len(self.group), shape, "float64", -bound, bound, multiple
            )
            for place, values in enumerate(drawn):
                if weight.name not in self.unused(step, micro, place):
                    used[place].append((weight.name, values))
        return used

    def _owner(self, name: str) -> str:
        """The name of the parameter itself, where it is a tied one's."""
        return next(one.same_as or one.name for one in self.weights if one.name == name)


def initial_values(rng: np.random.Generator, weights: Sequence[Weight]) -> dict[str, torch.Tensor]:
    """Of the parameters by name: small whole numbers."""
    values = {}
    for one in distinct(weights):
        kind = np.float32 if one.dtype == "bfloat16" else one.dtype
        values[one.name] = tensor(rng.integers(-9, 10, one.shape).astype(kind), one.dtype)
    return values


@dataclass
class Drawn:
    """A training's inputs by global rank, and the gradients that each rank has by itself.

    own: own[step][place][name] is a list with the gradient of each micro-batch that has one.
    """

    training: Training
    inputs: list[dict[str, Any] | None] = field(init=False)
    own: list[list[dict[str, list[Values]]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.inputs = [None] * self.training.world_size

    def local(self, step: int, weight: Weight) -> list[Values | None]:
        """What p.grad of each member is at the end of a step's backwards, if none is reduced."""
        found: list[Values | None] = []
        before = self.mean(step - 1, weight) if self.training.keep and step else None
        for own in self.own[step]:
            parts = [*own.get(weight.name, []), *([] if before is None else [before])]
            found.append(np.asarray(sum(parts)) if parts else None)
        return found

    def mean(self, step: int, weight: Weight) -> Values | None:
        """What every member's gradient must be; None where nobody has one."""
        if not weight.trainable:
            return None
        local = self.local(step, weight)
        if all(one is None for one in local):
            return None
        return _mean(local, weight)


def _mean(local: Sequence[Values | None], weight: Weight) -> Values:
    zeros = np.zeros(weight.shape)
    return np.asarray(np.mean([zeros if one is None else one for one in local], axis=0))


# --- Judging ------------------------------------------------------------------------------------


def require_training(judge: Judge, *trainings: Training) -> list[tuple[Drawn, Answer]]:
    """All gradients of all steps must be the means over the ranks.

    trainings: all on the same ranks, one after another.

    Raises:
        CheckFailed: they are not, or it does not come to an end.
    """
    rng = judge.seed.generator()
    drawn = [training.draw(rng) for training in trainings]
    try:
        answers = judge.run(
            trainings[0].case,
            [one.inputs for one in drawn],
            facts=[training.facts for training in trainings],
        )
    except CheckFailed as failed:
        told = _unused_in_words(trainings[0])
        if told and "not written yet" not in failed.message:
            first_line = failed.message.partition("\n")[0]
            likely = _LEFT_OUT if "do not agree on the size" in first_line else _NEVER_COMES
            failed.message = f"{told}:\n{failed.message}"
            failed.causes = (
                ()
                if " raised" in first_line
                else (
                    f"consistent with {likely}, or with ranks that issue their buckets in "
                    "different orders",
                )
            )
        raise
    for one, answer in zip(drawn, answers, strict=True):
        judge.note(one.training.facts)
        require_gradients(one, answer)
    return list(zip(drawn, answers, strict=True))


def require_gradients(drawn: Drawn, answer: Answer) -> None:
    """All gradients of all steps must be the means over the ranks.

    Raises:
        CheckFailed: at the first that is not.
    """
    training = drawn.training
    held = {rank: answer.get(rank, "gradients", list) for rank in training.group}
    for step in range(training.steps):
        for weight in distinct(training.weights):
            found = [_gradient(rank, held[rank], step, weight) for rank in training.group]
            where = f"in step {step + 1} of {training.steps}, " if training.steps > 1 else ""
            users = training.users(weight.name, step)
            wrong = wrong_gradient(
                weight, training.group, users, found, drawn.mean(step, weight), where
            )
            if wrong:
                raise CheckFailed(wrong, causes=_causes(drawn, answer, step, weight, found))


def _gradient(rank: int, held: list[Any], step: int, weight: Weight) -> Values | None:
    """The gradient that a rank has; its dtype and shape are looked at here."""
    of_step = held[step] if step < len(held) else None
    if not isinstance(of_step, dict) or weight.name not in of_step:
        raise CheckFailed(f"rank {rank} gave no answer")
    return as_values(rank, weight, of_step[weight.name])


def as_values(rank: int, weight: Weight, found: object) -> Values | None:
    """A gradient as numbers.

    Raises:
        CheckFailed: it is of another shape or dtype than the parameter.
    """
    if found is None:
        return None
    if not isinstance(found, torch.Tensor):
        raise CheckFailed(f"rank {rank} gave no answer")
    dtype = str(found.dtype).removeprefix("torch.")
    if (tuple(found.shape), dtype) != (weight.shape, weight.dtype):
        raise CheckFailed(
            f"on rank {rank}, the gradient of `{weight.name}` has shape {tuple(found.shape)} and "
            f"dtype {dtype}, not those of the parameter"
        )
    return array(found).values.astype(np.float64)


def is_just(found: object, wanted: torch.Tensor) -> bool:
    """Whether what a rank gave is this tensor, with its dtype and shape."""
    return (
        isinstance(found, torch.Tensor)
        and (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        and torch.equal(found, wanted)
    )


def wrong_gradient(
    weight: Weight,
    group: Sequence[int],
    users: Sequence[int],
    found: Sequence[Values | None],
    mean: Values | None,
    where: str = "",
) -> str:
    """What is wrong with a parameter's gradient, in a sentence; empty where nothing is.

    users: the ranks that have used the parameter. found: by member. where: begins the sentence.
    """
    name = f"`{weight.name}`"
    idle = [rank for rank in group if rank not in users]
    for rank, own in zip(group, found, strict=True):
        if mean is None:
            if own is not None and not weight.trainable:
                return f"{where}on rank {rank}, {name} has got a gradient, but is not trainable"
            if own is not None and own.any():
                return (
                    f"{where}parameter {name} was used on no rank; on rank {rank} its gradient is "
                    "neither None nor zero"
                )
            continue
        note = f" ({name} was not used on {ranks_in_words(idle)})" if idle and users else ""
        if own is None:
            return (
                f"{where}parameter {name} has no gradient on rank {rank}{note}: its bucket was "
                "never reduced there"
            )
        exact = Array("float64", mean.shape, mean)
        if wrong := mismatch(Array("float64", own.shape, own), exact, None):
            return (
                f"{where}on rank {rank}, the gradient of {name} is not the mean over the ranks: "
                f"{wrong}{note}"
            )
    return ""


def ranks_in_words(ranks: Sequence[int]) -> str:
    """Such as "ranks 0 and 2"."""
    *others, last = map(str, ranks)
    return f"ranks {', '.join(others)} and {last}" if others else f"rank {last}"


def parameters_for_gradients(found: Sequence[Values | None], parameter: torch.Tensor) -> list[str]:
    """The cause of gradients that are the parameter, which is the same on all ranks."""
    values = array(parameter).values
    if not all(_same(one, values) for one in found):
        return []
    return [
        "consistent with the mean of the parameters, where that of their gradients was asked for"
    ]


def gradient_causes(
    group: Sequence[int],
    world_size: int,
    users: Sequence[int],
    found: Sequence[Values | None],
    local: Sequence[Values | None],
    *,
    received: Sequence[bool] | None = None,
    previous: Sequence[Values | None] = (),
    dtype: str = "float32",
) -> list[str]:
    """What a parameter's wrong gradients are consistent with, at most two sentences.

    found, local: by member, what they are, and what they are on each rank by itself.
    received: by member, whether it has communicated. previous: the right ones of earlier steps.
    """
    if any(one is None for one in found):
        return []
    shape = next(one.shape for one in found if one is not None)
    zeros = np.zeros(shape)
    given = [zeros if one is None else one for one in local]
    total, n = np.sum(given, axis=0), len(group)
    if len(users) not in (0, n) and all(_same(one, total / len(users)) for one in found):
        return [
            "consistent with a mean over the ranks that used the parameter, where one over all "
            "ranks was asked for"
        ]
    return explain(
        found,
        [total / n] * n,
        given,
        Facts(
            op="AVG",
            ranks=group,
            world_size=world_size,
            dtype=dtype,
            before=given,
            previous=[[one] * n for one in previous if one is not None],
            received=received,
        ),
    ).causes


def _causes(
    drawn: Drawn, answer: Answer, step: int, weight: Weight, found: Sequence[Values | None]
) -> list[str]:
    if drawn.mean(step, weight) is None:
        return []
    training = drawn.training
    local = drawn.local(step, weight)
    given = drawn.inputs[training.group[0]]
    assert given is not None
    if causes := parameters_for_gradients(found, given["values"][weight.name]):
        return causes
    if _unused_in_words(training) and all(
        _same(one, np.zeros(weight.shape) if own is None else own)
        for one, own in zip(found, local, strict=True)
    ):
        return [f"consistent with {_NEVER_COMES}"]
    if causes := _by_micro_batch(drawn, step, weight, found):
        return causes
    if causes := _sent_too_early(training.group, found, local):
        return causes
    return gradient_causes(
        training.group,
        training.world_size,
        training.users(weight.name, step),
        found,
        local,
        received=[bool(answer.trace.of_rank(rank)) for rank in training.group],
        previous=[drawn.mean(earlier, weight) for earlier in range(step)],
        dtype=weight.dtype,
    )


def _sent_too_early(
    group: Sequence[int], found: Sequence[Values | None], local: Sequence[Values | None]
) -> list[str]:
    """Where the mean lacks what some ranks, or all, would have put in."""
    given = {rank: own for rank, own in zip(group, local, strict=True) if own is not None}
    zeros = np.zeros_like(next(iter(given.values())))
    for count in range(len(given)):
        for early in combinations(given, len(given) - count):
            there = sum((own for rank, own in given.items() if rank not in early), zeros)
            if all(_same(one, there / len(group)) for one in found):
                where = f", on {ranks_in_words(early)}" if count else ""
                return [
                    f"consistent with a bucket that was sent before this gradient was there{where}"
                ]
    return []


def _by_micro_batch(
    drawn: Drawn, step: int, weight: Weight, found: Sequence[Values | None]
) -> list[str]:
    """What gradients look like where micro-batches are not added up on each rank and averaged."""
    parts = [own.get(weight.name, []) for own in drawn.own[step]]
    count = drawn.training.micro_batches
    if count == 1 or any(len(one) != count for one in parts):
        return []
    means = [np.mean([own[micro] for own in parts], axis=0) for micro in range(count)]
    readings: Mapping[str, Sequence[Values]] = {
        "only the first micro-batch having been averaged, as without no_sync": [means[0]]
        * len(parts),
        "only the last micro-batch having been averaged, without those inside no_sync": [means[-1]]
        * len(parts),
        "the gradients of the micro-batches inside no_sync staying on their ranks, and only those "
        "of the last one being averaged": [sum(own[:-1]) + means[-1] for own in parts],
        "the gradients being divided by the number of micro-batches as well": [
            np.asarray(sum(means) / count)
        ]
        * len(parts),
        "a bucket that was sent before the gradient of the last micro-batch was there": [
            np.asarray(sum(means[:-1]))
        ]
        * len(parts),
        "the last micro-batch not having been averaged": [
            sum(means[:-1]) + own[-1] for own in parts
        ],
    }
    return [
        f"consistent with {words}"
        for words, wanted in readings.items()
        if all(_same(one, other) for one, other in zip(found, wanted, strict=True))
    ][:1]


def _same(found: Values | None, wanted: Values) -> bool:
    return found is not None and bool(np.allclose(found, wanted, rtol=4 * EPSILON["float32"]))


def _unused_in_words(training: Training) -> str:
    """Which parameter was not used where, in the first step that has one; empty if all were."""
    for step in range(training.steps):
        for weight in trainable(training.weights):
            users = training.users(weight.name, step)
            if len(users) < len(training.group):
                idle = [rank for rank in training.group if rank not in users]
                return f"parameter `{weight.name}` was not used on {ranks_in_words(idle)}"
    return ""
