"""Data-parallel training against one process that has the whole batch: where SGD must end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from autograder.compare import Array, Tolerance, mismatch
from autograder.failure import CheckFailed
from autograder.judge import Answer, Case, Judge, array

Values = dict[str, torch.Tensor]  # by a parameter's name
Batch = tuple[torch.Tensor, torch.Tensor]  # inputs and targets

_LR, _STEPS, _ROWS = 0.25, 4, 3
_TOLERANCE = 1e-9  # float64, and numbers near 1


def require_same_as_one_process(judge: Judge, n: int) -> None:
    """The parameters after some steps of SGD must be those of one process.

    Raises:
        CheckFailed: they are not.
    """
    rng = judge.seed.generator(f"{n} ranks")
    shapes = {"0.weight": (6, 5), "0.bias": (6,), "2.weight": (3, 6), "2.bias": (3,)}
    values = [{name: _normal(rng, *shape) for name, shape in shapes.items()} for _ in range(n)]
    batches = [(_normal(rng, n * _ROWS, 5), _normal(rng, n * _ROWS, 3)) for _ in range(_STEPS)]
    inputs: list[dict[str, Any]] = [
        {
            "values": values[rank],
            "batches": [(x.chunk(n)[rank], y.chunk(n)[rank]) for x, y in batches],
            "cap": 300 / 2**20,
            "lr": _LR,
        }
        for rank in range(n)
    ]
    facts = {"world size": str(n), "steps": str(_STEPS)}
    (answer,) = judge.run(Case("ddp", "train_network", n), [inputs], facts=[facts])
    (expected,) = _train(values[:1], [batches])
    found = [{name: _held(answer, rank, name) for name in shapes} for rank in range(n)]
    for rank in range(n):
        for name, wanted in expected.items():
            if wrong := mismatch(array(found[rank][name]), _array(wanted), Tolerance(_TOLERANCE)):
                raise CheckFailed(
                    f"after {_STEPS} steps of SGD on {n} ranks, parameter `{name}` on rank {rank} "
                    f"is not what one process gets on the whole batch: {wrong}",
                    causes=_causes(values, [one["batches"] for one in inputs], found),
                )


def _held(answer: Answer, rank: int, name: str) -> torch.Tensor:
    """A parameter as a rank has it in the end."""
    held = answer.get(rank, "parameters", dict).get(name)
    if not isinstance(held, torch.Tensor):
        raise CheckFailed(f"rank {rank} gave no answer")
    return held


def _normal(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape))


def _array(values: torch.Tensor) -> Array:
    return Array("float64", tuple(values.shape), values.numpy())


def _train(
    starts: list[Values], batches: list[list[Batch]], *, averaged: bool = True, scale: float = 1.0
) -> list[Values]:
    """The parameters after SGD of some models, each from its own start, on its own batches.

    averaged: whether each gradient is the mean over the models. scale: of every gradient.
    """
    models = []
    for start in starts:
        models.append(nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double())
        models[-1].load_state_dict(start)
    for step in zip(*batches, strict=True):
        gradients = [
            torch.autograd.grad(nn.functional.mse_loss(model(data), targets), [*model.parameters()])
            for model, (data, targets) in zip(models, step, strict=True)
        ]
        means = [torch.stack(of_all).mean(dim=0) for of_all in zip(*gradients, strict=True)]
        for model, own in zip(models, gradients, strict=True):
            with torch.no_grad():
                for one, by in zip(model.parameters(), means if averaged else own, strict=True):
                    one.sub_(by, alpha=_LR * scale)
    return [{name: one.detach() for name, one in model.named_parameters()} for model in models]


def _causes(values: list[Values], batches: list[list[Batch]], found: Sequence[Values]) -> list[str]:
    """What wrong parameters are consistent with, at most one sentence."""
    n = len(values)
    same = [values[0]] * n
    readings: dict[str, Callable[[], list[Values]]] = {
        "sums of gradients, where means were asked for": lambda: _train(same, batches, scale=n),
        "gradients being divided by the number of ranks twice": lambda: _train(
            same, batches, scale=1 / n
        ),
        "a division by 2, where there are more ranks": lambda: _train(same, batches, scale=n / 2),
        "ranks that did not begin with the same parameters": lambda: _train(values, batches),
        "every rank training by itself, on its own rows": lambda: _train(
            same, batches, averaged=False
        ),
        "every rank training by itself, from its own parameters": lambda: _train(
            values, batches, averaged=False
        ),
    }
    return [
        f"consistent with {words}"
        for words, trained in readings.items()
        if n > 1 and _are(found, trained())
    ][:1]


def _are(found: Sequence[Values], wanted: Sequence[Values]) -> bool:
    return all(
        mismatch(array(one[name]), _array(other[name]), Tolerance(_TOLERANCE)) is None
        for one, other in zip(found, wanted, strict=True)
        for name in other
    )
