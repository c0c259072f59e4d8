"""Your parallel layers, on 1 to 4 ranks, against the same layers on one device.

Every rank runs the full layer and its parallel twin, forward and backward. What it has afterwards,
the output, the input's gradient and those of its parameters, must be the whole of what the full
layer gives, or the rank's part of it. A mistake in the regions (4.1) shows in all the others: begin
there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import multirank
from multirank import Operation, Run

from . import parallel_layers as rank_side
from .calls import Call
from .explain import source_place
from .parallel_layers import CONSTRUCTED, Layer
from .running import Subject, Worlds, fail, operations, require_finished

Group = tuple[int, ...] | None
SUBGROUP = (1, 3)  # of 4 ranks
# How far an element may be off, compared with the largest; the ranks add in another order.
CLOSE = {torch.float32: 1e-4, torch.bfloat16: 6e-2}
COPY, REDUCE = "copy_to_tensor_parallel_region", "reduce_from_tensor_parallel_region"
GATHER, SCATTER = "gather_from_tensor_parallel_region", "scatter_to_tensor_parallel_region"
PAIR = (COPY, REDUCE)
Parts = list[Tensor]


@pytest.fixture
def subject(implementation: str) -> Subject:
    """The module that is tested."""
    return Subject(implementation, "tensor_parallel")


Runner = Callable[..., Run]


@pytest.fixture
def run(subject: Subject, worlds: Worlds) -> Runner:
    """`run(calls, world_size, function, *args)`: calls a function of parallel_layers.py."""

    def run(
        calls: Sequence[Call], world_size: int, function: Callable[..., Any], *args: Any
    ) -> Run:
        __tracebackhide__ = True
        done = worlds.call(subject, world_size, calls, function, *args)
        require_finished(subject, done, calls)
        return done

    return run


def called(name: str, world_size: int, group: Group, **arguments: Any) -> Call:
    """A call, for messages."""
    return Call(name, dict.fromkeys(group or range(world_size), arguments), group=group)


def require_close(
    what: str,
    ranks: Sequence[int],
    actual: Sequence[Tensor | None],
    expected: Sequence[Tensor],
    largest: float = 0.0,
    guesses: Mapping[str, Parts] | None = None,
) -> None:
    """Fails unless every rank has what it should have.

    largest: of what is computed together with it; the gradient of a bias may be zero but for
        rounding.
    guesses: what the ranks would have, by the mistake that would lead to it.
    """
    __tracebackhide__ = True
    for rank, held, right in zip(ranks, actual, expected, strict=True):
        problem = ""
        if held is None:
            problem = "there is none"
        elif (held.shape, held.dtype) != (right.shape, right.dtype):
            problem = f"it is {described(held)}, and must be {described(right)}"
        elif right.numel():
            allowed = CLOSE[right.dtype] * max(largest, float(right.abs().max()))
            wrong = ~((held - right).abs() <= allowed)
            if bool(wrong.any()):
                where = [int(place) for place in wrong.nonzero()[0]]
                problem = (
                    f"{int(wrong.sum())} of {right.numel()} elements, the first at {where}: "
                    f"{float(held[tuple(where)]):.6g}, not {float(right[tuple(where)]):.6g}"
                )
        if problem:
            guessed = multirank.explain_shards(actual, expected, guesses)
            fail(f"{what} is wrong on rank {rank}.", [problem], guessed)


def described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


def require_found(
    what: str,
    ranks: Sequence[int],
    found: Sequence[dict[str, Any]],
    guesses: Mapping[str, Mapping[str, Parts]] | None = None,
) -> None:
    """Fails unless on every rank each result is as it should be, in the order they come back.

    guesses: for results by name, what mistakes would lead to.
    """
    __tracebackhide__ = True
    for name in found[0]:
        actual, expected = zip(*(one[name] for one in found), strict=True)
        weight = found[0].get(name.replace("bias", "weight"), found[0][name])[1]
        largest, guessed = float(weight.abs().max()), (guesses or {}).get(name)
        require_close(f"{what}: {name}", ranks, actual, expected, largest, guessed)


# --- Regions ------------------------------------------------------------------------------------


def numbers(rank: int, *shape: int) -> Tensor:
    """1, 2, ..., 7, 1, ... on rank 0; ten times that on rank 1; a hundred times on rank 2."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) % 7 + 1) * 10.0**rank).reshape(shape)


