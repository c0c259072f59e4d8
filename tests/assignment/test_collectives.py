"""Your collectives, on 1 to 8 ranks, against what they are by definition.

Start here: the first test of each function is the plain case. A test calls the function on every
rank, each in a process of its own, and then looks at every tensor of every rank: what the function
writes must hold the right values, everything else must be as it was.

The inputs are made so that a wrong value tells where it comes from: see `digits`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed import ReduceOp

from .calls import Call
from .cost import Limit
from .explain import combine, listed
from .judge import Check
from .random_calls import FUNCTIONS, random_call
from .running import fail

WORLD_SIZES = (1, 2, 3, 4)
OPS = (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.AVG)
SUBGROUP = (1, 3)  # of 4 ranks

Shape = tuple[int, ...]
Group = tuple[int, ...] | None

# --- Inputs -------------------------------------------------------------------------------------


def digits(rank: int, shape: Shape, dtype: torch.dtype = torch.float32) -> Tensor:
    """1, 2, ..., 7, 1, 2, ... on rank 0; ten times that on rank 1; a hundred times on rank 2.

    So a sum shows each rank's part as a digit: in 4044 that of rank 2 is missing. bfloat16 is exact
    up to 256 only, so there it is 1, 2, 3, 1, ... times 4, 16, 64. int64 is large, so that whoever
    computes in floating point loses digits.
    """
    base, period = (4, 3) if dtype == torch.bfloat16 else (10, 7)
    values: Tensor = (torch.arange(math.prod(shape)) % period + 1) * base**rank
    if dtype == torch.int64:
        values *= 10**15 + 1
    return values.to(dtype).reshape(shape)


def operands(
    op: ReduceOp.RedOpType, rank: int, shape: Shape, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Numbers that `op` can combine exactly, in any order; which rank has the largest changes."""
    if op == ReduceOp.SUM:
        return digits(rank, shape, dtype)
    if op == ReduceOp.AVG:
        return 12 * digits(rank, shape, dtype)  # 12 can be divided by 2, 3 and 4
    index = torch.arange(math.prod(shape))
    period = 3 if op == ReduceOp.PRODUCT else 13
    return ((5 * rank + 3 * index + rank * index) % period + 1).to(dtype).reshape(shape)


def blank(shape: Shape, dtype: torch.dtype = torch.float32) -> Tensor:
    """What an output holds before the call."""
    return torch.full(shape, -1, dtype=dtype)


# --- Calls: what each function is given, and what must come out ----------------------------------


def broadcast(
    n: int,
    src: int = 0,
    shape: Shape = (5,),
    dtype: torch.dtype = torch.float32,
    group: Group = None,
    **how: Any,
) -> Call:
    """Everybody has the tensor of `src` afterwards."""
    ranks = group or range(n)
    return Call(
        "broadcast",
        {r: {"tensor": digits(r, shape, dtype), "src": src} for r in ranks},
        {r: {"tensor": digits(src, shape, dtype)} for r in ranks},
        group,
        **how,
    )


def scatter(
    n: int,
    src: int = 0,
    shape: Shape = (5,),
    dtype: torch.dtype = torch.float32,
    group: Group = None,
    **how: Any,
) -> Call:
    """Each rank has its tensor of the list of `src`."""
    ranks = group or range(n)
    return Call(
        "scatter",
        {
            r: {
                "tensor": blank(shape, dtype),
                "scatter_list": [digits(to, shape, dtype) for to in ranks] if r == src else None,
                "src": src,
            }
            for r in ranks
        },
        {r: {"tensor": digits(r, shape, dtype)} for r in ranks},
        group,
        **how,
    )


def gather(
    n: int,
    dst: int = 0,
    shape: Shape = (5,),
    dtype: torch.dtype = torch.float32,
    group: Group = None,
    **how: Any,
) -> Call:
    """`dst` has everybody's tensor in its list."""
    ranks = group or range(n)
    return Call(
        "gather",
        {
            r: {
                "tensor": digits(r, shape, dtype),
                "gather_list": [blank(shape, dtype) for _ in ranks] if r == dst else None,
                "dst": dst,
            }
            for r in ranks
        },
        {
            r: {"gather_list": [digits(source, shape, dtype) for source in ranks]}
            if r == dst
            else {}
            for r in ranks
        },
        group,
        **how,
    )


