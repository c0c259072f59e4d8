"""Cases for pipeline_parallel.py: schedules as data; stages and schedules of small models, run.

A model comes as inputs["layers"], a list of kinds (see `_layer`), with inputs["weights"], a list of
tensors for those that have some; everywhere in float64 unless a boundary says otherwise.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

import multirank

declare = multirank.compute


# --- Schedules ----------------------------------------------------------------------------------


def schedules(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """inputs["function"] on every stage, for each (p, m) of inputs["sizes"].

    "lengths": of each stage's list; "actions": all of them, 2 i for F and 2 i + 1 for B of i.
    """
    function = getattr(impl.pipeline_parallel, inputs["function"])
    found = [list(function(stage, p, m)) for p, m in inputs["sizes"] for stage in range(p)]
    codes = [_code(action) for actions in found for action in actions]
    return {
        "lengths": [len(actions) for actions in found],
        "actions": torch.tensor(codes, dtype=torch.int64, device=here.device),
    }


def _code(action: Any) -> int:
    """-1 for what is no action."""
    try:
        kind, microbatch = action
        return 2 * int(microbatch) + "FB".index(str(kind))
    except (TypeError, ValueError):
        return -1


def figures(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """inputs["function"] for each of inputs["schedules"]: numbers, or the name of an exception."""
    function = getattr(impl.pipeline_parallel, inputs["function"])
    return {"found": [_figure(function, _schedule(impl, one)) for one in inputs["schedules"]]}


def partitions(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """partition_layers for each of inputs["calls"]: for each stage its layers."""
    function = impl.pipeline_parallel.partition_layers
    return {
        "found": [
            [[int(layer) for layer in part] for part in function(layers, stages)]
            for layers, stages in inputs["calls"]
        ]
    }


def refusals(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """The name of what each of inputs["calls"], [function, arguments], raises."""
    module = impl.pipeline_parallel
    return {"raised": [_figure(getattr(module, name), *given) for name, given in inputs["calls"]]}


def _figure(function: Any, *arguments: Any) -> Any:
    try:
        found = function(*arguments)
        return [float(one) for one in found] if isinstance(found, (list, tuple)) else float(found)
    except NotImplementedError:
        raise
    except Exception as error:
        return type(error).__name__


def _schedule(impl: Any, given: list[list[list[Any]]]) -> list[list[Any]]:
    action = impl.pipeline_parallel.Action
    return [[action(kind, microbatch) for kind, microbatch in actions] for actions in given]


# --- Models -------------------------------------------------------------------------------------


def whole(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """One process, micro-batch by micro-batch, without the implementation.

    "outputs", "losses", and for each micro-batch "grads", of all parameters in their order.
    """
    model = _model(inputs)
    parameters = list(model.parameters())
    outputs, losses, grads = [], [], []
    targets = inputs.get("targets")
    for place, one in enumerate(inputs["inputs"]):
        output = model(one)
        outputs.append(output.detach())
        if targets is None:
            continue
        loss = _LOSSES[inputs["loss"]](output, targets[place])
        loss.backward()
        losses.append(loss.detach())
        grads.append([_grad(parameter) for parameter in parameters])
        model.zero_grad()
    return {"outputs": outputs, "losses": losses, "grads": grads}


def _grad(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()


class _Embedding(nn.Module):
    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight)


class _Linear(nn.Module):
    def __init__(self, weight: Tensor, frozen: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=not frozen)

    def forward(self, input: Tensor) -> Tensor:
        return torch.tanh(F.linear(input.to(self.weight.dtype), self.weight))


class _Apply(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, input: Tensor) -> Tensor:
        output: Tensor = self.function(input)
        return output


def _layer(kind: str, weights: Iterator[Tensor]) -> nn.Module:
    if kind == "embedding":
        return _Embedding(next(weights))
    if kind in ("linear", "frozen"):
        return _Linear(next(weights), frozen=kind == "frozen")
    functions: dict[str, Any] = {
        "transpose": lambda x: x.transpose(1, 2),
        "expand": lambda x: x.mean(1, keepdim=True).expand(-1, 3, -1),
        "float32": lambda x: x.float(),
        "float64": lambda x: x.double(),
    }
    return _Apply(functions[kind])


def _model(inputs: dict[str, Any]) -> nn.Sequential:
    """The layers, with copies of the weights: every call of a world has its own."""
    weights = iter([weight.clone() for weight in inputs["weights"]])
    return nn.Sequential(*(_layer(kind, weights) for kind in inputs["layers"]))


def _cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output.flatten(0, -2), target.flatten())


_LOSSES: dict[str, Any] = {"cross_entropy": _cross_entropy, "mse": F.mse_loss}


class _Copied(torch.autograd.Function):
    """A copy that is kept for the backward pass, as the activations of a layer are."""

    @staticmethod
    def forward(ctx: Any, input: Tensor) -> Tensor:
        copy = input.clone()
        ctx.save_for_backward(copy)
        return copy

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class _Declared(torch.autograd.Function):
    """Declares compute for replays: some in the forward, and some in the backward pass."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, forward: float, backward: float) -> Tensor:
        ctx.seconds = backward
        declare("F", forward)
        return input.view_as(input)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        declare("B", ctx.seconds)
        return grad, None, None