def require_region(
    run: Runner,
    name: str,
    world_size: int,
    x: Parts,
    gradient: Parts,
    output: Parts,
    input_gradient: Parts,
    group: Group = None,
    **how: Any,
) -> Run:
    """Forward, backward, and that neither changed what it was given."""
    __tracebackhide__ = True
    ranks = list(group or range(world_size))
    options = how.get("options", {})
    beside, summed = how.get("beside", False), how.get("summed", False)
    by_rank: list[list[dict[str, Any]]] = [[{"group": group}] for _ in range(world_size)]
    for place, rank in enumerate(ranks):
        by_rank[rank][0] |= {
            "x": x[place],
            "gradient": None if summed else gradient[place],
            "options": options,
            "beside": beside,
            "transposed": how.get("transposed", False),
        }
    call = called(name, world_size, group, x=x[0], **options)
    args = (name, multirank.per_rank(by_rank))
    done = run([call], world_size, rank_side.run_regions, *args)
    found = [done.results[rank][0] for rank in ranks]
    plus = " + x" if beside else ""
    n, dim = len(ranks), options.get("dim", -1)
    in_place = "an all-reduce in place of what is needed elsewhere, too: clone() it first"
    guesses = {"x": {in_place: [add(x)] * n}, "gradient": {in_place: [add(gradient)] * n}}
    if beside:  # the sum is then added to what has become the sum
        guesses["output"] = {in_place: [2 * add(x)] * n}
        guesses["input_gradient"] = {in_place: [2 * add(gradient)] * n}
    if options.get("backward") == "reduce_scatter":
        split = [own.chunk(n, dim)[place] for place, own in enumerate(gradient)]
        cause = "a split, where the gradients of all ranks must be added first"
        guesses["input_gradient"] = {cause: split}
    for key, what, right in (
        ("output", f"{name}(x){plus}", output),
        ("input_gradient", f"the gradient of x in {name}(x){plus}", input_gradient),
        ("x", f"x after {name}(x), which must not change it,", x),
        ("gradient", f"the output's gradient after the backward of {name}", gradient),
    ):
        if key != "gradient" or not summed:
            actual = [one[key] for one in found]
            require_close(what, ranks, actual, right, guesses=guesses.get(key))
    return done


def add(parts: Parts) -> Tensor:
    return torch.stack(parts).sum(0)


def pair(name: str, n: int, *shape: int) -> tuple[Parts, Parts, Parts, Parts]:
    """For copy_to and reduce_from: x, the output's gradient, the output, the input's gradient."""
    whole, different = [numbers(0, *shape)] * n, [numbers(place, *shape) for place in range(n)]
    if name == COPY:
        return whole, different, whole, [add(different)] * n
    return different, whole, [add(different)] * n, whole


@pytest.mark.problem("parallel_regions", share=0.125)
@pytest.mark.parametrize("name", PAIR)
def test_forward_and_backward(run: Runner, name: str) -> None:
    for world_size in (2, 3, 1):
        require_region(run, name, world_size, *pair(name, world_size, 2, 6))


@pytest.mark.problem("parallel_regions", share=0.1 / 2)
@pytest.mark.parametrize("backward", ["split", "reduce_scatter"])
def test_gather_from_tensor_parallel_region(run: Runner, backward: str) -> None:
    for n, dim in ((2, -1), (3, 0)):
        whole = numbers(0, 6, 6)
        different = [numbers(place, 6, 6) for place in range(n)]
        gradient = [whole] * n if backward == "split" else different
        total = whole if backward == "split" else add(different)
        own, right = ([*one.chunk(n, dim)] for one in (whole, total))
        options = {"dim": dim, "backward": backward}
        require_region(run, GATHER, n, own, gradient, [whole] * n, right, options=options)


@pytest.mark.problem("parallel_regions", share=0.15)
def test_scatter_to_tensor_parallel_region(run: Runner) -> None:
    for n, dim in ((2, -1), (3, 0)):
        whole = numbers(0, 6, 6)
        parts = [*whole.chunk(n, dim)]
        args = [whole] * n, parts, parts, [whole] * n
        require_region(run, SCATTER, n, *args, options={"dim": dim})


