"""What runs on the ranks for the tests of tensor_parallel.py; it travels there as `calls.py` does.

A layer is run on one device, and then as its parallel twin; both results come back, name by name:
what the calling rank has, and the part that it should have.
"""

from __future__ import annotations

import gc
import importlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F

import multirank

CONSTRUCTED = "constructed"  # stands in the trace where a layer has been made
Found = dict[str, tuple[Tensor | None, Tensor]]


@dataclass(frozen=True)
class Layer:
    """A layer, and how it is run.

    kind: its class. sizes: of the full layer, as its builder below takes them.
    dtype: by its name. group: the ranks of a sub-group. options: of the constructor.
    bias: whether its linear layers have one. activation: by its name in torch.nn.functional.
    beside: the input is added to the output. summed: backward begins with sum().
    masters_differ: each rank draws another full layer.
    """

    kind: str
    sizes: tuple[int, ...]
    dtype: str = "float32"
    group: tuple[int, ...] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    bias: bool = True
    activation: str = "gelu"
    beside: bool = False
    summed: bool = False
    masters_differ: bool = False


class Twins:
    """The full layer, its parallel twin, and how the twin's tensors are sharded."""

    def __init__(self, ours: Any, layer: Layer, group: dict[str, Any]) -> None:
        first = dist.get_process_group_ranks(group.get("group"))[0]
        self.full = full(ours, layer, seed=first)  # of the rank that has the master
        own = full(ours, layer, seed=dist.get_rank() if layer.masters_differ else first)
        make = getattr(ours, layer.kind)
        activation = getattr(F, layer.activation)
        options = layer.options | group
        if layer.kind == "ParallelMLP":
            self.parallel = make(own.fc1, own.fc2, activation, **options)
        elif layer.kind == "ColumnParallelMLP":
            self.parallel = make(iter(own.layers), activation, **options)
        else:
            self.parallel = make(own, **options)
        # In a full layer's memory nobody has an interest now but the parallel one, if it has any.
        self._storages = [
            StorageWeakRef(parameter.untyped_storage())  # type: ignore[no-untyped-call]
            for parameter in own.parameters()
            if parameter.dim() > 1
        ]
        del own
        multirank.mark(CONSTRUCTED)

    @property
    def kept(self) -> int:
        """How many full weights are still in memory."""
        gc.collect()
        return sum(not storage.expired() for storage in self._storages)  # type: ignore[no-untyped-call]


def full(ours: Any, layer: Layer, seed: int) -> Any:
    """The layer on one device, drawn with a seed. ours: the module that has Attention."""
    torch.manual_seed(seed)
    sizes, dtype, bias = layer.sizes, getattr(torch, layer.dtype), layer.bias
    match layer.kind:
        case "ParallelMLP":
            made: nn.Module = _MLP(sizes, layer.activation, bias)
        case "ColumnParallelMLP":
            made = _Layers(sizes, layer.activation, bias)
        case "ParallelAttention":
            made = ours.Attention(*sizes, bias=bias)
        case "VocabParallelEmbedding":
            made = nn.Embedding(sizes[0], sizes[1])
        case _:
            made = nn.Linear(sizes[0], sizes[1], bias=bias)
    return made.to(dtype)


class _MLP(nn.Module):
    def __init__(self, sizes: Sequence[int], activation: str, bias: bool) -> None:
        super().__init__()
        self.fc1 = nn.Linear(sizes[0], sizes[1], bias=bias)
        self.fc2 = nn.Linear(sizes[1], sizes[2], bias=bias)
        self.activation = getattr(F, activation)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.fc2(self.activation(self.fc1(x)))
        return output


class _Layers(nn.Module):
    def __init__(self, sizes: Sequence[int], activation: str, bias: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Linear(before, after, bias=bias) for before, after in itertools.pairwise(sizes)
        )
        self.activation = getattr(F, activation)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.activation(layer(x))
        return x


