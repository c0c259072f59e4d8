"""Cases for ddp.py: a model whose gradients are known, trained as the inputs say.

A model is described by "parameters", a list of {"name": "head.bias", "shape", "dtype",
"trainable"}, or {"name", "same_as"} for a tied one, and "buffers", a list of {"name",
"persistent"}. Their values are "values" (by name) and "buffer_values".
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import multirank

# --- The model ----------------------------------------------------------------------------------


class Term(torch.autograd.Function):
    """Adds (parameter * values).sum() of each row to what was carried so far.

    So the gradient of the parameter is the sum over the rows of values times the row's gradient,
    and backward goes through the terms in reverse order, one after another.
    """

    @staticmethod
    def forward(
        ctx: Any, carried: Tensor, parameter: Tensor, values: Tensor, name: str, seconds: float
    ) -> Tensor:
        multirank.compute(f"forward {name}", seconds)
        ctx.save_for_backward(values)
        ctx.name, ctx.seconds, ctx.dtype = name, seconds, parameter.dtype
        return carried + (parameter.double() * values).flatten(1).sum(1)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        multirank.compute(f"backward {ctx.name}", 2 * ctx.seconds)
        (values,) = ctx.saved_tensors
        own = torch.tensordot(gradient, values, dims=1).to(ctx.dtype)
        return gradient, own, None, None, None


class Model(nn.Module):
    """The sum of the terms of those parameters that a batch uses."""

    def __init__(self, inputs: dict[str, Any], device: torch.device) -> None:
        super().__init__()
        made: dict[str, nn.Parameter] = {}
        for one in inputs["parameters"]:
            name = one["name"]
            made[name] = made[one["same_as"]] if "same_as" in one else _parameter(one, inputs)
            owner, last = self._owner(name)
            owner.register_parameter(last, made[name])
        for one in inputs.get("buffers", []):
            owner, last = self._owner(one["name"])
            value = inputs["buffer_values"][one["name"]].clone()
            owner.register_buffer(last, value, persistent=one["persistent"])
        self.device = device
        self.seconds = inputs.get("seconds", 0.0)  # of compute that each term declares, forward

    def _owner(self, name: str) -> tuple[nn.Module, str]:
        """The module that holds "head.bias", which is made where there is none; and "bias"."""
        *path, last = name.split(".")
        owner: nn.Module = self
        for part in path:
            if part not in dict(owner.named_children()):
                owner.add_module(part, nn.Module())
            owner = owner.get_submodule(part)
        return owner, last

    def forward(self, batch: list[list[Any]], rows: int) -> Tensor:
        """[rows] from [name, values] for each use of a parameter, in order."""
        carried = torch.zeros(rows, dtype=torch.float64, device=self.device, requires_grad=True)
        for name, values in batch:
            parameter = self.get_parameter(name)
            result = Term.apply(carried, parameter, values, name, self.seconds)  # type: ignore[no-untyped-call]
            carried = result
        return carried


def _parameter(one: dict[str, Any], inputs: dict[str, Any]) -> nn.Parameter:
    return nn.Parameter(inputs["values"][one["name"]].clone(), requires_grad=one["trainable"])


def _grouped(here: Any) -> dict[str, Any]:
    """The group as an argument, where it is not the default group."""
    return {} if here.group is None else {"group": here.group}


def _gradients(parameters: dict[str, nn.Parameter]) -> dict[str, Any]:
    """Each gradient by its parameter's name, as it is now; None where there is none."""
    return {
        name: None if one.grad is None else one.grad.detach().clone()
        for name, one in parameters.items()
    }


# --- Functions ----------------------------------------------------------------------------------