def _reference(tensor: Tensor) -> Any:
    """A reference to its memory that does not keep it."""
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


class _Watched(nn.Module):
    """A stage's layers; notes how many micro-batches are held, and declares what they take.

    held: at each forward pass, of how many the buffer, the input, or a copy made inside, was in
        memory.
    """

    def __init__(self, layers: nn.Module, first: bool, seconds: list[float] | None) -> None:
        super().__init__()
        self.layers = layers
        self.first = first
        self.seconds = seconds
        self.calls = 0
        self.held: list[int] = []
        self._memory: list[list[Any]] = []
        gc.freeze()  # so that a collection has nothing old to go through

    def forward(self, input: Tensor) -> Tensor:
        self.calls += 1
        floating = input.is_floating_point()
        inside = _Copied.apply(input) if floating else input.clone()  # type: ignore[no-untyped-call]
        if self.first:  # its inputs are in the memory of whoever calls
            self._memory.append([_reference(inside)])
        else:
            self.note(input).append(_reference(inside))
        self.held.append(self.count())
        output: Tensor = self.layers(inside)
        if self.seconds is not None:
            output = _Declared.apply(output, *self.seconds)  # type: ignore[no-untyped-call]
        return output

    def note(self, buffer: Tensor) -> list[Any]:
        """From now on this counts as a micro-batch, if it does not yet."""
        reference = _reference(buffer)
        for noted in self._memory:
            if noted[0] == reference and not noted[0].expired():
                return noted
        self._memory.append([reference])
        return self._memory[-1]

    def count(self) -> int:
        """Of how many micro-batches something is in memory now."""
        gc.collect()
        return sum(any(not one.expired() for one in storages) for storages in self._memory)


def _watched(inputs: dict[str, Any]) -> _Watched:
    return _Watched(_model(inputs), inputs["index"] == 0, inputs.get("seconds"))


def _stage(kind: Any, module: nn.Module, here: Any, inputs: dict[str, Any]) -> Any:
    """A stage of this class, as inputs["index"], ["stages"], ["input_shape"], ["dtype"] say."""
    return kind(
        module,
        inputs["index"],
        inputs["stages"],
        input_shape=inputs["input_shape"],
        dtype=getattr(torch, inputs["dtype"]),
        device=here.device,
    )


# --- One stage ----------------------------------------------------------------------------------