def split_throughout(layer: Layer, n: int, seed: int) -> dict[str, list[Tensor]]:
    """Of a ColumnParallelMLP: the ranks' gradients, by name, if every gather's backward is a split.

    Then a rank goes on with what came back through its own columns alone.
    """
    found: dict[str, list[Tensor]] = {}
    for place in range(n):
        made = full(None, layer, seed)
        torch.manual_seed(100)
        carried = _input(layer)
        for linear in made.layers:
            carried = made.activation(linear(carried))
            own = torch.zeros_like(carried)
            own.chunk(n, -1)[place].fill_(1)
            carried = carried * own + (carried * (1 - own)).detach()
        gradient = torch.ones_like(carried) if layer.summed else torch.randn_like(carried)
        torch.autograd.backward(carried, gradient)
        for name, parameter in made.named_parameters():
            assert parameter.grad is not None
            found.setdefault(name, []).append(parameter.grad.chunk(n)[place])
    return found


def run_layers(package: str, module: str, layers: Sequence[Layer]) -> list[Found]:
    """Runs each layer and its twin; what the calling rank has of the results, and should have."""
    ours = importlib.import_module(f"{package}.{module}")
    found = []
    for number, layer in enumerate(layers):
        multirank.mark(f"call {number}")
        found.append(_both(ours, layer) if _takes_part(layer.group) else {})
    return found


def _both(ours: Any, layer: Layer) -> Found:
    group = group_argument(layer.group)
    twins = Twins(ours, layer, group)
    shard = _Shard(group.get("group"))
    torch.manual_seed(100)
    x, gradient = _input(layer), None
    whole = _run(twins.full, x, layer, lambda y: torch.randn_like(y))
    gradient = whole["gradient"]
    own_x, own_gradient = x, gradient
    if layer.kind == "RowParallelLinear":
        own_x = shard(x, -1)
    if layer.kind == "ColumnParallelLinear" and not layer.options.get("gather_output"):
        own_gradient = shard(gradient, -1)
    ours_found = _run(twins.parallel, own_x, layer, lambda y: own_gradient)
    found: Found = {}
    expected = whole["output"]
    if own_gradient.shape != gradient.shape:
        expected = shard(expected, -1)
    found["the output"] = (ours_found["output"], expected)
    for name, parameter in twins.full.named_parameters():
        own = dict(twins.parallel.named_parameters()).get(name)
        by_rows = layer.kind == "RowParallelLinear" or name.startswith(("fc2.", "o_proj."))
        dim = None if by_rows and name.endswith("bias") else int(by_rows)
        assert parameter.grad is not None
        right = parameter.grad if dim is None else shard(parameter.grad, dim)
        found[f"the gradient of {name}"] = (None if own is None else own.grad, right)
    if x.is_floating_point():
        right = whole["input"]
        right = shard(right, -1) if layer.kind == "RowParallelLinear" else right
        found["the gradient of the input"] = (ours_found["input"], right)
    return found


def _input(layer: Layer) -> Tensor:
    if layer.kind == "VocabParallelEmbedding":
        return torch.arange(3 * layer.sizes[0]).reshape(3, -1) % layer.sizes[0]
    return torch.randn(2, 5, layer.sizes[0]).to(getattr(torch, layer.dtype))


def _run(
    module: nn.Module, x: Tensor, layer: Layer, gradient_for: Callable[[Tensor], Tensor]
) -> dict[str, Tensor]:
    """Forward and backward; the output, and the gradients of output and input."""
    own = x.clone()
    if own.is_floating_point():
        own.requires_grad_()
    output = module(own)
    output = own + output if layer.beside else output
    gradient = torch.ones_like(output) if layer.summed else gradient_for(output.detach())
    found = {"output": output.detach().clone(), "gradient": gradient}
    if layer.summed:
        torch.autograd.backward(output.sum())
    else:
        torch.autograd.backward(output, gradient.clone())
    return found | ({} if own.grad is None else {"input": own.grad})


class _Shard:
    """The calling rank's part of a tensor along a dimension, which zeros fill up."""

    def __init__(self, group: Any) -> None:
        self.n, self.place = dist.get_world_size(group), dist.get_rank(group)

    def __call__(self, tensor: Tensor, dim: int) -> Tensor:
        missing = -tensor.shape[dim] % self.n
        if missing:
            zeros = list(tensor.shape)
            zeros[dim] = missing
            tensor = torch.cat([tensor, tensor.new_zeros(zeros)], dim)
        return tensor.chunk(self.n, dim)[self.place].contiguous()