def reduce(
    n: int,
    dst: int = 0,
    shape: Shape = (5,),
    dtype: torch.dtype = torch.float32,
    op: ReduceOp.RedOpType = ReduceOp.SUM,
    group: Group = None,
    **how: Any,
) -> Call:
    """`dst` has all tensors combined; those of the others stay as they are."""
    ranks = group or range(n)
    inputs = {r: operands(op, r, shape, dtype) for r in ranks}
    return Call(
        "reduce",
        {r: {"tensor": inputs[r], "dst": dst, "op": op} for r in ranks},
        {r: {"tensor": combine(op, list(inputs.values()))} if r == dst else {} for r in ranks},
        group,
        **how,
    )


def all_gather(
    n: int,
    shape: Shape = (2,),
    dtype: torch.dtype = torch.float32,
    group: Group = None,
    **how: Any,
) -> Call:
    """Everybody has all inputs, one after another. shape: of one input."""
    ranks = group or range(n)
    whole = torch.cat([digits(r, shape, dtype) for r in ranks])
    return Call(
        "all_gather",
        {
            r: {"output": blank(tuple(whole.shape), dtype), "input": digits(r, shape, dtype)}
            for r in ranks
        },
        {r: {"output": whole} for r in ranks},
        group,
        **how,
    )


def reduce_scatter(
    n: int,
    shape: Shape = (2,),
    dtype: torch.dtype = torch.float32,
    op: ReduceOp.RedOpType = ReduceOp.SUM,
    group: Group = None,
    **how: Any,
) -> Call:
    """Each rank has its part of all inputs combined. shape: of one output."""
    ranks = group or range(n)
    whole = (len(ranks) * shape[0], *shape[1:])
    inputs = {r: operands(op, r, whole, dtype) for r in ranks}
    parts = combine(op, list(inputs.values())).tensor_split(len(ranks))
    return Call(
        "reduce_scatter",
        {r: {"output": blank(shape, dtype), "input": inputs[r], "op": op} for r in ranks},
        {r: {"output": part} for r, part in zip(ranks, parts, strict=True)},
        group,
        **how,
    )


def all_reduce(
    n: int,
    shape: Shape = (12,),
    dtype: torch.dtype = torch.float32,
    op: ReduceOp.RedOpType = ReduceOp.SUM,
    group: Group = None,
    **how: Any,
) -> Call:
    """Everybody has all tensors combined."""
    ranks = group or range(n)
    inputs = {r: operands(op, r, shape, dtype) for r in ranks}
    total = combine(op, list(inputs.values()))
    return Call(
        "all_reduce",
        {r: {"tensor": inputs[r], "op": op} for r in ranks},
        {r: {"tensor": total} for r in ranks},
        group,
        **how,
    )


def all_to_all(
    n: int,
    rows: Sequence[Sequence[int]] | None = None,
    shape: Shape = (2,),
    dtype: torch.dtype = torch.float32,
    group: Group = None,
    **how: Any,
) -> Call:
    """Each rank has what the others have for it. rows[i][j] go from the i-th rank to the j-th;
    None: one row to each, and no split sizes. shape: of one row."""
    ranks = group or range(n)
    table = torch.tensor(rows or [[1] * len(ranks)] * len(ranks))
    inputs = [
        digits(r, (int(sent.sum()), *shape), dtype) for r, sent in zip(ranks, table, strict=True)
    ]
    parts = [torch.split(own, sent.tolist()) for own, sent in zip(inputs, table, strict=True)]
    outputs = [torch.cat([own[j] for own in parts]) for j in range(len(ranks))]
    before: dict[int, dict[str, Any]] = {
        r: {"output": blank(tuple(outputs[i].shape), dtype), "input": inputs[i]}
        for i, r in enumerate(ranks)
    }
    if rows is not None:
        for i, r in enumerate(ranks):
            before[r]["output_split_sizes"] = table[:, i].tolist()
            before[r]["input_split_sizes"] = table[i].tolist()
    after = {r: {"output": outputs[i]} for i, r in enumerate(ranks)}
    return Call("all_to_all", before, after, group, **how)


