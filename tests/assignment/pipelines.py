"""What runs on the ranks for the tests of pipeline_parallel.py; it travels to them as `calls.py`.

The model is `layers(kind)`, the same on every rank and in the test's own process.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

import multirank

WIDTHS = (4, 5, 6, 7, 3)
CUTS = {1: (0, 4), 2: (0, 1, 4), 3: (0, 1, 2, 4), 4: (0, 1, 2, 3, 4)}  # where stages begin
TOKENS, WORDS = 3, 11
Order = str  # such as "F0 F1 B0 B1"


class Swapped(nn.Module):
    """Swaps the last two dimensions: its output does not lie in memory as it is counted."""

    def forward(self, input: Tensor) -> Tensor:
        return input.transpose(1, 2)


def layers(kind: str = "plain") -> list[nn.Module]:
    """Four layers, each with another width. "tokens": the first one takes ids of words."""
    torch.manual_seed(0)
    made: list[nn.Module] = [
        nn.Sequential(nn.Linear(WIDTHS[i], WIDTHS[i + 1]), nn.Tanh()) for i in range(4)
    ]
    if kind == "tokens":
        made[0] = nn.Sequential(nn.Embedding(WORDS, TOKENS), Swapped())
        made[1] = nn.Linear(TOKENS, WIDTHS[2])
    if kind == "frozen":
        made[0].requires_grad_(False)
    return [layer.double() for layer in made]


def batch(kind: str, sizes: Sequence[int]) -> tuple[list[Tensor], list[Tensor]]:
    """Micro-batches, and what they should lead to."""
    torch.manual_seed(1)
    targets = [torch.randn(n, TOKENS, WIDTHS[-1], dtype=torch.float64) for n in sizes]
    if kind == "tokens":
        return [torch.randint(WORDS, (n, TOKENS)) for n in sizes], targets
    return [torch.randn(n, TOKENS, WIDTHS[0], dtype=torch.float64) for n in sizes], targets


def shape_into(kind: str, layer: int) -> tuple[int, ...]:
    """Of what goes into a layer, for one sample."""
    return (TOKENS, TOKENS) if kind == "tokens" and layer == 1 else (TOKENS, WIDTHS[layer])


def _reference(tensor: Tensor) -> Any:
    """A reference to its memory that does not keep it."""
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


class Watched(nn.Module):
    """Layers that declare what they take, and count of how many inputs the memory is in use."""

    def __init__(self, inside: Sequence[nn.Module], seconds: tuple[float, float]) -> None:
        super().__init__()
        self.inside = nn.Sequential(*inside)
        self.seconds = seconds
        self.calls = 0
        self.held: list[int] = []
        self._memory: list[Any] = []
        gc.freeze()  # so that a collection has nothing old to go through

    def forward(self, input: Tensor) -> Tensor:
        self.calls += 1
        self._memory.append(_reference(input))
        gc.collect()
        self.held.append(sum(not one.expired() for one in self._memory))
        multirank.compute("F", self.seconds[0])
        output: Tensor = self.inside(input)
        if output.requires_grad:
            output.register_hook(self._declare_backward)  # type: ignore[no-untyped-call]
        return output

    def _declare_backward(self, _: Tensor) -> None:
        multirank.compute("B", self.seconds[1])


def _stage(
    pipeline: Any, kind: str, index: int, stages: int, seconds: tuple[float, float]
) -> tuple[Any, Watched]:
    cuts = CUTS[stages]
    module = Watched(layers(kind)[cuts[index] : cuts[index + 1]], seconds)
    shape = shape_into(kind, cuts[index])
    return pipeline.PipelineStage(module, index, stages, shape, torch.float64), module


def _gradients(module: nn.Module) -> list[Tensor | None]:
    return [one.grad for one in module.parameters()]


def _module(package: str, module: str, name: str) -> Any:
    found = importlib.import_module(f"{package}.{module}")
    multirank.mark("call 0")
    getattr(found, name)  # the error if there is none names it
    return found


def _schedule(pipeline: Any, orders: Sequence[Order]) -> list[list[Any]]:
    return [[pipeline.Action(word[0], int(word[1:])) for word in order.split()] for order in orders]


def drive(
    package: str, module: str, kind: str, layer: int, sizes: Sequence[int], order: Order
) -> dict[str, Any]:
    """PipelineStage by hand: one layer, of a stage other than the first unless it is layer 0."""
    pipeline = _module(package, module, "PipelineStage")
    watched = Watched([layers(kind)[layer]], (0.0, 0.0))
    for one in watched.parameters():
        one.grad = torch.full_like(one, 0.5) if one.requires_grad else None
    shape = shape_into(kind, layer)
    stage = pipeline.PipelineStage(watched, layer, 4, shape, torch.float64)
    outputs: dict[int, Tensor] = {}
    input_grads: dict[int, Any] = {}
    for word in order.split():
        number = int(word[1:])
        if word[0] == "F":
            outputs[number] = stage.forward(number, given(kind, layer, number, sizes[number]))
        else:
            grad = gradient(outputs[number])
            input_grads[number] = stage.backward(number, grad)
    return {
        "outputs": [outputs[i].detach().contiguous() for i in range(len(sizes))],
        "attached": any(one.requires_grad for one in outputs.values()),
        "input_grads": [input_grads[i] for i in range(len(sizes))],
        "grads": _gradients(watched),
        "calls": watched.calls,
        "held": max(watched.held),
    }


def given(kind: str, layer: int, number: int, samples: int) -> Tensor:
    """What goes into one layer, for one micro-batch."""
    torch.manual_seed(10 + number)
    if kind == "tokens" and layer == 0:
        return torch.randint(WORDS, (samples, TOKENS))
    return torch.randn(samples, *shape_into(kind, layer), dtype=torch.float64)


def gradient(output: Tensor) -> Tensor:
    """Some gradient for an output, another one for each element."""
    return torch.arange(output.numel(), dtype=torch.float64).reshape(output.shape) / 7 - 1


def pipeline_forward(
    package: str, module: str, group: str | None, kind: str, stages: int, sizes: Sequence[int]
) -> dict[str, Any]:
    """pipeline_forward on every rank of the group."""
    pipeline = _module(package, module, "pipeline_forward")
    here = multirank.context().groups[group] if group else dist.group.WORLD
    if here is None:
        return {}
    index = dist.get_rank(here)
    stage, watched = _stage(pipeline, kind, index, stages, (1.0, 0.0))
    inputs = batch(kind, sizes)[0] if index == 0 else None
    outputs = pipeline.pipeline_forward(stage, sizes, inputs, here)
    return {"outputs": [one.contiguous() for one in outputs], "calls": watched.calls}


def run_schedule(
    package: str,
    module: str,
    group: str | None,
    kind: str,
    orders: Sequence[Order],
    sizes: Sequence[int],
    before: float | None,
) -> dict[str, Any]:
    """run_schedule on every rank of the group. before: what is in every gradient at first."""
    pipeline = _module(package, module, "run_schedule")
    here = multirank.context().groups[group] if group else dist.group.WORLD
    if here is None:
        return {}
    index, stages = dist.get_rank(here), len(orders)
    stage, watched = _stage(pipeline, kind, index, stages, (1.0, 2.0))
    for one in watched.parameters():
        if before is not None:
            one.grad = torch.full_like(one, before)
    inputs, targets = batch(kind, sizes)
    last = index == stages - 1
    loss = pipeline.run_schedule(
        stage,
        _schedule(pipeline, orders),
        sizes,
        inputs if index == 0 else None,
        targets if last else None,
        F.mse_loss if last else None,
        here,
    )
    attached = loss is not None and loss.requires_grad
    return {
        "loss": None if loss is None else loss.detach(),
        "attached": attached,
        "grads": _gradients(watched),
        "calls": watched.calls,
        "held": max(watched.held),
    }
