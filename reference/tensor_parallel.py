# Problems in this file (points in problems.toml):
#   4.1  parallel_regions     4 points
#   4.2  parallel_linear      4 points
#   4.3  parallel_mlp         3 points
#   4.4  parallel_attention   2 points
#   4.5  vocab_embedding      2 points
#   4.6  vocab_cross_entropy  3 points
"""Tensor parallelism: each layer's weights are split over the ranks, and all ranks work together.

A rank that holds a part of a weight computes a part of the output, and the parts have to be put
together. What is easily forgotten is that backward communicates as well: the gradient of a tensor
that several ranks have used is the sum of what each of them finds. Autograd does not know of the
other ranks, so it has to be told: each communication is an autograd function, whose backward is
another communication. Nearly every mistake is silent, and shows in the gradients alone.

Whole and parallel
    n is the number of ranks in the group. A tensor is *whole* when all ranks have the same, and
    *sharded* along a dimension when the i-th rank of the group has the i-th of n equal parts of it.
    The gradient of a whole tensor is whole, too: every rank has the full gradient of the one loss
    that all of them compute. Of a sharded one, each rank has the gradient of its part.

        region            forward                     backward
        copy_to           whole -> whole: identity    all-reduce
        reduce_from       partial sums -> whole:      identity
                          all-reduce
        scatter_to        whole -> sharded: split     all-gather
        gather_from       sharded -> whole:           "split", where what follows is computed by
                          all-gather                  all ranks alike, such as the loss;
                                                      "reduce_scatter", where each rank does
                                                      something else with it

    copy_to and reduce_from are the f and g of Megatron-LM. Backward of gather_from is a
    reduce-scatter in general: the gradients of n uses are added. If all ranks go on alike, they are
    n times the same gradient, and the sum would be n times too large.

What holds for all of them
    Every rank of the group calls the function, or the constructor, forward and backward of the
    module, in the same order and with tensors of the same shape and dtype. ``group=None`` is the
    default group. A group may be any of the ranks, and of size 1. All of ``torch.distributed`` may
    be used.

    Tensors have dtype float32, float64 or bfloat16, and any strides; gradients may be expanded
    ones, as ``y.sum().backward()`` makes them. Neither forward nor backward changes a tensor that
    it was given: an input may be used once more beside the block, as in ``x + mlp(x)``, and so may
    a gradient.

    Modules are made from a full module. Every rank gives one of the same shape, but their values
    need not agree (each rank may have drawn its own, with a seed of its own): *the master is that
    of the group's first rank*, and the others get their parts from there. A parallel module keeps
    nothing of the full one. Its parameters have memory of their own: a view of the full weight
    would keep all of it alive. And no tensor that is saved for backward is, or holds on to, a full
    weight. Parameters have the dtype, the device and the requires_grad of the full ones. A size
    that n does not divide is refused with ValueError, before anything is communicated; only the
    vocabulary is padded.

Cost
    Bytes that forward and backward together move, on the busiest rank. With S the bytes of the
    tensor as a whole, an all-reduce counts 2 (n-1)/n S, whoever computes it, and a reduce-scatter
    or an all-gather (n-1)/n S; so an all-reduce may as well be written as those two. (A broadcast,
    a reduce or an all-to-all counts (n-1)/n S; of messages, what is sent or what is received,
    whichever is more.) Constructors are free. Up to
    1.05 times the bytes earns all points for cost, 1.6 times three quarters, 2.2 times half, and
    3.2 times a quarter.

        copy_to, reduce_from           one all-reduce
        scatter_to                     one all-gather
        gather_from                    one all-gather, and one reduce-scatter if it is asked for
        ColumnParallelLinear           one all-reduce of the input's gradient; one all-gather of the
                                       output, if it is gathered
        RowParallelLinear              one all-reduce of the output
        ColumnParallelMLP              for every layer an all-gather of its output; for every layer
                                       but the first, a reduce-scatter of its input's gradient; and
                                       for the first, an all-reduce of that
        ParallelMLP, ParallelAttention   two all-reduces of a tensor like the input
        VocabParallelEmbedding         one all-reduce of the output
        vocab_parallel_cross_entropy   three all-reduces of one float32 for each target

Sources
    Shoeybi et al. 2019, Megatron-LM: Training Multi-Billion Parameter Language Models Using Model
    Parallelism: f and g, the pairing of columns and rows, attention by heads, the vocabulary.
    Stanford CS336, the lecture on parallelism: an MLP by columns, with an all-gather per layer.
    Ainslie et al. 2023, GQA: heads that share keys and values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.nn import functional as F

Activation = Callable[[Tensor], Tensor]
"""An elementwise function, such as ``F.gelu``."""

# --- 4.1: the conjugate pairs --------------------------------------------------------------------


def copy_to_tensor_parallel_region(x: Tensor, group: ProcessGroup | None = None) -> Tensor:
    """Where a whole tensor goes into layers that are split (Megatron's f).

    Forward is the identity. Backward adds the gradients of all ranks, since each used ``x``.

    Args:
        x: whole.
        group: the ranks that take part.

    Returns:
        the same values.

    Cost: nothing forward, one all-reduce backward.
    """
    # BEGIN SOLUTION
    # dta-canary-5c1e7f0a9d3b
    return CopyTo.apply(x, group)  # type: ignore[no-any-return, no-untyped-call]
    # END SOLUTION


def reduce_from_tensor_parallel_region(x: Tensor, group: ProcessGroup | None = None) -> Tensor:
    """Where the ranks' partial sums become a whole tensor again (Megatron's g).

    Forward adds the tensors of all ranks. Backward is the identity: what is known of the sum is
    known of each summand. (``torch.distributed.nn``'s all_reduce is something else: its backward
    adds, which is right only if the ranks' losses are different ones.)

    Args:
        x: the calling rank's partial sum.
        group: the ranks that take part.

    Returns:
        the sum, whole, in a new tensor.

    Cost: one all-reduce forward, nothing backward.
    """
    # BEGIN SOLUTION
    return ReduceFrom.apply(x, group)  # type: ignore[no-any-return, no-untyped-call]
    # END SOLUTION


def gather_from_tensor_parallel_region(
    x: Tensor,
    dim: int = -1,
    group: ProcessGroup | None = None,
    *,
    backward: Literal["split", "reduce_scatter"] = "split",
) -> Tensor:
    """Puts the parts of a sharded tensor together.

    Forward concatenates the ranks' tensors along ``dim``. Backward gives each rank the gradient of
    its part.

    Args:
        x: the calling rank's part, with at least one dimension.
        dim: the dimension along which it is sharded; negative ones count from the end.
        group: the ranks that take part.
        backward: "split": all ranks go on alike, so each has the whole gradient, and takes its part
            of it. "reduce_scatter": each rank does something else with the result, so the
            gradients are added first.

    Returns:
        the whole tensor, with n times the size along ``dim``.

    Raises:
        ValueError: another ``backward``.

    Cost: one all-gather forward; backward nothing, or one reduce-scatter.
    """
    if backward not in ("split", "reduce_scatter"):
        raise ValueError(f'backward: {backward!r} is neither "split" nor "reduce_scatter"')
    # BEGIN SOLUTION
    return GatherFrom.apply(x, dim, group, backward)  # type: ignore[no-any-return, no-untyped-call]
    # END SOLUTION


def scatter_to_tensor_parallel_region(
    x: Tensor, dim: int = -1, group: ProcessGroup | None = None
) -> Tensor:
    """Gives each rank its part of a whole tensor.

    Forward takes the calling rank's part of ``x`` along ``dim``. Backward puts the gradients of all
    parts together: ``x`` is whole, and so must its gradient be.

    Args:
        x: whole, with at least one dimension.
        dim: the dimension to split; negative ones count from the end.
        group: the ranks that take part.

    Returns:
        the calling rank's part, with 1/n of the size along ``dim``.

    Raises:
        ValueError: n does not divide that size.

    Cost: nothing forward, one all-gather backward.
    """
    _check_divides(f"dimension {dim} of x", x.shape[dim], group)
    # BEGIN SOLUTION
    return ScatterTo.apply(x, dim, group)  # type: ignore[no-any-return, no-untyped-call]
    # END SOLUTION


class CopyTo(torch.autograd.Function):
    """f: the identity, and an all-reduce."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup | None) -> Tensor:
        """``x``."""
        # BEGIN SOLUTION
        ctx.group = group
        return x.view_as(x)
        # END SOLUTION

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient for ``x``, and None for every other argument of forward."""
        # BEGIN SOLUTION
        return _all_reduce(grad, ctx.group), None
        # END SOLUTION


class ReduceFrom(torch.autograd.Function):
    """g: an all-reduce, and the identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup | None) -> Tensor:
        """The sum of all ranks' ``x``."""
        # BEGIN SOLUTION
        return _all_reduce(x, group)
        # END SOLUTION

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient for ``x``, and None for every other argument of forward."""
        # BEGIN SOLUTION
        return grad, None
        # END SOLUTION


class GatherFrom(torch.autograd.Function):
    """An all-gather, and what is right for what follows: a split or a reduce-scatter."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: ProcessGroup | None, backward: str) -> Tensor:
        """All ranks' ``x``, one after another along ``dim``."""
        # BEGIN SOLUTION
        ctx.dim, ctx.group = dim, group
        ctx.gradient_of_part = _own_part if backward == "split" else _reduce_scatter
        return _all_gather(x, dim, group)
        # END SOLUTION

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient for ``x``, and None for every other argument of forward."""
        # BEGIN SOLUTION
        return ctx.gradient_of_part(grad, ctx.dim, ctx.group), None, None, None
        # END SOLUTION


class ScatterTo(torch.autograd.Function):
    """A split, and an all-gather."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: ProcessGroup | None) -> Tensor:
        """The calling rank's part of ``x`` along ``dim``."""
        # BEGIN SOLUTION
        ctx.dim, ctx.group = dim, group
        return _own_part(x, dim, group)
        # END SOLUTION

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient for ``x``, and None for every other argument of forward."""
        # BEGIN SOLUTION
        return _all_gather(grad, ctx.dim, ctx.group), None, None
        # END SOLUTION


def _all_reduce(x: Tensor, group: ProcessGroup | None) -> Tensor:
    """The sum of all ranks' ``x``, in a new tensor; ``x`` keeps its values.

    dist.all_reduce works in place, and on memory that is contiguous.
    """
    # BEGIN SOLUTION
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total
    # END SOLUTION


def _all_gather(x: Tensor, dim: int, group: ProcessGroup | None) -> Tensor:
    """All ranks' ``x``, one after another along ``dim``."""
    # BEGIN SOLUTION
    parts = [
        torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(_size(group))
    ]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.cat(parts, dim)
    # END SOLUTION