def barrier(n: int, group: Group = None) -> Call:
    """Nothing goes in or comes out."""
    return Call("barrier", {r: {} for r in group or range(n)}, {}, group)


def of_every_kind(call: Callable[..., Call], *, shape: Shape = (4, 3)) -> list[Call]:
    """Calls on 3 ranks with several shapes, dtypes and layouts."""
    return [
        call(3, shape=shape),
        call(3, shape=(0,)),
        call(3, dtype=torch.bfloat16),
        call(3, dtype=torch.int64),
        call(3, shape=(6,), layout="strided"),
        call(3, shape=shape, layout="transposed"),
    ]


def wrong(call: Call, rank: int | None = None, **changes: Any) -> Call:
    """The call with other arguments, made by one rank only or by all."""
    before = {r: given | changes for r, given in call.before.items() if rank in (None, r)}
    return Call(call.function, before, {}, call.group, call.layout)


def outsider(call: Callable[..., Call], **arguments: Any) -> Call:
    """The call in a group of rank 1 alone, made by rank 0."""
    inside = call(2, group=(1,), **arguments)
    return Call(inside.function, {0: inside.before[1]}, {}, (1,))


# --- 1.2 broadcast ------------------------------------------------------------------------------


@pytest.mark.problem("broadcast", share=0.3)
def test_broadcast_gives_every_rank_the_tensor_of_rank_0(check: Check) -> None:
    for n in WORLD_SIZES:
        check(n, broadcast(n))


@pytest.mark.problem("broadcast", share=0.2)
def test_broadcast_sends_from_any_root(check: Check) -> None:
    for n in (2, 3, 4):
        check(n, *(broadcast(n, src=root) for root in reversed(range(n))))


@pytest.mark.problem("broadcast", share=0.1)
def test_broadcast_in_a_subgroup_takes_the_root_as_a_global_rank(check: Check) -> None:
    check(4, *(broadcast(4, src=root, group=SUBGROUP) for root in SUBGROUP))


@pytest.mark.problem("broadcast", share=0.1)
def test_broadcast_takes_any_shape_dtype_and_layout(check: Check) -> None:
    check(3, *of_every_kind(broadcast), broadcast(3, shape=()))


@pytest.mark.problem("broadcast", share=0.05)
def test_broadcast_refuses_wrong_arguments_before_it_sends(check: Check) -> None:
    good = broadcast(2)
    check.refuses(
        2,
        good,
        {
            "a root outside the group": wrong(good, src=2),
            "a calling rank outside the group": outsider(broadcast, src=1),
            "an expanded tensor where it is written": Call(
                "broadcast", {1: good.before[1]}, layout="expanded"
            ),
        },
    )


@pytest.mark.problem("broadcast", share=0.25)
def test_broadcast_costs_no_more_than_a_tree_with_64_kib_or_64_mib(check: Check) -> None:
    small, large = (broadcast(8, shape=(8,), width=width) for width in (2**11, 2**21))
    check.costs(8, Limit(3, "the tensor", messages=3), small, large)


# --- 1.3 scatter and gather ---------------------------------------------------------------------


@pytest.mark.problem("scatter_gather", share=0.2)
def test_scatter_gives_each_rank_its_tensor_of_the_list(check: Check) -> None:
    for n in WORLD_SIZES:
        check(n, scatter(n))


@pytest.mark.problem("scatter_gather", share=0.2)
def test_gather_fills_the_list_in_the_order_of_the_ranks(check: Check) -> None:
    for n in WORLD_SIZES:
        check(n, gather(n))


