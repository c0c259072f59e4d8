"""Cases for collectives.py: each calls one function as its inputs say and returns what came out.

Every case returns "result" (what the function was asked for), "input" (what it was only to read,
as it is afterwards) and "around" (memory between the elements of a strided tensor), where it has
them. In a sub-group `group=` is given; otherwise it is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic, sleep  # as they are before a submission is imported
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import multirank

Event: Any = torch.cuda.Event  # likewise
synchronize = torch.cuda.synchronize
AROUND = 99  # what lies between the elements of a strided tensor


def lay_out(values: Tensor, layout: str) -> Tensor:
    """The same values in another memory layout: "plain", "strided", "transposed", "expanded"."""
    if layout == "strided":
        room = values.new_full((*values.shape[:-1], 2 * values.shape[-1]), AROUND)
        room[..., ::2] = values
        return room[..., ::2]
    if layout == "transposed":
        return values.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "expanded":
        return values[:1].clone().expand_as(values)
    return values.clone()


def around(tensor: Tensor) -> Tensor:
    """Everything in the tensor's storage, if it is strided; else nothing."""
    if tensor.is_contiguous() or 2 * tensor.numel() != tensor.untyped_storage().nbytes() // (
        tensor.element_size()
    ):
        return tensor.new_empty(0)
    room = tensor.new_empty(0).set_(tensor.untyped_storage())
    return room[1::2].clone()