def stage(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """PipelineStage alone: inputs["actions"], with ["inputs"] and ["output_grads"] for each.

    inputs["prior"]: what is in the gradients before; none: nothing is.
    """
    module = _watched(inputs)
    _fill(module, inputs)
    driven = _stage(impl.pipeline_parallel.PipelineStage, module, here, inputs)
    given, output_grads = inputs["inputs"], inputs["output_grads"]
    outputs: list[Any] = [None] * len(given)
    input_grads: list[Any] = [None] * len(given)
    attached = False
    for kind, number in inputs["actions"]:
        if kind == "F":
            buffer = given[number].clone() if inputs["index"] else given[number]
            outputs[number] = driven.forward(number, buffer)
            attached |= bool(outputs[number].requires_grad)
            outputs[number] = outputs[number].detach().clone()
            del buffer
        else:
            found = driven.backward(number, output_grads[number].clone())
            input_grads[number] = None if found is None else found.detach().clone()
            del found
    return {
        "outputs": outputs,
        "input_grads": [one for one in input_grads if isinstance(one, Tensor)],
        "grads": [_grad(one) for one in module.parameters()],
        "untouched": all(p.requires_grad or p.grad is None for p in module.parameters()),
        "attached": attached,
        "calls": module.calls,
        "held": max(module.held),
        "left": module.count(),
    }


def plain_stage(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """What it must give, by autograd alone; "last": gradients of the last micro-batch by itself."""
    module = _model(inputs)
    _fill(module, inputs)
    outputs, input_grads = [], []
    before = [_grad(one) for one in module.parameters()]
    for given, output_grad in zip(inputs["inputs"], inputs["output_grads"], strict=True):
        leaf = given.clone()
        if inputs["index"]:
            leaf.requires_grad_()
        output = module(leaf)
        outputs.append(output.detach())
        if output.requires_grad:
            output.backward(output_grad)
        if leaf.grad is not None:
            input_grads.append(leaf.grad)
        if len(outputs) < len(inputs["inputs"]):
            before = [_grad(one) for one in module.parameters()]
    grads = [_grad(one) for one in module.parameters()]
    last = [grad - one for grad, one in zip(grads, before, strict=True)]
    return {"outputs": outputs, "input_grads": input_grads, "grads": grads, "last": last}


def _fill(module: nn.Module, inputs: dict[str, Any]) -> None:
    """Puts inputs["prior"] into the gradients, where it is given."""
    for parameter in module.parameters():
        if parameter.requires_grad and inputs.get("prior") is not None:
            parameter.grad = torch.full_like(parameter, inputs["prior"])


# --- All stages ---------------------------------------------------------------------------------


def forward(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """pipeline_forward with inputs["sizes"] and, on the first stage, ["inputs"]."""
    module = _watched(inputs)
    driven = _stage(impl.pipeline_parallel.PipelineStage, module, here, inputs)
    outputs = impl.pipeline_parallel.pipeline_forward(
        driven, inputs["sizes"], inputs.get("inputs"), **_group(here)
    )
    return {
        "outputs": [one.detach().contiguous() for one in outputs],
        "attached": any(one.requires_grad for one in outputs),
        "calls": module.calls,
    }


def run(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """run_schedule of inputs["schedule"], with a stage of the grader's own.

    inputs["times"]: how many batches, one after another. inputs["prior"]: as for `stage`.
    """
    kind = _own_stage(impl.pipeline_parallel.PipelineStage)
    module = _watched(inputs)
    _fill(module, inputs)
    driven = _stage(kind, module, here, inputs)
    driven.order = []
    schedule = _schedule(impl, inputs["schedule"])
    for _ in range(inputs.get("times", 1)):
        loss = impl.pipeline_parallel.run_schedule(
            driven,
            schedule,
            inputs["sizes"],
            inputs=inputs.get("inputs"),
            targets=inputs.get("targets"),
            loss_fn=_LOSSES[inputs["loss"]] if driven.is_last else None,
            **_group(here),
        )
    return {
        "loss": loss.detach().clone() if isinstance(loss, Tensor) else loss is None,
        "attached": isinstance(loss, Tensor) and loss.requires_grad,
        "grads": [_grad(one) for one in module.parameters()],
        "order": [[kind, number] for kind, number in driven.order],
        "held": max(module.held),
        "left": module.count(),
    }


def _own_stage(base: Any) -> Any:
    """Its constructor and its buffers, with a right forward and backward: see problem 5.5."""

    class Stage(base):  # type: ignore[misc]
        def receive_buffer(self, samples: int) -> Tensor:
            buffer: Tensor = super().receive_buffer(samples)
            self.module.note(buffer)
            return buffer

        def forward(self, microbatch: int, input: Tensor) -> Tensor:
            self.order.append(("F", microbatch))
            own = input.detach()
            if self.index > 0:
                own.requires_grad_()
            output = self.module(own)
            self.flying = {**getattr(self, "flying", {}), microbatch: (own, output)}
            result: Tensor = output.detach()
            return result

        def backward(self, microbatch: int, output_grad: Tensor) -> Tensor | None:
            self.order.append(("B", microbatch))
            own, output = self.flying.pop(microbatch)
            if output.requires_grad:
                output.backward(output_grad)
            grad: Tensor | None = own.grad
            return grad

    return Stage


def _group(here: Any) -> dict[str, Any]:
    return {} if here.group is None else {"group": here.group}