@pytest.mark.problem("scatter_gather", share=0.2)
def test_scatter_and_gather_work_with_any_root(check: Check) -> None:
    for n in (2, 3, 4):
        roots = reversed(range(n))
        check(n, *(call for root in roots for call in (scatter(n, src=root), gather(n, dst=root))))


@pytest.mark.problem("scatter_gather", share=0.15)
def test_scatter_and_gather_in_a_subgroup_take_the_root_as_a_global_rank(check: Check) -> None:
    for root in SUBGROUP:
        check(4, scatter(4, src=root, group=SUBGROUP), gather(4, dst=root, group=SUBGROUP))


@pytest.mark.problem("scatter_gather", share=0.1)
def test_scatter_and_gather_take_any_shape_dtype_and_layout(check: Check) -> None:
    check(3, *of_every_kind(scatter), scatter(3, shape=()))
    check(3, *of_every_kind(gather), gather(3, shape=()))


@pytest.mark.problem("scatter_gather", share=0.05)
def test_scatter_and_gather_refuse_wrong_arguments_before_they_send(check: Check) -> None:
    good = scatter(2)
    check.refuses(
        2,
        good,
        {
            "a root outside the group": wrong(good, src=2),
            "a missing list on the root": wrong(good, rank=0, scatter_list=None),
            "a list that is too short": wrong(good, rank=0, scatter_list=[digits(0, (5,))]),
            "a tensor of another dtype": wrong(good, rank=0, tensor=blank((5,), torch.int64)),
        },
    )
    good = gather(2)
    check.refuses(
        2,
        good,
        {
            "a calling rank outside the group": outsider(gather, dst=1),
            "a list where there is no root": wrong(good, rank=1, gather_list=[blank((5,))] * 2),
            "a list of another shape": wrong(good, rank=0, gather_list=[blank((6,))] * 2),
        },
    )


@pytest.mark.problem("scatter_gather", share=0.1)
def test_scatter_and_gather_send_each_tensor_once(check: Check) -> None:
    for call in (scatter, gather):
        check.costs(8, Limit(7 / 8, "the whole list"), call(8, shape=(7,), width=2**12))


# --- 1.4 reduce ---------------------------------------------------------------------------------


@pytest.mark.problem("reduce", share=0.25)
def test_reduce_adds_up_on_rank_0_and_leaves_the_others_alone(check: Check) -> None:
    for n in WORLD_SIZES:
        check(n, reduce(n))


@pytest.mark.problem("reduce", share=0.15)
def test_reduce_works_with_any_root(check: Check) -> None:
    for n in (2, 3, 4):
        check(n, *(reduce(n, dst=root) for root in reversed(range(n))))


@pytest.mark.problem("reduce", share=0.1)
def test_reduce_knows_every_op(check: Check) -> None:
    for n in (3, 4):
        check(n, *(reduce(n, dst=1, op=op) for op in OPS))


@pytest.mark.problem("reduce", share=0.1)
def test_reduce_in_a_subgroup_takes_the_root_as_a_global_rank(check: Check) -> None:
    for op in (ReduceOp.SUM, ReduceOp.AVG):
        check(4, *(reduce(4, dst=root, op=op, group=SUBGROUP) for root in SUBGROUP))


@pytest.mark.problem("reduce", share=0.1)
def test_reduce_takes_any_shape_dtype_and_layout(check: Check) -> None:
    check(3, *of_every_kind(reduce), reduce(3, shape=()))


@pytest.mark.problem("reduce", share=0.05)
def test_reduce_refuses_wrong_arguments_before_it_sends(check: Check) -> None:
    good = reduce(2)
    check.refuses(
        2,
        good,
        {
            "a root outside the group": wrong(good, dst=2),
            "another op": wrong(good, op=ReduceOp.BXOR),
            "a mean of integers": reduce(2, dtype=torch.int64, op=ReduceOp.AVG),
            "a calling rank outside the group": outsider(reduce, dst=1),
        },
    )