@pytest.mark.problem("parallel_regions", share=0.1)
@pytest.mark.parametrize("name", PAIR)
def test_beside_the_input(run: Runner, name: str) -> None:
    x, gradient, output, back = pair(name, 3, 2, 6)
    output = [a + b for a, b in zip(x, output, strict=True)]
    back = [a + b for a, b in zip(gradient, back, strict=True)]
    require_region(run, name, 3, x, gradient, output, back, beside=True)


@pytest.mark.problem("parallel_regions", share=0.05)
@pytest.mark.parametrize("name", PAIR)
def test_in_a_sub_group(run: Runner, name: str) -> None:
    require_region(run, name, 4, *pair(name, 2, 2, 6), group=SUBGROUP)


@pytest.mark.problem("parallel_regions", share=0.05)
@pytest.mark.parametrize("name", PAIR)
def test_other_layouts(run: Runner, name: str) -> None:
    require_region(run, name, 2, *pair(name, 2, 3, 6), transposed=True)
    x, _, output, _ = pair(name, 2, 2, 6)
    ones, twice = [torch.ones(2, 6)] * 2, [torch.full((2, 6), 2.0)] * 2
    back = twice if name == COPY else ones
    require_region(run, name, 2, x, ones, output, back, summed=True)


@pytest.mark.problem("parallel_regions", share=0.05)
@pytest.mark.parametrize("name", PAIR)
def test_one_all_reduce_is_enough(run: Runner, name: str) -> None:
    done = require_region(run, name, 4, *pair(name, 4, 2, 6))
    require_bytes(done, 2 * 0.75 * 48, name)


# --- Layers -------------------------------------------------------------------------------------


def require_layers(run: Runner, world_size: int, *layers: Layer) -> Run:
    """Each layer and its twin, forward and backward."""
    __tracebackhide__ = True
    calls = [
        called(one.kind, world_size, one.group, sizes=one.sizes, **one.options) for one in layers
    ]
    done = run(calls, world_size, rank_side.run_layers, layers)
    for number, layer in enumerate(layers):
        ranks = list(layer.group or range(world_size))
        told = [f"{layer.kind} of sizes {layer.sizes}", f"on {world_size} ranks"]
        told += [f"{name}={value}" for name, value in layer.options.items()]
        told += [f"in the group {list(layer.group)}"] if layer.group else []
        told += ["added to its input"] if layer.beside else []
        told += ["each rank with a full layer of its own"] if layer.masters_differ else []
        told += [layer.dtype] if layer.dtype != "float32" else []
        found = [done.results[rank][number] for rank in ranks]
        guesses = {"the output": bias_on_every_rank(layer, ranks, found)}
        if layer.kind == "ColumnParallelMLP":
            wrong = rank_side.split_throughout(layer, len(ranks), seed=ranks[0])
            guesses |= {
                f"the gradient of {name}": {SPLIT_THROUGHOUT: parts}
                for name, parts in wrong.items()
            }
        require_found(", ".join(told), ranks, found, guesses)
    return done


SPLIT_THROUGHOUT = (
    'a gather whose backward is "split" where the next layer is split, too: '
    "the other ranks' summands are missing"
)


def bias_on_every_rank(
    layer: Layer, ranks: Sequence[int], found: Sequence[dict[str, Any]]
) -> dict[str, Parts]:
    """The output, if each rank adds the bias of a RowParallelLinear to its summand."""
    name = {"RowParallelLinear": "bias", "ParallelMLP": "fc2.bias"}.get(layer.kind)
    if name is None or not layer.bias:
        return {}
    bias = rank_side.full(None, layer, seed=ranks[0]).get_parameter(name).detach()
    cause = "a bias that every rank adds before the sum, so that it is added n times"
    return {cause: [one["the output"][1] + (len(ranks) - 1) * bias for one in found]}