def run_regions(
    package: str, module: str, name: str, calls: Sequence[dict[str, Any]]
) -> list[dict[str, Tensor | None]]:
    """Calls a region for each of `calls`; output, input's gradient, and what they were made of.

    A call has "x" and "gradient" (None: backward begins with sum()) of the calling rank, "options",
    "group", "beside" (x is added to the result) and "transposed" (x is, in memory).
    """
    ours = importlib.import_module(f"{package}.{module}")
    found: list[dict[str, Tensor | None]] = []
    for number, call in enumerate(calls):
        multirank.mark(f"call {number}")
        if not _takes_part(call["group"]):
            found.append({})
            continue
        x = call["x"].clone()
        if call["transposed"]:
            x = x.transpose(0, -1).contiguous().transpose(0, -1)
        x.requires_grad_()
        output = getattr(ours, name)(x, **call["options"], **group_argument(call["group"]))
        used = x + output if call["beside"] else output
        kept = used.detach().clone()
        gradient = call["gradient"]
        if gradient is None:
            torch.autograd.backward(used.sum())
        else:
            gradient = gradient.clone()
            torch.autograd.backward(used, gradient)
        found.append(
            {"output": kept, "input_gradient": x.grad, "x": x.detach(), "gradient": gradient}
        )
    return found


def run_cross_entropies(package: str, module: str, calls: Sequence[dict[str, Any]]) -> list[Found]:
    """vocab_parallel_cross_entropy and F.cross_entropy, for each of `calls`.

    A call has "logits", whole, "targets", "options" and "group".
    """
    ours = importlib.import_module(f"{package}.{module}")
    found: list[Found] = []
    for number, call in enumerate(calls):
        multirank.mark(f"call {number}")
        if not _takes_part(call["group"]):
            found.append({})
            continue
        group = group_argument(call["group"])
        shard = _Shard(group.get("group"))
        options = dict(call["options"])
        logits = call["logits"].to(torch.float32, copy=True).requires_grad_()
        ignored = options.get("ignore_index", -100)
        loss = F.cross_entropy(
            logits.flatten(0, -2), call["targets"].flatten(), ignore_index=ignored
        )
        torch.autograd.backward(3 * loss)
        own = shard(call["logits"], -1).clone().requires_grad_()
        if logits.shape[-1] % shard.n:
            options["vocab_size"] = logits.shape[-1]
        ours_loss = ours.vocab_parallel_cross_entropy(own, call["targets"], **options, **group)
        torch.autograd.backward(3 * ours_loss)
        assert logits.grad is not None
        right = shard(logits.grad, -1).to(own.dtype)
        found.append(
            {
                "the loss": (ours_loss.detach().clone(), loss.detach()),
                "the gradient of the logits": (own.grad, right),
            }
        )
    return found


def memory(package: str, module: str, layer: Layer) -> dict[str, int]:
    """What a layer keeps: full weights, and bytes of its parameters and of its parts of them."""
    ours = importlib.import_module(f"{package}.{module}")
    multirank.mark("call 0")
    twins = Twins(ours, layer, {})
    shard = _Shard(None)
    right = 0
    for name, parameter in twins.full.named_parameters():
        by_rows = layer.kind == "RowParallelLinear" or name.startswith(("fc2.", "o_proj."))
        whole = by_rows and name.endswith("bias")
        right += parameter.nbytes if whole else shard(parameter.data, int(by_rows)).nbytes
    held = {
        one.untyped_storage().data_ptr(): one.untyped_storage().nbytes()
        for one in (*twins.parallel.parameters(), *twins.parallel.buffers())
    }
    return {"kept": twins.kept, "held": sum(held.values()), "right": right}


def attempt(package: str, module: str, layers: Sequence[Layer]) -> list[str]:
    """Makes layers whose sizes do not divide; for each what it raised, or "nothing"."""
    ours = importlib.import_module(f"{package}.{module}")
    raised = []
    for number, layer in enumerate(layers):
        multirank.mark(f"call {number}")
        try:
            Twins(ours, layer, {})
            raised.append("nothing")
        except NotImplementedError:
            raise
        except Exception as error:
            raised.append("ValueError" if isinstance(error, ValueError) else type(error).__name__)
    return raised


def group_argument(group: tuple[int, ...] | None) -> dict[str, Any]:
    """`group=` for a sub-group; for the default group it is left out."""
    if group is None:
        return {}
    return {"group": multirank.context().groups[str(list(group))]}


def _takes_part(group: tuple[int, ...] | None) -> bool:
    return group is None or multirank.context().rank in group