@pytest.mark.problem("reduce", share=0.25)
def test_reduce_costs_no_more_than_a_tree_with_64_kib_or_64_mib(check: Check) -> None:
    small, large = (reduce(8, shape=(8,), op=ReduceOp.MAX, width=width) for width in (2**11, 2**21))
    check.costs(8, Limit(3, "the tensor", messages=3), small, large)


# --- 1.5 all_gather -----------------------------------------------------------------------------


@pytest.mark.problem("all_gather", share=0.45)
def test_all_gather_gives_every_rank_all_inputs_in_order(check: Check) -> None:
    for n in WORLD_SIZES:
        check(n, all_gather(n), all_gather(n, shape=(3, 2)))


@pytest.mark.problem("all_gather", share=0.15)
def test_all_gather_works_in_a_subgroup(check: Check) -> None:
    check(4, all_gather(4, group=SUBGROUP), all_gather(4, group=(0, 2, 3)))


@pytest.mark.problem("all_gather", share=0.1)
def test_all_gather_takes_any_shape_dtype_and_layout(check: Check) -> None:
    check(3, *of_every_kind(all_gather))


@pytest.mark.problem("all_gather", share=0.05)
def test_all_gather_refuses_wrong_arguments_before_it_sends(check: Check) -> None:
    good = all_gather(2)
    check.refuses(
        2,
        good,
        {
            "an output of the wrong size": wrong(good, output=blank((3,))),
            "an output of another dtype": wrong(good, output=blank((4,), torch.int64)),
            "a 0-dimensional input": wrong(good, output=blank((2,)), input=digits(0, ())),
            "a calling rank outside the group": outsider(all_gather),
        },
    )


@pytest.mark.problem("all_gather", share=0.25)
def test_all_gather_costs_no_more_than_a_ring(check: Check) -> None:
    call = all_gather(4, shape=(2,), width=2**21)
    check.costs(4, Limit(3 / 4, "the output", messages=3, size=1 / 4), call)


# --- 1.6 reduce_scatter -------------------------------------------------------------------------


@pytest.mark.problem("reduce_scatter", share=0.35)
def test_reduce_scatter_gives_each_rank_its_part_of_the_sum(check: Check) -> None:
    for n in WORLD_SIZES:
        check(n, reduce_scatter(n), reduce_scatter(n, shape=(3, 2)))


@pytest.mark.problem("reduce_scatter", share=0.15)
def test_reduce_scatter_knows_every_op(check: Check) -> None:
    for n in (3, 4):
        check(n, *(reduce_scatter(n, op=op) for op in OPS))


@pytest.mark.problem("reduce_scatter", share=0.1)
def test_reduce_scatter_works_in_a_subgroup(check: Check) -> None:
    for op in (ReduceOp.SUM, ReduceOp.AVG):
        check(
            4, reduce_scatter(4, op=op, group=SUBGROUP), reduce_scatter(4, op=op, group=(0, 2, 3))
        )


@pytest.mark.problem("reduce_scatter", share=0.1)
def test_reduce_scatter_takes_any_shape_dtype_and_layout(check: Check) -> None:
    check(3, *of_every_kind(reduce_scatter))


@pytest.mark.problem("reduce_scatter", share=0.05)
def test_reduce_scatter_refuses_wrong_arguments_before_it_sends(check: Check) -> None:
    good = reduce_scatter(2)
    check.refuses(
        2,
        good,
        {
            "an input that does not divide": wrong(good, input=digits(0, (5,))),
            "an output of another dtype": wrong(good, output=blank((2,), torch.int64)),
            "another op": wrong(good, op=ReduceOp.BXOR),
            "a mean of integers": reduce_scatter(2, dtype=torch.int64, op=ReduceOp.AVG),
            "a calling rank outside the group": outsider(reduce_scatter),
        },
    )


@pytest.mark.problem("reduce_scatter", share=0.25)
def test_reduce_scatter_costs_no_more_than_a_ring(check: Check) -> None:
    call = reduce_scatter(4, shape=(2,), width=2**21)
    check.costs(4, Limit(3 / 4, "the input", messages=3, size=1 / 4), call)