def require_bytes(done: Run, bound: float, what: str) -> None:
    """Fails if a rank moves more than 1.05 times the bound after the layer has been made."""
    __tracebackhide__ = True
    for rank in range(done.world_size):
        marks = [mark for mark in done.trace.marks if mark.rank == rank]
        start = max((mark.time for mark in marks if mark.label == CONSTRUCTED), default=0.0)
        used = [one for one in operations(done, rank, 0) if one.issued >= start]
        by_name = {"send": 0.0, "recv": 0.0}
        for one in used:
            by_name[one.name] = by_name.get(one.name, 0.0) + bytes_of(one)
        moved = sum(by_name.values()) - min(by_name["send"], by_name["recv"])
        if moved > 1.05 * bound:
            listed = [
                f"{one.name} of {one.nbytes} bytes, at {source_place(one.file, one.line)}: "
                f"{bytes_of(one):.0f}"
                for one in used
            ]
            fail(f"{what}: rank {rank} moves {moved:.0f} bytes; {bound:.0f} are enough.", listed)


def bytes_of(operation: Operation) -> float:
    """What a rank has to move for it, as the docstring counts."""
    if operation.name in ("send", "recv"):
        return operation.nbytes
    n = len(operation.group)
    passes = {"all_reduce": 2, "barrier": 0}.get(operation.name, 1)
    return passes * (n - 1) / n * operation.nbytes


def require_freed(run: Runner, layer: Layer) -> None:
    """Nothing of the full weights is in memory when the caller has let go of them."""
    __tracebackhide__ = True
    done = run([called(layer.kind, 4, None, sizes=layer.sizes)], 4, rank_side.memory, layer)
    for rank, found in enumerate(done.results):
        if found["kept"]:
            fail(
                f"{layer.kind} on rank {rank} keeps the memory of a full weight.",
                guessed=["a view of the full weight, or the full module, being kept"],
            )
        if found["held"] > 1.05 * found["right"]:
            fail(
                f"{layer.kind} on rank {rank} holds {found['held']} bytes of parameters and "
                f"buffers; its parts are {found['right']} bytes."
            )


def require_refused(run: Runner, world_size: int, good: Layer, *bad: Layer) -> None:
    """A good layer, and others that must raise ValueError before anything is communicated."""
    __tracebackhide__ = True
    require_layers(run, world_size, good)
    calls = [called(one.kind, world_size, None, sizes=one.sizes) for one in bad]
    done = run(calls, world_size, rank_side.attempt, bad)
    for number, layer in enumerate(bad):
        raised = done.results[0][number]
        what = f"{layer.kind} of sizes {layer.sizes} on {world_size} ranks must raise ValueError"
        if raised != "ValueError":
            fail(f"{what}; it raised {raised}.")
        if operations(done, 0, number):
            fail(f"{what} before it communicates.")


COLUMN, ROW = Layer("ColumnParallelLinear", (12, 24)), Layer("RowParallelLinear", (24, 12))
GATHERED = replace(COLUMN, options={"gather_output": True})


def in_bfloat16(layer: Layer) -> Layer:
    return replace(layer, dtype="bfloat16")


@pytest.mark.problem("parallel_linear", share=0.25)
def test_ColumnParallelLinear(run: Runner) -> None:
    for world_size in (2, 3, 1):
        require_layers(run, world_size, COLUMN, GATHERED, in_bfloat16(COLUMN))


@pytest.mark.problem("parallel_linear", share=0.25)
def test_RowParallelLinear(run: Runner) -> None:
    for world_size in (2, 3, 1):
        require_layers(run, world_size, ROW, replace(ROW, bias=False), in_bfloat16(ROW))


@pytest.mark.problem("parallel_linear", share=0.1)
def test_ColumnParallelLinear_and_RowParallelLinear_have_parts_of_one_master(run: Runner) -> None:
    require_layers(run, 3, *(replace(one, masters_differ=True) for one in (COLUMN, ROW)))


@pytest.mark.problem("parallel_linear", share=0.1)
def test_ColumnParallelLinear_and_RowParallelLinear_in_a_sub_group(run: Runner) -> None:
    require_layers(run, 4, *(replace(one, group=SUBGROUP) for one in (COLUMN, GATHERED, ROW)))


@pytest.mark.problem("parallel_linear", share=0.05)
def test_ColumnParallelLinear_and_RowParallelLinear_after_sum(run: Runner) -> None:
    require_layers(run, 2, *(replace(one, summed=True) for one in (COLUMN, GATHERED, ROW)))