def shard_batch(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """The parts of each of inputs["batches"] for all ranks of each of inputs["world_sizes"]."""
    parts = [
        [impl.ddp.shard_batch(batch, rank, n).clone() for rank in range(n)]
        for batch, n in zip(inputs["batches"], inputs["world_sizes"], strict=True)
    ]
    return {"parts": parts, "batches": inputs["batches"]}


def broadcast_parameters(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """All parameters and buffers afterwards, by name."""
    model = Model(inputs, here.device)
    held = dict(model.named_parameters()) | dict(model.named_buffers())
    impl.ddp.broadcast_parameters(model, inputs["src"], **_grouped(here))
    return {"held": {name: one.detach().clone() for name, one in held.items()}}


def all_reduce_gradients(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """The gradients afterwards; before, they are inputs["gradients"], by name.

    "calls": how often the all_reduce that was given was called, if inputs["given"].
    """
    model, calls = Model(inputs, here.device), 0
    parameters = dict(model.named_parameters())
    for name, gradient in inputs["gradients"].items():
        parameters[name].grad = None if gradient is None else gradient.clone()

    def all_reduce(tensor: Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None) -> None:
        nonlocal calls
        calls += 1
        dist.all_reduce(tensor, op, group)

    given = {"all_reduce": all_reduce} if inputs["given"] else {}
    with multirank.span("step"):
        impl.ddp.all_reduce_gradients(model, flat=inputs["flat"], **_grouped(here), **given)
    return {"gradients": _gradients(parameters), "calls": calls}


def partition_buckets(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """For each of inputs["calls"] (parameters, cap): the buckets, as places in the parameters."""
    told = []
    for parameters, cap in inputs["calls"]:
        made = [
            nn.Parameter(
                torch.zeros(one["shape"], dtype=getattr(torch, one["dtype"]), device=here.device),
                requires_grad=one["trainable"],
            )
            for one in parameters
        ]
        places = {id(one): place for place, one in enumerate(made)}
        buckets = impl.ddp.partition_buckets(iter(made), cap)
        told.append([[places.get(id(one), -1) for one in bucket] for bucket in buckets])
    return {"buckets": told}


# --- DistributedDataParallel ----------------------------------------------------------------------


def train(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """Trains the model for inputs["steps"], each a list of micro-batches.

    A micro-batch is a list of calls of the model, whose results are added up, and a call a list
    of [name, values]. All but the last are inside no_sync; before that of step
    inputs["interrupted"] another one fails. Gradients are set to None after each step, unless
    inputs["keep"].

    "buckets": bytes of each bucket of the submission's own partition_buckets.
    "begun": parameters and buffers after construction. "gradients": of each step.
    """
    _forbid_torchs_own()
    ddp = impl.ddp
    model, cap = Model(inputs, here.device), inputs["cap"]
    parameters = dict(model.named_parameters())
    buckets = ddp.partition_buckets(model.parameters(), cap)
    with multirank.span("construction"):
        wrapped = ddp.DistributedDataParallel(model, cap, **_grouped(here))
    begun = {
        name: one.detach().clone()
        for name, one in [*model.named_parameters(), *model.named_buffers()]
    }
    steps = []
    for number, micro_batches in enumerate(inputs["steps"]):
        with multirank.span(f"step {number}"):
            for place, calls in enumerate(micro_batches):
                last = place == len(micro_batches) - 1
                if last and number == inputs["interrupted"]:
                    _interrupt(wrapped)
                quiet = contextlib.nullcontext() if last else wrapped.no_sync()
                label = f"last micro-batch {number}" if last else f"no_sync {number}"
                with quiet, multirank.span(label):
                    losses = [wrapped(call, inputs["rows"]).mean() for call in calls]
                    torch.autograd.backward(torch.stack(losses).sum())
            with multirank.span(f"finish {number}"):
                wrapped.finish_gradient_synchronization()
        steps.append(_gradients(parameters))
        if not inputs["keep"]:
            model.zero_grad()
    return {
        "buckets": [sum(one.numel() * one.element_size() for one in bucket) for bucket in buckets],
        "begun": begun,
        "gradients": steps,
    }


def train_network(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """A network of two layers in float64, by SGD on this rank's rows; its parameters afterwards."""
    _forbid_torchs_own()
    model = network(inputs["values"])
    wrapped = impl.ddp.DistributedDataParallel(model, inputs["cap"], **_grouped(here))
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=inputs["lr"])
    for data, targets in inputs["batches"]:
        loss = nn.functional.mse_loss(wrapped(data), targets)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        wrapped.finish_gradient_synchronization()
        optimizer.step()
    return {"parameters": {n: p.detach().clone() for n, p in model.named_parameters()}}


def network(values: dict[str, Tensor]) -> nn.Sequential:
    """Two linear layers with these parameters."""
    (hidden, inner), (out, _) = values["0.weight"].shape, values["2.weight"].shape
    model = nn.Sequential(nn.Linear(inner, hidden), nn.Tanh(), nn.Linear(hidden, out)).double()
    model.load_state_dict(values)
    return model


def _interrupt(wrapped: Any) -> None:
    """A micro-batch inside no_sync that fails."""
    with contextlib.suppress(ZeroDivisionError), wrapped.no_sync():
        raise ZeroDivisionError


def _forbid_torchs_own() -> None:
    """From now on torch's own DistributedDataParallel says what the docstring does."""

    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("torch.nn.parallel.DistributedDataParallel may not be used here")

    nn.parallel.DistributedDataParallel.__init__ = refuse  # type: ignore[method-assign]
