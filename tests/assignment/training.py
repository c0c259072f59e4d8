"""What runs on the ranks for the tests of ddp.py; it travels to them as `calls.py` does.

The model adds up weight * values over its layers, so the gradient of each weight is the values that
went with it: whoever knows what each rank put in knows what must come out.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import multirank

Values = Mapping[str, Tensor]  # by a layer's name
GIVEN = "the all_reduce that was given"  # stands in the trace where it is called


@dataclass(frozen=True)
class Spec:
    """A model: its layers from the first to the last, each with one weight of so many elements.

    dtypes: of layers that are not float32. frozen: those that are not trained. tied: layers that
    use the weight of another. buffer: whether there is a buffer, too.
    """

    layers: Mapping[str, int]
    dtypes: Mapping[str, torch.dtype]
    frozen: tuple[str, ...] = ()
    tied: Mapping[str, str] | None = None
    buffer: bool = False


class Layer(torch.autograd.Function):
    """Adds (weight * values).sum() to what was carried so far; declares what it computes."""

    @staticmethod
    def forward(ctx: Any, carried: Tensor, weight: Tensor, values: Tensor, name: str) -> Tensor:
        multirank.compute(f"forward {name}", 1e-3)
        ctx.save_for_backward(values)
        ctx.name = name
        return carried + (weight * values).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        multirank.compute(f"backward {ctx.name}", 2e-3)
        return (
            gradients[0],
            gradients[0].to(ctx.saved_tensors[0].dtype) * ctx.saved_tensors[0],
            None,
            None,
        )


class Model(nn.Module):
    """Layers one after another. Every rank begins with other weights."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        rank = dist.get_rank()
        weights = {
            name: nn.Parameter(
                torch.full((size,), 1.0 + rank, dtype=spec.dtypes.get(name, torch.float32)),
                requires_grad=name not in spec.frozen,
            )
            for name, size in spec.layers.items()
        }
        weights |= {name: weights[other] for name, other in (spec.tied or {}).items()}
        for name, weight in weights.items():
            self.register_parameter(name, weight)
        if spec.buffer:
            self.register_buffer("counter", torch.tensor(10 + rank), persistent=False)

    def forward(self, values: Values) -> Tensor:
        carried = torch.zeros((), requires_grad=True)
        for name, given in values.items():
            weight = self.get_parameter(name)
            carried = Layer.apply(carried, weight, given, name)  # type: ignore[no-untyped-call]
        return carried


def shard(package: str, module: str, batches: Sequence[tuple[Tensor, int]]) -> list[list[Tensor]]:
    """The parts of each batch for so many ranks."""
    shard_batch = _function(package, module, "shard_batch")
    return [[shard_batch(batch, rank, n) for rank in range(n)] for batch, n in batches]


def broadcast(
    package: str, module: str, group: str | None, spec: Spec, src: int
) -> dict[str, Tensor]:
    """broadcast_parameters; parameters and buffers afterwards."""
    function = _function(package, module, "broadcast_parameters")
    if _outside(group):
        return {}
    model = Model(spec)
    function(model, src, **_group(group))
    return _held(model)


def reduce(
    package: str,
    module: str,
    group: str | None,
    spec: Spec,
    flat: bool,
    given: bool,
    gradients: Mapping[str, Tensor | None],
) -> dict[str, Tensor | None]:
    """all_reduce_gradients of these gradients, if this rank is in the group.

    given: whether it is told what to communicate with, which marks each of its calls.
    """
    function = _function(package, module, "all_reduce_gradients")
    if _outside(group):
        return {}
    model = Model(spec)
    for name, gradient in gradients.items():
        model.get_parameter(name).grad = None if gradient is None else gradient.clone()
    more = {"all_reduce": _marked_all_reduce} if given else {}
    function(model, flat=flat, **more, **_group(group))
    return _gradients(model)


def _marked_all_reduce(tensor: Tensor, *, op: Any, group: Any) -> None:
    multirank.mark(GIVEN)
    dist.all_reduce(tensor, op=op, group=group)


def partition(
    package: str, module: str, calls: Sequence[tuple[Sequence[Tensor], Sequence[bool], float]]
) -> list[list[list[int]]]:
    """For (tensors, which are trainable, cap): the buckets, as places in the tensors."""
    function = _function(package, module, "partition_buckets")
    told = []
    for tensors, trainable, cap in calls:
        made = [nn.Parameter(t, requires_grad=r) for t, r in zip(tensors, trainable, strict=True)]
        places = {id(one): place for place, one in enumerate(made)}
        told.append([[places[id(one)] for one in bucket] for bucket in function(iter(made), cap)])
    return told


def train(
    package: str,
    module: str,
    group: str | None,
    spec: Spec,
    cap: float,
    steps: Sequence[Sequence[Values]],
    interrupted: bool,
) -> dict[str, Any]:
    """Steps with DistributedDataParallel; of each step's micro-batches all but the last in no_sync.

    interrupted: whether a no_sync before the first step ends by an exception.

    Returns:
        "begun": parameters and buffers after construction; "gradients": of each step; "swallowed":
        whether the exception did not come out of no_sync.
    """
    wrapper = _function(package, module, "DistributedDataParallel")
    if _outside(group):
        return {}
    model = Model(spec)
    wrapped = wrapper(model, cap, **_group(group))
    begun = _held(model)
    swallowed = interrupted and not _interrupt(wrapped)
    gradients = []
    for number, micro_batches in enumerate(steps):
        with multirank.span(f"step {number}"):
            for place, values in enumerate(micro_batches):
                last = place == len(micro_batches) - 1
                with contextlib.nullcontext() if last else wrapped.no_sync():
                    torch.autograd.backward(wrapped(values))
                    if not last:
                        multirank.mark(f"quiet {number}")
            multirank.mark(f"finish {number}")
            wrapped.finish_gradient_synchronization()
        gradients.append(_gradients(model))
        model.zero_grad()
    return {"begun": begun, "gradients": gradients, "swallowed": swallowed}


def _interrupt(wrapped: Any) -> bool:
    """Raises an exception inside no_sync; whether it comes out."""
    try:
        with wrapped.no_sync():
            raise InterruptedError
    except InterruptedError:
        return True
    return False


def train_without_overlap(
    package: str, module: str, flat: bool, spec: Spec, values: Values
) -> None:
    """A step with all_reduce_gradients after backward."""
    function = _function(package, module, "all_reduce_gradients")
    model = Model(spec)
    with multirank.span("step 0"):
        torch.autograd.backward(model(values))
        function(model, flat=flat)


def _function(package: str, module: str, name: str) -> Any:
    function = getattr(importlib.import_module(f"{package}.{module}"), name)
    multirank.mark("call 0")
    return function


def _outside(group: str | None) -> bool:
    """Whether the calling rank is not in the group."""
    return group is not None and multirank.context().groups[group] is None


def _group(group: str | None) -> dict[str, Any]:
    return {} if group is None else {"group": multirank.context().groups[group]}


def _held(model: nn.Module) -> dict[str, Tensor]:
    held = [*model.named_parameters(), *model.named_buffers()]
    return {name: one.detach().clone() for name, one in held}


def _gradients(model: nn.Module) -> dict[str, Tensor | None]:
    return {
        name: None if one.grad is None else one.grad.clone()
        for name, one in model.named_parameters()
    }