@pytest.mark.problem("parallel_linear", share=0.05)
def test_ColumnParallelLinear_and_RowParallelLinear_refuse_what_does_not_divide(
    run: Runner,
) -> None:
    bad = replace(COLUMN, sizes=(6, 8)), replace(ROW, sizes=(8, 6))
    require_refused(run, 3, COLUMN, *bad)


@pytest.mark.problem("parallel_linear", share=0.1)
def test_ColumnParallelLinear_and_RowParallelLinear_keep_no_full_weight(run: Runner) -> None:
    require_freed(run, replace(COLUMN, sizes=(64, 64)))
    require_freed(run, replace(ROW, sizes=(64, 64)))


@pytest.mark.problem("parallel_linear", share=0.1)
def test_ColumnParallelLinear_and_RowParallelLinear_cost_one_all_reduce(run: Runner) -> None:
    for layer in (COLUMN, ROW):
        done = require_layers(run, 4, layer)
        require_bytes(done, 2 * 0.75 * 10 * 12 * 4, f"{layer.kind} of sizes {layer.sizes}")


MLP = Layer("ParallelMLP", (12, 24, 12), beside=True)
LECTURE = Layer("ColumnParallelMLP", (12, 24, 36, 12), beside=True)


@pytest.mark.problem("parallel_mlp", share=0.35)
def test_ColumnParallelMLP(run: Runner) -> None:
    relu = replace(LECTURE, activation="relu", bias=False)
    for world_size in (2, 3, 1):
        require_layers(run, world_size, LECTURE, relu, in_bfloat16(LECTURE))


@pytest.mark.problem("parallel_mlp", share=0.35)
def test_ParallelMLP(run: Runner) -> None:
    relu = replace(MLP, activation="relu", bias=False)
    for world_size in (2, 3, 1):
        require_layers(run, world_size, MLP, relu, in_bfloat16(MLP))


@pytest.mark.problem("parallel_mlp", share=0.1)
def test_ParallelMLP_and_ColumnParallelMLP_in_a_sub_group(run: Runner) -> None:
    require_layers(run, 4, *(replace(one, group=SUBGROUP) for one in (MLP, LECTURE)))


@pytest.mark.problem("parallel_mlp", share=0.1)
def test_ParallelMLP_costs_two_all_reduces(run: Runner) -> None:
    require_bytes(require_layers(run, 4, MLP), 4 * 0.75 * 10 * 12 * 4, "ParallelMLP")


@pytest.mark.problem("parallel_mlp", share=0.1)
def test_ParallelMLP_refuses_what_does_not_divide_and_keeps_no_full_weight(run: Runner) -> None:
    require_refused(run, 3, MLP, replace(MLP, sizes=(6, 8, 6)))
    require_freed(run, replace(MLP, sizes=(64, 128, 64)))


ATTENTION = Layer("ParallelAttention", (24, 12, 12), beside=True)  # hidden, heads, kv heads


@pytest.mark.problem("parallel_attention", share=0.5)
def test_ParallelAttention(run: Runner) -> None:
    for world_size in (2, 3, 1):
        require_layers(run, world_size, ATTENTION, in_bfloat16(ATTENTION))


@pytest.mark.problem("parallel_attention", share=0.25)
def test_ParallelAttention_with_grouped_heads(run: Runner) -> None:
    grouped = [replace(ATTENTION, sizes=(24, 12, kv_heads)) for kv_heads in (2, 4, 6)]
    require_layers(run, 2, *grouped, replace(grouped[0], bias=False))


@pytest.mark.problem("parallel_attention", share=0.1)
def test_ParallelAttention_in_a_sub_group(run: Runner) -> None:
    require_layers(run, 4, replace(ATTENTION, group=SUBGROUP))


@pytest.mark.problem("parallel_attention", share=0.15)
def test_ParallelAttention_costs_two_all_reduces_and_refuses_other_heads(run: Runner) -> None:
    done = require_layers(run, 4, ATTENTION)
    require_bytes(done, 4 * 0.75 * 10 * 24 * 4, "ParallelAttention")
    require_refused(run, 3, ATTENTION, replace(ATTENTION, sizes=(24, 12, 2)))


# --- The vocabulary -----------------------------------------------------------------------------