def _reduce_scatter(x: Tensor, dim: int, group: ProcessGroup | None) -> Tensor:
    """The calling rank's part, along ``dim``, of the sum of all ranks' ``x``."""
    # BEGIN SOLUTION
    parts = x.chunk(_size(group), dim)
    own = torch.empty_like(parts[0], memory_format=torch.contiguous_format)
    dist.reduce_scatter_tensor(own, torch.cat(parts), group=group)  # it splits dimension 0
    return own
    # END SOLUTION


def _own_part(x: Tensor, dim: int, group: ProcessGroup | None) -> Tensor:
    """The calling rank's part of ``x`` along ``dim``, in memory of its own."""
    # BEGIN SOLUTION
    return x.chunk(_size(group), dim)[dist.get_rank(group)].clone()
    # END SOLUTION


# --- 4.2: layers split by columns and by rows ----------------------------------------------------


def shard_parameter(
    full: Tensor, dim: int | None, group: ProcessGroup | None = None
) -> nn.Parameter:
    """The calling rank's part of the master, which is the ``full`` of the group's first rank.

    Args:
        full: a weight or bias; of the same shape, dtype and device on every rank. On all but the
            first its values do not matter.
        dim: the dimension that is split; None: every rank gets all of it.
        group: the ranks that take part.

    Returns:
        a parameter with memory of its own, contiguous, that requires a gradient if ``full`` does.

    Raises:
        ValueError: n does not divide the size of ``full`` along ``dim``.
    """
    if dim is not None:
        _check_divides(f"dimension {dim} of the parameter", full.shape[dim], group)
    # BEGIN SOLUTION
    source = full.detach()
    root = dist.get_process_group_ranks(group)[0]
    if dim is None:
        own = source.clone(memory_format=torch.contiguous_format)
        dist.broadcast(own, root, group=group)
    else:
        parts = [part.contiguous() for part in source.chunk(_size(group), dim)]
        own = torch.empty_like(parts[0])
        dist.scatter(own, parts if dist.get_rank() == root else None, root, group=group)
    return nn.Parameter(own, requires_grad=full.requires_grad)
    # END SOLUTION