def keywords(here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """The arguments that most of the functions share."""
    given: dict[str, Any] = {}
    if "op" in inputs:
        given["op"] = getattr(dist.ReduceOp, inputs["op"])
    if here.group is not None:
        given["group"] = here.group
    return given


def broadcast(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    tensor = lay_out(inputs["tensor"], inputs["layout"])
    impl.collectives.broadcast(tensor, inputs["root"], **keywords(here, inputs))
    return {"result": tensor, "around": around(tensor)}


def scatter(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    tensor = lay_out(torch.full_like(inputs["like"], AROUND), inputs["layout"])
    pieces = [lay_out(piece, inputs["layout"]) for piece in inputs["pieces"]]
    impl.collectives.scatter(tensor, pieces or None, src=inputs["root"], **keywords(here, inputs))
    return {"result": tensor, "input": pieces, "around": around(tensor)}


def gather(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    tensor = lay_out(inputs["tensor"], inputs["layout"])
    pieces = None
    if here.rank == inputs["root"]:
        fresh = torch.full_like(tensor, AROUND, memory_format=torch.contiguous_format)
        pieces = [lay_out(fresh, inputs["layout"]) for _ in here.members]
    impl.collectives.gather(tensor, pieces, dst=inputs["root"], **keywords(here, inputs))
    return {"result": pieces or [], "input": tensor, "around": around((pieces or [tensor])[0])}


def reduce(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    tensor = lay_out(inputs["tensor"], inputs["layout"])
    impl.collectives.reduce(tensor, inputs["root"], **keywords(here, inputs))
    what = "result" if here.rank == inputs["root"] else "input"
    return {what: tensor, "around": around(tensor)}


def all_reduce(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    tensor = lay_out(inputs["tensor"], inputs["layout"])
    impl.collectives.all_reduce(tensor, **keywords(here, inputs))
    return {"result": tensor, "around": around(tensor)}


def into_output(function: str, impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """all_gather and reduce_scatter: an output beside the input."""
    tensor = lay_out(inputs["tensor"], inputs["layout"])
    fresh = tensor.new_full(inputs["output_shape"], AROUND)
    output = lay_out(fresh, "plain" if inputs["layout"] == "expanded" else inputs["layout"])
    getattr(impl.collectives, function)(output, tensor, **keywords(here, inputs))
    return {"result": output, "input": tensor, "around": around(output)}


def all_gather(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    return into_output("all_gather", impl, here, inputs)


def reduce_scatter(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    return into_output("reduce_scatter", impl, here, inputs)


def all_to_all(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    tensor = lay_out(inputs["tensor"], inputs["layout"])
    fresh = tensor.new_full(inputs["output_shape"], AROUND)
    output = lay_out(fresh, inputs["layout"])
    splits = [inputs["output_splits"], inputs["input_splits"]] if inputs["output_splits"] else []
    impl.collectives.all_to_all(output, tensor, *splits, **keywords(here, inputs))
    return {"result": output, "input": tensor, "around": around(output)}


def barrier(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """One barrier for each member, who comes late to it; when each was entered and left.

    One goes before, for what is slow the first time: imports, connections.
    """
    impl.collectives.barrier(**keywords(here, inputs))
    entered, left = [], []
    for late in here.members:
        if here.rank == late:
            sleep(inputs["late_by"])
        entered.append(monotonic())
        impl.collectives.barrier(**keywords(here, inputs))
        left.append(monotonic())
    return {"entered": entered, "left": left}


def refusals(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """A good call, or bad ones, each wrong on every rank: what the good one gave or each raised.

    inputs: "good", the name of a case, with its inputs as "inputs"; or "calls", a list of
    [function, arguments by name], where {"zeros": shape, "dtype": name} stands for a tensor,
    "op.NAME" for a ReduceOp.
    """
    if "good" in inputs:
        good: dict[str, Any] = globals()[inputs["good"]](impl, here, inputs["inputs"])
        return good
    raised = []
    for function, arguments in inputs["calls"]:
        given = {name: build(value, here.device) for name, value in arguments.items()}
        try:
            getattr(impl.collectives, function)(**given)
            raised.append("nothing")
        except NotImplementedError:
            raise
        except Exception as error:
            raised.append("ValueError" if isinstance(error, ValueError) else type(error).__name__)
    return {"raised": raised}


def build(value: Any, device: torch.device) -> Any:
    if isinstance(value, dict):
        dtype = getattr(torch, value.get("dtype", "float32"))
        tensor = torch.zeros(value["zeros"], dtype=dtype, device=device)
        return tensor.expand(value["expand"]) if "expand" in value else tensor
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [build(item, device) for item in value]
    if isinstance(value, str) and value.startswith("op."):
        return getattr(dist.ReduceOp, value[3:])
    return value


def fill(tensor: Tensor, a: int, b: int, modulus: int) -> None:
    """Element i becomes (a i + b) mod m, of what is one-dimensional and large."""
    period = torch.arange(modulus, dtype=torch.int64, device=tensor.device)
    period = period.mul(a).add(b).remainder(modulus).to(tensor.dtype)
    whole = len(tensor) // len(period) * len(period)
    tensor[:whole].view(-1, len(period)).copy_(period)
    tensor[whole:] = period[: len(tensor) - whole]


def large(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """One call on tensors too large to send: element i is (a i + b) mod m.

    inputs: "function", "elements" (of the calling rank's input), "output_elements" (None: in
    place), "root" (None: it has none), "a" and "b" (of the calling rank alone: what its peers have
    it learns from them only), "modulus". The result stays in the rank, for `samples`; its size
    comes back.
    """
    if "starts" in inputs:
        return samples(inputs)
    tensor = result = torch.empty(inputs["elements"], device=here.device)
    fill(tensor, inputs["a"], inputs["b"], inputs["modulus"])
    function = getattr(impl.collectives, inputs["function"])
    if inputs["root"] is not None:
        function(tensor, inputs["root"])
    elif inputs["output_elements"] is None:
        function(tensor)
    else:
        result = tensor.new_full((inputs["output_elements"],), AROUND)
        function(result, tensor)
    multirank.context().state["result"] = result
    return {"elements": result.numel()}


def samples(inputs: dict[str, Any]) -> dict[str, Any]:
    """Pieces of the result of the call before, from places that were not known then."""
    result = multirank.context().state["result"].flatten()
    return {"pieces": [result[start : start + inputs["length"]] for start in inputs["starts"]]}


def timed(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """One turn in three calls: tensors get new numbers, all_reduce sums each, pieces come back.

    inputs: "do"; to "fill": "elements" of each tensor, float32, and for each "numbers", a and b as
    in `large`, with "modulus"; to "show": "starts" and "length". To "sum" does nothing but its
    calls, so that the time is theirs. The tensors are kept from turn to turn.
    """
    state = multirank.context().state
    match inputs["do"]:
        case "fill":
            shape = len(inputs["numbers"]), inputs["elements"]
            if "tensors" not in state:
                state["tensors"] = torch.empty(shape, device=here.device).unbind()
            for tensor, (a, b) in zip(state["tensors"], inputs["numbers"], strict=True):
                fill(tensor, a, b, inputs["modulus"])
        case "sum" if here.device.type == "cpu":
            for tensor in state["tensors"]:
                impl.collectives.all_reduce(tensor)
        case "sum":
            return {"seconds": seconds_on_gpu(impl.collectives.all_reduce, state["tensors"])}
        case "show":
            pieces = [tensor.unfold(0, inputs["length"], 1) for tensor in state["tensors"]]
            return {"pieces": [piece[inputs["starts"]] for piece in pieces]}
    return {}


def seconds_on_gpu(function: Any, tensors: Sequence[Tensor]) -> float:
    """What the calls take on the GPU itself, but for the first, in which ranks wait for the last
    of them."""
    first, *others = tensors
    function(first)
    start, stop = Event(enable_timing=True), Event(enable_timing=True)
    start.record()
    for tensor in others:
        function(tensor)
    stop.record()
    synchronize()
    return float(start.elapsed_time(stop)) / 1e3
