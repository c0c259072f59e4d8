"""Data-parallel training against one process that has the whole batch: where SGD must end."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from autograder.compare import Array, Tolerance, mismatch
from autograder.failure import CheckFailed
from autograder.judge import Case, Judge, array

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
    inputs = [
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
    expected = _one_process(values[0], batches)
    for rank in range(n):
        held = answer.get(rank, "parameters", dict)
        for name, wanted in expected.items():
            found = held.get(name)
            if not isinstance(found, torch.Tensor):
                raise CheckFailed(f"rank {rank} gave no answer")
            if wrong := mismatch(array(found), _array(wanted), Tolerance(_TOLERANCE)):
                raise CheckFailed(
                    f"after {_STEPS} steps of SGD on {n} ranks, parameter `{name}` on rank {rank} "
                    f"is not what one process gets on the whole batch: {wrong}",
                    causes=_training_causes(values, batches, answer.outputs, name),
                )


def _normal(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape))


def _array(values: torch.Tensor) -> Array:
    return Array("float64", tuple(values.shape), values.numpy())


def _one_process(
    values: Values,
    batches: list[Batch],
    scale: float = 1.0,
) -> Values:
    """The parameters after SGD on whole batches. scale: of every gradient."""
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    model.load_state_dict(values)
    parameters = list(model.parameters())
    for data, targets in batches:
        loss = nn.functional.mse_loss(model(data), targets)
        with torch.no_grad():
            for one, gradient in zip(
                parameters, torch.autograd.grad(loss, parameters), strict=True
            ):
                one.sub_(gradient, alpha=_LR * scale)
    return {name: one.detach() for name, one in model.named_parameters()}


def _training_causes(
    values: list[Values],
    batches: list[Batch],
    outputs: list[Any],
    name: str,
) -> list[str]:
    """What wrong parameters are consistent with, at most one sentence."""
    n = len(outputs)
    found = [output["parameters"][name] for output in outputs]

    def is_of(scale: float) -> bool:
        wanted = _one_process(values[0], batches, scale)[name]
        return all(torch.allclose(one, wanted, rtol=1e-9) for one in found)

    if n > 1 and is_of(n):
        return ["consistent with sums of gradients, where means were asked for"]
    if n > 1 and is_of(1 / n):
        return ["consistent with gradients being divided by the number of ranks twice"]
    if n > 2 and is_of(n / 2):
        return ["consistent with a division by 2, where there are more ranks"]
    alone = [
        _one_process(values[rank], [(x.chunk(n)[rank], y.chunk(n)[rank]) for x, y in batches])[name]
        for rank in range(n)
    ]
    if all(torch.allclose(one, own, rtol=1e-9) for one, own in zip(found, alone, strict=True)):
        return ["consistent with every rank training by itself, on its own rows"]
    moved = [one - values[rank][name] for rank, one in enumerate(found)]
    if n > 1 and not torch.equal(found[0], found[1]) and len(moved) == n:
        return ["consistent with ranks that did not begin with the same parameters"]
    return []