class ColumnParallelLinear(nn.Module):
    """y = x A^T + b, with the output features split: each rank computes its part of y.

    (In Megatron's notation, y = x A, that is A split by columns; nn.Linear stores the transpose.)

    Args:
        linear: the full layer. Its out_features are split.
        gather_output: whether forward puts the whole output together, for something that all ranks
            do alike; else each rank returns its part, sharded along the last dimension.
        copy_input: whether forward does copy_to for its input. False: the caller has done it, once
            for several layers that share their input; else each of them would all-reduce.
        group: the ranks that take part.

    Attributes:
        weight: (out_features/n, in_features). bias: (out_features/n,); None if the layer has none.

    Raises:
        ValueError: n does not divide out_features.

    Cost: one all-reduce of the input's gradient, if copy_input; one all-gather of the output, if
    gather_output.
    """

    def __init__(
        self,
        linear: nn.Linear,
        *,
        gather_output: bool = False,
        copy_input: bool = True,
        group: ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        _check_divides("out_features", linear.out_features, group)
        self.gather_output = gather_output
        self.copy_input = copy_input
        self.group = group
        # BEGIN SOLUTION
        self.weight = shard_parameter(linear.weight, 0, group)
        self.bias = None if linear.bias is None else shard_parameter(linear.bias, 0, group)
        # END SOLUTION

    def forward(self, x: Tensor) -> Tensor:
        """The output, or the calling rank's part of it.

        Args:
            x: whole, of shape (..., in_features).

        Returns:
            shape (..., out_features) if gathered, else (..., out_features/n).
        """
        # BEGIN SOLUTION
        if self.copy_input:
            x = copy_to_tensor_parallel_region(x, self.group)
        y = F.linear(x, self.weight, self.bias)
        return gather_from_tensor_parallel_region(y, -1, self.group) if self.gather_output else y
        # END SOLUTION


class RowParallelLinear(nn.Module):
    """y = x A^T + b, with the input features split: each rank computes a partial sum of y.

    The bias is added once, to the sum. Every rank has all of it, and all of its gradient.

    Args:
        linear: the full layer. Its in_features are split.
        group: the ranks that take part.

    Attributes:
        weight: (out_features, in_features/n). bias: (out_features,); None if the layer has none.

    Raises:
        ValueError: n does not divide in_features.

    Cost: one all-reduce of the output, forward.
    """

    def __init__(self, linear: nn.Linear, *, group: ProcessGroup | None = None) -> None:
        super().__init__()
        _check_divides("in_features", linear.in_features, group)
        self.group = group
        # BEGIN SOLUTION
        self.weight = shard_parameter(linear.weight, 1, group)
        self.bias = None if linear.bias is None else shard_parameter(linear.bias, None, group)
        # END SOLUTION

    def forward(self, x: Tensor) -> Tensor:
        """The whole output.

        Args:
            x: sharded along the last dimension, of shape (..., in_features/n): what a
                ColumnParallelLinear gives, or scatter_to.

        Returns:
            shape (..., out_features).
        """
        # BEGIN SOLUTION
        y = reduce_from_tensor_parallel_region(F.linear(x, self.weight), self.group)
        return y if self.bias is None else y + self.bias
        # END SOLUTION


# --- 4.3: two MLPs -------------------------------------------------------------------------------


class ColumnParallelMLP(nn.Module):
    """Layers that are all split by columns, as in the lecture: x = activation(layer(x)), for each.

    Every layer needs the whole output of the one before, so there is an all-gather after each.
    Where that leads into another layer that is split, its backward is a reduce-scatter; after the
    last, a split.

    Args:
        layers: the full layers, in order, at least one.
        activation: elementwise, applied after each layer, the last too.
        group: the ranks that take part.

    Attributes:
        layers: a ModuleList with a ColumnParallelLinear for each layer.

    Raises:
        ValueError: there is no layer; n does not divide the out_features of one.

    Cost: for every layer an all-gather of its output; for every layer but the first, a
    reduce-scatter of its input's gradient; for the first, an all-reduce of that.
    """

    def __init__(
        self,
        layers: Iterable[nn.Linear],
        activation: Activation = F.gelu,
        *,
        group: ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        full_layers = list(layers)
        if not full_layers:
            raise ValueError("layers: there is none")
        for number, layer in enumerate(full_layers):
            _check_divides(f"out_features of layer {number}", layer.out_features, group)
        self.activation = activation
        self.group = group
        # BEGIN SOLUTION
        self.layers = nn.ModuleList(
            ColumnParallelLinear(layer, copy_input=False, group=group) for layer in full_layers
        )
        # END SOLUTION

    def forward(self, x: Tensor) -> Tensor:
        """The whole output.

        Args:
            x: whole, of shape (..., in_features of the first layer).

        Returns:
            shape (..., out_features of the last layer).
        """
        # BEGIN SOLUTION
        x = copy_to_tensor_parallel_region(x, self.group)
        last = len(self.layers) - 1
        for number, layer in enumerate(self.layers):
            x = gather_from_tensor_parallel_region(
                self.activation(layer(x)),
                -1,
                self.group,
                backward="split" if number == last else "reduce_scatter",
            )
        return x
        # END SOLUTION


class ParallelMLP(nn.Module):
    """fc2(activation(fc1(x))), with fc1 split by columns and fc2 by rows, as Megatron does it.

    The columns of fc1 are what the rows of fc2 need, so between the two nothing is communicated.

    Args:
        fc1, fc2: the full layers; fc2's in_features are fc1's out_features.
        activation: elementwise.
        group: the ranks that take part.

    Attributes:
        fc1: a ColumnParallelLinear. fc2: a RowParallelLinear.

    Raises:
        ValueError: n does not divide the features between the two.

    Cost: one all-reduce of the output forward, one of the input's gradient backward.
    """

    def __init__(
        self,
        fc1: nn.Linear,
        fc2: nn.Linear,
        activation: Activation = F.gelu,
        *,
        group: ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        _check_divides("out_features of fc1", fc1.out_features, group)
        self.activation = activation
        # BEGIN SOLUTION
        self.fc1 = ColumnParallelLinear(fc1, group=group)
        self.fc2 = RowParallelLinear(fc2, group=group)
        # END SOLUTION

    def forward(self, x: Tensor) -> Tensor:
        """The whole output.

        Args:
            x: whole, of shape (..., in_features of fc1).

        Returns:
            shape (..., out_features of fc2).
        """
        # BEGIN SOLUTION
        output: Tensor = self.fc2(self.activation(self.fc1(x)))
        return output
        # END SOLUTION


# --- 4.4: attention split by heads ---------------------------------------------------------------


class Attention(nn.Module):
    """Multi-head self-attention on one device: what ParallelAttention is made from. Given.

    Args:
        hidden: the width of input and output.
        num_heads: query heads; it divides hidden.
        num_kv_heads: heads of keys and values, each for num_heads/num_kv_heads query heads in a
            row; None: as many as query heads.
        bias: whether the projections have one.
        causal: whether a position sees itself and what is before it only.

    Attributes:
        head_dim: hidden/num_heads. q_proj, k_proj, v_proj, o_proj: nn.Linear. Their features are
            those of head 0, then of head 1, and so on.
    """

    def __init__(
        self,
        hidden: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        *,
        bias: bool = True,
        causal: bool = True,
    ) -> None:
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if hidden % num_heads or num_heads % num_kv_heads:
            raise ValueError(
                f"num_heads, {num_heads}, must divide hidden, {hidden}, and be a multiple of "
                f"num_kv_heads, {num_kv_heads}"
            )
        self.num_heads, self.num_kv_heads, self.causal = num_heads, num_kv_heads, causal
        self.head_dim = hidden // num_heads
        kv_features = num_kv_heads * self.head_dim
        self.q_proj = nn.Linear(hidden, hidden, bias=bias)
        self.k_proj = nn.Linear(hidden, kv_features, bias=bias)
        self.v_proj = nn.Linear(hidden, kv_features, bias=bias)
        self.o_proj = nn.Linear(hidden, hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Shape (batch, sequence, hidden), as ``x``."""
        heads = attend(
            self.q_proj(x), self.k_proj(x), self.v_proj(x), self.head_dim, causal=self.causal
        )
        output: Tensor = self.o_proj(heads)
        return output


def attend(query: Tensor, key: Tensor, value: Tensor, head_dim: int, *, causal: bool) -> Tensor:
    """softmax(Q K^T / sqrt(head_dim)) V for every head, however many there are. Given.

    Args:
        query: (batch, sequence, heads x head_dim).
        key, value: (batch, sequence, key/value heads x head_dim), with fewer heads or as many.

    Returns:
        the shape of ``query``.
    """
    q, k, v = (x.reshape(*x.shape[:-1], -1, head_dim).transpose(1, 2) for x in (query, key, value))
    heads = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    return heads.transpose(1, 2).flatten(-2)


class ParallelAttention(nn.Module):
    """Self-attention with the heads split over the ranks: the i-th has the i-th part of them.

    Heads do not need each other before they are put together by o_proj. The three projections
    share their input, and so one copy_to.

    Args:
        attention: the full module. Its key/value heads are as many as ranks, or a multiple.
        group: the ranks that take part.

    Attributes:
        q_proj, k_proj, v_proj: ColumnParallelLinear. o_proj: RowParallelLinear.

    Raises:
        ValueError: n does not divide num_kv_heads (and so num_heads).

    Cost: one all-reduce of the output forward, one of the input's gradient backward.
    """

    def __init__(self, attention: Attention, *, group: ProcessGroup | None = None) -> None:
        super().__init__()
        _check_divides("num_kv_heads", attention.num_kv_heads, group)
        self.head_dim, self.causal = attention.head_dim, attention.causal
        self.group = group
        # BEGIN SOLUTION
        self.q_proj = ColumnParallelLinear(attention.q_proj, copy_input=False, group=group)
        self.k_proj = ColumnParallelLinear(attention.k_proj, copy_input=False, group=group)
        self.v_proj = ColumnParallelLinear(attention.v_proj, copy_input=False, group=group)
        self.o_proj = RowParallelLinear(attention.o_proj, group=group)
        # END SOLUTION

    def forward(self, x: Tensor) -> Tensor:
        """The whole output.

        Args:
            x: whole, of shape (batch, sequence, hidden).

        Returns:
            the shape of ``x``.
        """
        # BEGIN SOLUTION
        x = copy_to_tensor_parallel_region(x, self.group)
        query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        output: Tensor = self.o_proj(attend(query, key, value, self.head_dim, causal=self.causal))
        return output
        # END SOLUTION


# --- 4.5 and 4.6: the vocabulary -----------------------------------------------------------------


class VocabParallelEmbedding(nn.Module):
    """An embedding with its rows split: each rank looks up the tokens that it has.

    With V tokens, the i-th rank has the R = ceil(V/n) rows from i R on. If n does not divide V,
    rows of zeros follow the last token; they are never looked up, and their gradient is zero.

    Args:
        embedding: the full one, without padding_idx, max_norm, scale_grad_by_freq and sparse.
        group: the ranks that take part.

    Attributes:
        num_embeddings: V. weight: (R, embedding_dim).

    Raises:
        ValueError: the embedding has one of these options.

    Cost: one all-reduce of the output, forward.
    """

    def __init__(self, embedding: nn.Embedding, *, group: ProcessGroup | None = None) -> None:
        super().__init__()
        for option in ("padding_idx", "max_norm", "scale_grad_by_freq", "sparse"):
            if getattr(embedding, option) not in (None, False):
                raise ValueError(f"embedding: it has {option}, which is not supported here")
        self.num_embeddings = embedding.num_embeddings
        self.group = group
        # BEGIN SOLUTION
        missing = -self.num_embeddings % _size(group)
        padded = F.pad(embedding.weight.detach(), (0, 0, 0, missing))
        padded.requires_grad_(embedding.weight.requires_grad)
        self.weight = shard_parameter(padded, 0, group)
        # END SOLUTION

    def forward(self, ids: Tensor) -> Tensor:
        """The rows of the tokens, whole.

        Args:
            ids: the same int64 tensor of any shape on every rank, with values from 0 to V-1.

        Returns:
            shape (*ids.shape, embedding_dim).
        """
        # BEGIN SOLUTION
        rows = len(self.weight)
        local = ids - dist.get_rank(self.group) * rows
        elsewhere = (local < 0) | (local >= rows)
        found = F.embedding(local.masked_fill(elsewhere, 0), self.weight)
        found = found.masked_fill(elsewhere.unsqueeze(-1), 0)
        return reduce_from_tensor_parallel_region(found, self.group)
        # END SOLUTION


def vocab_parallel_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    *,
    vocab_size: int | None = None,
    ignore_index: int = -100,
    group: ProcessGroup | None = None,
) -> Tensor:
    """F.cross_entropy of logits that are split along the vocabulary, without gathering them.

    For a target t: log(sum over v of exp(logits_v)) - logits_t. Each of the three things that are
    needed of the other ranks is one number for each target: the largest logit, which is subtracted
    first so that exp does not overflow; the sum; and the target's logit, which one rank has. The
    gradient needs no communication: it is softmax - onehot, each rank's part of it.

    All is computed in float32 (float64 for float64 logits).

    Args:
        logits: the calling rank's part, of shape (..., R), where the i-th rank has the logits of
            the R tokens from i R on. Finite, and of any size.
        targets: the same int64 tensor of shape (...) on every rank: tokens, or ignore_index.
        vocab_size: V, if the last n R - V logits, of all n R, stand for no token (see
            VocabParallelEmbedding): they take no part, and their gradient is zero. None: n R.
        ignore_index: what stands for a target that does not count: no part in the mean, and no
            gradient. At least one target counts.
        group: the ranks that take part.

    Returns:
        the mean over the targets that count: a 0-dimensional tensor of float32 (or float64), the
        same on every rank.

    Raises:
        ValueError: targets' shape is not that of logits without its last dimension; vocab_size is
            not from 1 to n R.

    Cost: three all-reduces of one float32 for each target, forward; backward nothing.
    """
    if targets.shape != logits.shape[:-1]:
        raise ValueError(
            f"targets: the shape is {tuple(targets.shape)}, but must be {tuple(logits.shape[:-1])}"
        )
    all_logits = logits.shape[-1] * _size(group)
    vocab_size = all_logits if vocab_size is None else vocab_size
    if not 1 <= vocab_size <= all_logits:
        raise ValueError(f"vocab_size: it is {vocab_size}, but must be from 1 to {all_logits}")
    # BEGIN SOLUTION
    first = dist.get_rank(group) * logits.shape[-1]
    local = logits if logits.dtype == torch.float64 else logits.float()
    tokens = torch.arange(first, first + logits.shape[-1], device=logits.device)
    local = local.masked_fill(tokens >= vocab_size, -torch.inf)

    largest = local.detach().amax(dim=-1)
    dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)
    local = local - largest.unsqueeze(-1)
    sum_exp = reduce_from_tensor_parallel_region(local.exp().sum(dim=-1), group)

    index = targets - first
    elsewhere = (index < 0) | (index >= logits.shape[-1])
    index = index.masked_fill(elsewhere, 0)
    target_logit = local.gather(-1, index.unsqueeze(-1)).squeeze(-1).masked_fill(elsewhere, 0)
    target_logit = reduce_from_tensor_parallel_region(target_logit, group)

    counts = targets != ignore_index
    losses = (sum_exp.log() - target_logit).masked_fill(~counts, 0)
    return losses.sum() / counts.sum()
    # END SOLUTION


# --- Given ---------------------------------------------------------------------------------------


def _size(group: ProcessGroup | None) -> int:
    """n."""
    return dist.get_world_size(group)


def _check_divides(what: str, size: int, group: ProcessGroup | None) -> None:
    """Refuse a size that cannot be split into n equal parts."""
    if size % _size(group):
        raise ValueError(f"{what}: {size} cannot be divided among {_size(group)} ranks")