EMBEDDING = Layer("VocabParallelEmbedding", (12, 4))


@pytest.mark.problem("vocab_embedding", share=0.5)
def test_VocabParallelEmbedding(run: Runner) -> None:
    for world_size in (2, 3, 1):
        require_layers(run, world_size, EMBEDDING, in_bfloat16(EMBEDDING))


@pytest.mark.problem("vocab_embedding", share=0.3)
def test_VocabParallelEmbedding_of_a_vocabulary_that_does_not_divide(run: Runner) -> None:
    require_layers(run, 4, *(replace(EMBEDDING, sizes=(tokens, 4)) for tokens in (13, 5)))


@pytest.mark.problem("vocab_embedding", share=0.1)
def test_VocabParallelEmbedding_in_a_sub_group(run: Runner) -> None:
    require_layers(run, 4, replace(EMBEDDING, group=SUBGROUP))


@pytest.mark.problem("vocab_embedding", share=0.1)
def test_VocabParallelEmbedding_costs_one_all_reduce_and_keeps_no_full_weight(run: Runner) -> None:
    done = require_layers(run, 4, replace(EMBEDDING, sizes=(64, 4)))
    require_bytes(done, 2 * 0.75 * 3 * 64 * 4 * 4, "VocabParallelEmbedding")
    require_freed(run, replace(EMBEDDING, sizes=(64, 16)))


def require_losses(
    run: Runner, world_size: int, calls: Sequence[dict[str, Any]], told: str, group: Group = None
) -> Run:
    """The loss and the logits' gradient, against F.cross_entropy."""
    __tracebackhide__ = True
    named = [
        called("vocab_parallel_cross_entropy", world_size, group, logits=one["logits"])
        for one in calls
    ]
    given = [one | {"group": group} for one in calls]
    done = run(named, world_size, rank_side.run_cross_entropies, given)
    ranks = list(group or range(world_size))
    for number in range(len(calls)):
        what = f"vocab_parallel_cross_entropy on {world_size} ranks, {told}"
        require_found(what, ranks, [done.results[rank][number] for rank in ranks])
    return done


def loss_of(tokens: int = 12, scale: float = 1.0, **options: Any) -> dict[str, Any]:
    """Logits, and targets that go through the whole vocabulary."""
    generator = torch.Generator().manual_seed(tokens)
    logits = scale * torch.randn(3, 4, tokens, generator=generator)
    targets = torch.arange(12).mul(5).remainder(tokens).reshape(3, 4)
    return {"logits": logits, "targets": targets, "options": options}


@pytest.mark.problem("vocab_cross_entropy", share=0.4)
def test_vocab_parallel_cross_entropy(run: Runner) -> None:
    half = loss_of()
    half["logits"] = half["logits"].bfloat16()
    for world_size in (2, 3, 1):
        require_losses(run, world_size, [loss_of(), half], "with targets of all ranks")


@pytest.mark.problem("vocab_cross_entropy", share=0.2)
def test_vocab_parallel_cross_entropy_of_large_logits(run: Runner) -> None:
    require_losses(run, 2, [loss_of(scale=1000.0)], "with logits of 1000 and more")


@pytest.mark.problem("vocab_cross_entropy", share=0.2)
def test_vocab_parallel_cross_entropy_with_ignored_targets(run: Runner) -> None:
    call = loss_of()
    call["targets"][0, :3] = -100
    require_losses(run, 2, [call, loss_of(ignore_index=5)], "with ignored targets")


@pytest.mark.problem("vocab_cross_entropy", share=0.1)
def test_vocab_parallel_cross_entropy_of_a_vocabulary_that_does_not_divide(run: Runner) -> None:
    require_losses(run, 4, [loss_of(13), loss_of(5)], "with logits that stand for no token")
    require_losses(run, 4, [loss_of()], "in a sub-group", SUBGROUP)


@pytest.mark.problem("vocab_cross_entropy", share=0.1)
def test_vocab_parallel_cross_entropy_does_not_gather_the_logits(run: Runner) -> None:
    done = require_losses(run, 4, [loss_of(256)], "with 256 tokens")
    require_bytes(done, 3 * 2 * 0.75 * 12 * 4, "vocab_parallel_cross_entropy")