# --- 1.7 all_reduce -----------------------------------------------------------------------------


@pytest.mark.problem("all_reduce", share=0.25)
def test_all_reduce_adds_up_on_every_rank(check: Check) -> None:
    for n in WORLD_SIZES:
        check(n, all_reduce(n), all_reduce(n, shape=(n, 2)))


@pytest.mark.problem("all_reduce", share=0.15)
def test_all_reduce_takes_sizes_that_do_not_divide_or_are_below_the_world_size(
    check: Check,
) -> None:
    for n in (2, 3, 4):
        sizes = (n + 1, 2 * n - 1, n - 1, 1)
        check(n, *(all_reduce(n, shape=(size,)) for size in sizes), all_reduce(n, shape=()))


@pytest.mark.problem("all_reduce", share=0.1)
def test_all_reduce_knows_every_op(check: Check) -> None:
    for n in (3, 4):
        check(n, *(all_reduce(n, op=op) for op in OPS))


@pytest.mark.problem("all_reduce", share=0.1)
def test_all_reduce_works_in_a_subgroup(check: Check) -> None:
    for op in (ReduceOp.SUM, ReduceOp.AVG):
        check(4, all_reduce(4, op=op, group=SUBGROUP), all_reduce(4, op=op, group=(0, 2, 3)))


@pytest.mark.problem("all_reduce", share=0.05)
def test_all_reduce_takes_any_shape_dtype_and_layout(check: Check) -> None:
    check(3, *of_every_kind(all_reduce))


@pytest.mark.problem("all_reduce", share=0.05)
def test_all_reduce_gives_all_ranks_the_same_bits(check: Check) -> None:
    values = [torch.sin(torch.arange(48) + 0.7 * rank) for rank in range(4)]
    call = Call("all_reduce", {r: {"tensor": x, "op": ReduceOp.SUM} for r, x in enumerate(values)})
    sums = [calls[0]["tensor"] for calls in check.results(4, call)]
    exact = torch.stack(values).double().sum(0)
    error = float((sums[0].double() - exact).abs().max())
    if error > 1e-6:
        fail(
            f"all_reduce is off by {error:.2g} on rank 0 of 4, with numbers that are not whole.",
            ["Rounding explains 1e-6; look at the other tests of all_reduce first."],
        )
    if others := [rank for rank in range(1, 4) if not torch.equal(sums[rank], sums[0])]:
        fail(
            f"all_reduce gives {listed(others)} other bits than rank 0.",
            ["called: all_reduce(tensor=float32 of shape (48,), op=SUM) on 4 ranks"],
            ["every rank adding up in an order of its own, on which rounding depends"],
        )


@pytest.mark.problem("all_reduce", share=0.05)
def test_all_reduce_refuses_wrong_arguments_before_it_sends(check: Check) -> None:
    good = all_reduce(2)
    check.refuses(
        2,
        good,
        {
            "another op": wrong(good, op=ReduceOp.BXOR),
            "a mean of integers": all_reduce(2, dtype=torch.int64, op=ReduceOp.AVG),
            "an expanded tensor": Call("all_reduce", good.before, layout="expanded"),
            "a calling rank outside the group": outsider(all_reduce),
        },
    )


@pytest.mark.problem("all_reduce", share=0.25)
def test_all_reduce_costs_no_more_than_a_ring(check: Check) -> None:
    call = all_reduce(4, shape=(8,), width=2**21)
    check.costs(4, Limit(2 * 3 / 4, "the tensor", messages=6, size=1 / 4), call)


# --- 1.8 all_to_all -----------------------------------------------------------------------------


@pytest.mark.problem("all_to_all", share=0.3)
def test_all_to_all_brings_each_rank_what_the_others_have_for_it(check: Check) -> None:
    for n in WORLD_SIZES:
        check(n, all_to_all(n), all_to_all(n, shape=()))


