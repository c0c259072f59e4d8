"""Cases for tensor_parallel.py: a region or a layer, forward and backward, on the calling rank.

In a sub-group `group=` is given; otherwise it is left out.
"""

from __future__ import annotations

import gc
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional

import multirank

CONSTRUCTED = "constructed"  # stands in the trace where a layer's constructor has returned
REGIONS = {
    "copy_to": "copy_to_tensor_parallel_region",
    "reduce_from": "reduce_from_tensor_parallel_region",
    "gather_from": "gather_from_tensor_parallel_region",
    "scatter_to": "scatter_to_tensor_parallel_region",
}


def lay_out(values: Tensor, layout: str) -> Tensor:
    """The same values in memory of their own: "plain", "strided" or "transposed"."""
    if layout == "strided":
        room = values.new_full((*values.shape[:-1], 2 * values.shape[-1]), 99.0)
        room[..., ::2] = values
        return room[..., ::2]
    if layout == "transposed":
        return values.transpose(0, -1).contiguous().transpose(0, -1)
    return values.clone()


def group_of(here: Any) -> dict[str, Any]:
    return {} if here.group is None else {"group": here.group}


def run_backward(output: Tensor, inputs: dict[str, Any]) -> Tensor | None:
    """With the gradient that is given; None: an expanded one of ones, as `.sum()` makes it.

    Returns the gradient as it is afterwards.
    """
    if inputs["gradient"] is None:
        torch.autograd.backward(output.sum())
        return None
    gradient = lay_out(inputs["gradient"], inputs["layout"])
    torch.autograd.backward(output, gradient)
    return gradient


def region(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """One of the four regions.

    inputs: "region", "x", "options" (further arguments by name), "gradient", "layout", and
    "beside": whether x is added to the result, so that both have one gradient.
    """
    function = getattr(impl.tensor_parallel, REGIONS[inputs["region"]])
    x = lay_out(inputs["x"], inputs["layout"]).requires_grad_()
    output = function(x, **inputs["options"], **group_of(here))
    used = x + output if inputs["beside"] else output
    kept = used.detach().clone()
    gradient = run_backward(used, inputs)
    return {
        "output": kept,
        "input_gradient": x.grad,
        "input": x.detach(),
        "output_gradient": gradient,
    }


def linear(weights: dict[str, Tensor], name: str = "") -> nn.Linear:
    weight, bias = weights[f"{name}weight"], weights.get(f"{name}bias")
    full = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, dtype=weight.dtype)
    full.weight = nn.Parameter(weight.clone())
    if bias is not None:
        full.bias = nn.Parameter(bias.clone())
    return full


def build(impl: Any, here: Any, inputs: dict[str, Any]) -> tuple[nn.Module, list[Any]]:
    """The parallel layer, and references to the full one's storages that keep nothing alive.

    inputs: "layer", its kind; "weights", of the full layer by name; "options" of the constructor;
    "activation", by its name in torch.nn.functional; "heads", for attention: number of heads, of
    key/value heads, and whether it is causal.
    """
    ours, weights, kind = impl.tensor_parallel, inputs["weights"], inputs["layer"]
    options = inputs["options"] | group_of(here)
    activation = getattr(functional, inputs["activation"])
    if kind in ("column", "row"):
        full: list[nn.Module] = [linear(weights)]
        name = "ColumnParallelLinear" if kind == "column" else "RowParallelLinear"
        layer = getattr(ours, name)(full[0], **options)
    elif kind == "mlp":
        full = [linear(weights, "fc1."), linear(weights, "fc2.")]
        layer = ours.ParallelMLP(*full, activation, **options)
    elif kind == "column_mlp":
        depth = sum(name.endswith("weight") for name in weights)
        full = [linear(weights, f"layers.{number}.") for number in range(depth)]
        layer = ours.ColumnParallelMLP(iter(full), activation, **options)
    elif kind == "attention":
        heads, kv_heads, causal = inputs["heads"]
        hidden, bias = weights["q_proj.weight"].shape[1], "q_proj.bias" in weights
        attention = ours.Attention(hidden, heads, kv_heads, bias=bias, causal=causal)
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(attention, name, linear(weights, f"{name}."))
        full = [attention]
        layer = ours.ParallelAttention(attention, **options)
        del attention
    else:
        weight = weights["weight"]
        full = [nn.Embedding(weight.shape[0], weight.shape[1], dtype=weight.dtype)]
        full[0].weight = nn.Parameter(weight.clone())
        layer = ours.VocabParallelEmbedding(full[0], **options)
    storages = [
        StorageWeakRef(parameter.untyped_storage())  # type: ignore[no-untyped-call]
        for module in full
        for parameter in module.parameters()
        if parameter.dim() > 1
    ]
    multirank.mark(CONSTRUCTED)
    return layer, storages


def layer(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """One layer.

    inputs: those of `build`; "x", "gradient", "layout", "beside", as for `region`.

    "kept" in the result: how many full weights are still alive before backward, when nobody but
    the layer can hold them. "held": bytes of its parameters and buffers. "saved": bytes of the
    largest storage that is kept for backward.
    """
    parallel, storages = build(impl, here, inputs)
    gc.collect()
    x = lay_out(inputs["x"], inputs["layout"])
    if x.is_floating_point():
        x.requires_grad_()
    saved = [0]

    def note(tensor: Tensor) -> Tensor:
        saved.append(tensor.untyped_storage().nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        output = parallel(x)
    kept = sum(not storage.expired() for storage in storages)
    used = x + output if inputs["beside"] else output
    result = used.detach().clone()
    run_backward(used, inputs)
    held = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in (*parallel.parameters(), *parallel.buffers())
    }
    return {
        "output": result,
        "input_gradient": x.grad,
        "input": x.detach(),
        "gradients": {
            name: parameter.grad
            for name, parameter in parallel.named_parameters()
            if parameter.grad is not None
        },
        "kept": kept,
        "held": sum(held.values()),
        "saved": max(saved),
    }


def cross_entropy(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """vocab_parallel_cross_entropy of the calling rank's "logits", times "factor", and backward."""
    logits = lay_out(inputs["logits"], inputs["layout"]).requires_grad_()
    loss = impl.tensor_parallel.vocab_parallel_cross_entropy(
        logits, inputs["targets"].clone(), **inputs["options"], **group_of(here)
    )
    value = loss.detach().clone()
    torch.autograd.backward(inputs["factor"] * loss)
    return {"output": value, "input_gradient": logits.grad}


def refusals(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """What each of inputs["calls"] raised: each is a case's name with its inputs."""
    raised = []
    for case, arguments in inputs["calls"]:
        try:
            build(impl, here, arguments) if case == "build" else globals()[case](
                impl, here, arguments
            )
            raised.append("nothing")
        except NotImplementedError:
            raise
        except Exception as error:
            raised.append("ValueError" if isinstance(error, ValueError) else type(error).__name__)
    return {"raised": raised}