@pytest.mark.problem("all_to_all", share=0.2)
def test_all_to_all_follows_uneven_splits_some_of_them_zero(check: Check) -> None:
    check(1, all_to_all(1, [[3]]))
    check(2, all_to_all(2, [[1, 2], [3, 0]]))
    check(3, all_to_all(3, [[2, 0, 1], [1, 1, 3], [0, 0, 0]]))
    check(4, all_to_all(4, [[0, 1, 2, 3], [4, 0, 1, 0], [2, 2, 2, 2], [0, 3, 0, 1]]))


@pytest.mark.problem("all_to_all", share=0.1)
def test_all_to_all_works_in_a_subgroup(check: Check) -> None:
    check(4, all_to_all(4, group=SUBGROUP), all_to_all(4, [[1, 2], [0, 1]], group=SUBGROUP))


@pytest.mark.problem("all_to_all", share=0.1)
def test_all_to_all_takes_any_shape_dtype_and_layout(check: Check) -> None:
    check(3, *of_every_kind(all_to_all))


@pytest.mark.problem("all_to_all", share=0.05)
def test_all_to_all_refuses_wrong_arguments_before_it_sends(check: Check) -> None:
    good = all_to_all(2, [[1, 2], [2, 1]])
    check.refuses(
        2,
        good,
        {
            "splits that do not sum to the rows": wrong(good, input_split_sizes=[1, 1]),
            "splits for another number of ranks": wrong(good, output_split_sizes=[1, 1, 1]),
            "rows that do not divide, without splits": wrong(
                good, input_split_sizes=None, output_split_sizes=None
            ),
            "an output of another dtype": wrong(good, output=blank((3, 2), torch.int64)),
            "a calling rank outside the group": outsider(all_to_all),
        },
    )


@pytest.mark.problem("all_to_all", share=0.25)
def test_all_to_all_costs_no_more_than_pairwise_with_64_kib_or_64_mib(check: Check) -> None:
    small, large = (all_to_all(8, shape=(), width=width) for width in (2**11, 2**21))
    check.costs(8, Limit(3 / 2, "the input", messages=7, size=1 / 8), small, large)


# --- 1.9 barrier --------------------------------------------------------------------------------


@pytest.mark.problem("barrier", share=0.7)
def test_barrier_lets_nobody_leave_before_the_last_has_entered(check: Check) -> None:
    for n in WORLD_SIZES:
        check.separates(n)


@pytest.mark.problem("barrier", share=0.2)
def test_barrier_in_a_subgroup_waits_for_its_members_only(check: Check) -> None:
    check.separates(4, group=SUBGROUP)


@pytest.mark.problem("barrier", share=0.1)
def test_barrier_refuses_a_rank_outside_the_group(check: Check) -> None:
    check.separates(2)
    check.refuses(2, barrier(2), {"a calling rank outside the group": outsider(barrier)})


# --- all of them --------------------------------------------------------------------------------


@pytest.mark.parametrize("function", FUNCTIONS)
def test_random_cases_agree_with_torch_distributed(
    function: str, check: Check, request: pytest.FixtureRequest, pytestconfig: pytest.Config
) -> None:
    """As many as --fuzz says. A failure names the seed that repeats the case."""
    number = int(pytestconfig.getoption("--fuzz", 0))
    if number == 0:
        pytest.skip("give --fuzz N to compare N random cases with torch.distributed")
    seed = pytestconfig.getoption("--fuzz-seed", None)
    first = random.randrange(10**6) if seed is None else int(seed)
    for seed in range(first, first + number):
        case, failure = random_call(function, seed), ""
        try:
            check.agrees_with_torch(case.world_size, case.call)
        except pytest.fail.Exception as error:
            failure = str(error)
        if failure:
            nth = f"random case {seed - first + 1} of {number}"
            alone = f"pytest '{request.node.nodeid}' --fuzz 1 --fuzz-seed {seed}"
            fail(f"{nth}; to repeat it alone:\n    {alone}\n{failure}")
