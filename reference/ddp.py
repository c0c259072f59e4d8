# Problems in this file (points in problems.toml):
#   3.1  shard_batch                1 point
#   3.2  broadcast_parameters       2 points
#   3.3  all_reduce_gradients       3 points
#   3.4  partition_buckets          3 points
#   3.5  distributed_data_parallel  9 points
"""Data parallelism: every rank has all of the model and a part of the batch.

Training with n ranks is training with one, and one line more: after the backward pass every
gradient becomes the mean over the ranks. If all ranks began with the same parameters, and if the
loss is a mean over the rows of a batch of which every rank has as many, then this is the gradient
of the whole batch, and all ranks stay equal for good:

    model = DistributedDataParallel(model)                     # all ranks begin as one
    loss = loss_fn(model(inputs), targets)                     # of this rank's rows
    loss.backward()                                            # messages are on their way meanwhile
    model.finish_gradient_synchronization()                    # now p.grad is the mean
    optimizer.step()

The one line can be slow: a message for every parameter, all of them after the backward pass. With
one message for all, each latency but one is saved. And the gradients of the last layers are ready
long before those of the first: sent at once, in buckets, they cost no time while backward goes on.

What holds for all of it
    ``group=None`` is the default group, n is the number of ranks in the group, and ``src`` is a
    global rank, in a sub-group too. Every rank of the group makes the same calls, with a module of
    the same structure; what is in the module, and what of it is used, may differ. World size 1
    works.

    A parameter is trainable if it requires a gradient, which does not change later. The gradients
    of the others are not touched, and nothing is sent for them. A parameter that is used in several
    places (tied weights) is one parameter, as in ``module.parameters()``. Parameters and buffers
    are dense and contiguous, and parameters of several floating dtypes may be in one module. A
    gradient has its parameter's dtype, and travels in it.

    A gradient that is None on some rank, because that rank has not used the parameter, counts as
    zero there: where any rank has used it, all ranks end with the mean over all n ranks. If none
    has, then None and zero are both right.

Cost
    What is counted is what torch.distributed is asked to do: calls, and the bytes of their tensors
    (not what a collective sends on the wire). Gradients travel by ``dist.all_reduce``, and V is the
    bytes of all trainable parameters together. Where only n = 1 rank is, nothing is counted.

        broadcast_parameters           the bytes of all parameters and buffers
        all_reduce_gradients           V, in one call for each trainable parameter
        all_reduce_gradients, flat     V, in one call for each dtype
        DistributedDataParallel        V, in one call for each bucket; nothing inside no_sync

    Less is welcome. Beside that one call of at most a byte for each parameter is free each time
    (to tell the others what was used here, for example). More of either earns no points for cost,
    and what is sent counts only where the gradients are right.

Sources
    Li et al. 2020, PyTorch Distributed: Experiences on Accelerating Data Parallel Training:
    buckets, overlap, unused parameters, no_sync.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup, ReduceOp
from torch.nn import Parameter


def shard_batch(batch: Tensor, rank: int, world_size: int) -> Tensor:
    """The rows of a batch that one rank works on.

    Rank 0 has the first rows, rank 1 those that follow, and so on: together they have every row
    once, in order. If n does not divide the rows, the remainder goes to the first ranks, one row
    each: of 10 rows, 4 ranks have 3, 3, 2 and 2. Some ranks have none where there are too few.

    Args:
        batch: [rows, ...]; any dtype; not changed.
        rank: whose rows; its place in the group, from 0.
        world_size: n.

    Returns:
        [rows of the rank, ...], a view of batch or a copy.

    Raises:
        ValueError: batch has no dimension 0; world_size is below 1; rank is not in 0, ..., n-1.
    """
    if batch.dim() == 0:
        raise ValueError("batch: it has no dimension, but must have rows")
    if world_size < 1:
        raise ValueError(f"world_size: it is {world_size}, but must be at least 1")
    if not 0 <= rank < world_size:
        raise ValueError(f"rank: it is {rank}, but must be from 0 to {world_size - 1}")
    # BEGIN SOLUTION
    # dta-canary-5c1e7f0a9d3b
    each, remainder = divmod(len(batch), world_size)
    start = rank * each + min(rank, remainder)
    stop = start + each + (rank < remainder)
    return batch[start:stop]
    # END SOLUTION


@torch.no_grad()
def broadcast_parameters(module: nn.Module, src: int, group: ProcessGroup | None = None) -> None:
    """Give every rank the parameters and buffers of rank ``src``, in place.

    All of them: also those that are not trainable, and buffers that are not part of the
    state_dict; buffers may hold integers or bools. Autograd records nothing.

    Args:
        module: on src it keeps its values. The tensors themselves stay the same objects, so that an
            optimizer that was made before works on.
        src: the global rank that has the values.
        group: the ranks that take part.

    Cost: the bytes of all parameters and buffers, each once, in as many calls as you like.
    """
    # BEGIN SOLUTION
    for tensor in (*module.parameters(), *module.buffers()):
        dist.broadcast(tensor, src, group=group)
    # END SOLUTION


@torch.no_grad()
def all_reduce_gradients(
    module: nn.Module,
    *,
    flat: bool = False,
    group: ProcessGroup | None = None,
    all_reduce: Callable[..., object] = dist.all_reduce,
) -> None:
    """Make every gradient the mean over the ranks: what comes after ``loss.backward()``.

    Naive, a call for each trainable parameter. Flat, a call for each dtype: the gradients of that
    dtype travel as one tensor, and back. (Or fewer: see Cost at the top.)

    When it returns, ``p.grad`` of every trainable parameter is the mean, and only there: it may be
    the tensor that it was, or a new one.

    Args:
        module: its gradients are None, or dense and contiguous.
        flat: whether few long messages are sent in place of many short ones.
        group: the ranks that take part.
        all_reduce: what to communicate with, called with a tensor, ``op=`` and ``group=``; it
            returns when the result is in the tensor. With ``collectives.all_reduce``, this is data
            parallelism out of send and recv.

    Cost: V; without flat one call for each trainable parameter, with it one for each dtype.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    # BEGIN SOLUTION
    messages = [[parameter] for parameter in parameters]
    if flat:
        dtypes = dict.fromkeys(parameter.dtype for parameter in parameters)
        messages = [[p for p in parameters if p.dtype == dtype] for dtype in dtypes]
    for message in messages:
        gradients = flatten_gradients(message)
        all_reduce(gradients, op=ReduceOp.AVG, group=group)
        unflatten_gradients(gradients, message)
    # END SOLUTION


def partition_buckets(
    parameters: Iterable[Parameter], bucket_cap_mb: float = 25.0
) -> list[list[Parameter]]:
    """Which gradients travel together.

    Backward goes from the last layer to the first, so the gradient of the last parameter is ready
    first: the trainable parameters are taken in reverse order. Each goes into the bucket of the one
    before it, unless they differ in dtype, or the bucket would then hold more than the cap; in
    these cases it begins a new bucket. So a parameter that is larger than the cap has a bucket of
    its own, and all the buckets one after another are the trainable parameters in reverse order.

    Args:
        parameters: as ``module.parameters()`` gives them: each once; gone through once.
        bucket_cap_mb: the most that a bucket may hold, in MiB (2^20 bytes); any number above 0, so
            0.5 is 524,288 bytes. A bucket may hold just that.

    Returns:
        the buckets, none of them empty; no bucket where no parameter is trainable.

    Raises:
        ValueError: bucket_cap_mb is not above 0.
    """
    if not bucket_cap_mb > 0:
        raise ValueError(f"bucket_cap_mb: it is {bucket_cap_mb}, but must be above 0")
    # BEGIN SOLUTION
    cap = bucket_cap_mb * 2**20
    buckets: list[list[Parameter]] = []
    held = 0  # bytes in the last bucket
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in reversed(trainable):
        fits = buckets and held + parameter.nbytes <= cap
        if not fits or buckets[-1][-1].dtype != parameter.dtype:
            buckets.append([])
            held = 0
        buckets[-1].append(parameter)
        held += parameter.nbytes
    return buckets
    # END SOLUTION


class DistributedDataParallel(nn.Module):
    """A module whose gradients are averaged over the ranks while backward still runs.

    At construction all ranks get the parameters and buffers of the group's first rank. (Later the
    buffers are each rank's own.) After ``loss.backward()`` and
    ``finish_gradient_synchronization()``, ``p.grad`` of every trainable parameter is the mean over
    the ranks of what it would be without this class:

        for inputs, targets in micro_batches[:-1]:
            with model.no_sync():
                loss_fn(model(inputs), targets).backward()       # nothing is sent
        inputs, targets = micro_batches[-1]
        loss_fn(model(inputs), targets).backward()               # sends the sums of all of them
        model.finish_gradient_synchronization()

    Gradients that are there before a backward pass count, as always in torch: what is averaged is
    ``p.grad`` as that backward pass leaves it, with what earlier ones (inside ``no_sync``, or
    finished ones) have left there. Gradients may be set to None, or to zero, between the steps.

    There may be any number of steps, and a parameter that is unused in one may be used in the next.
    Whatever is unused, all ranks issue the same buckets in the same order, and every bucket has
    been reduced when ``finish_gradient_synchronization`` returns. One parameter may be used in
    several places of the model, and the model may be called several times before a backward pass.

    Order. A bucket is issued, with ``async_op=True``, as soon as its last gradient is ready and
    those before it have been issued. What is looked at, where all parameters are used and there is
    more than one bucket: the first bucket is issued before the last gradient is ready; nothing is
    waited for before the last gradient is ready; everything has been waited for when
    ``finish_gradient_synchronization`` returns.

    Buckets. Those of ``partition_buckets`` are the simplest. Others are as good, such as a smaller
    first one, as long as there are no more than one more, and none holds more than the cap (unless
    it holds one parameter alone), or more than your ``partition_buckets`` would put into one.

    Modelled time. A step of 8 equal layers on 4 ranks, with a bucket for each layer, is replayed on
    two modelled networks (``multirank.replay(trace, fabric)`` does it). Only messages take time
    there, and what the layers declare as compute: 1 ms forward and 2 ms backward each. The
    all-reduce of one layer takes 1 ms on the one network, and 4 ms on the other. Up to 1.1 times
    the time of one message for each layer, issued as soon as it can be, earns all points for it,
    and 1.2 times half; the worse counts. A step without overlap takes 1.28 and 1.33 times as long.

    torch.nn.parallel.DistributedDataParallel may not be used inside.

    The methods whose names begin with an underscore are a suggestion: they are not graded, and you
    may replace or remove them, or add others.

    Attributes:
        module: what it was made with.
        group: the ranks that take part.

    Cost: at construction that of ``broadcast_parameters``; for each backward pass outside
    ``no_sync`` V, in one call for each bucket.
    """

    def __init__(
        self, module: nn.Module, bucket_cap_mb: float = 25.0, group: ProcessGroup | None = None
    ) -> None:
        """
        Args:
            module: all ranks give one of the same structure; it is not copied.
            bucket_cap_mb: as for ``partition_buckets``.
            group: the ranks that take part.

        Raises:
            ValueError: bucket_cap_mb is not above 0.
        """
        super().__init__()
        self.module = module
        self.group = group
        # BEGIN SOLUTION
        first, *_ = dist.get_process_group_ranks(group)
        self._buckets = partition_buckets(module.parameters(), bucket_cap_mb)
        self._missing: list[int] = []  # for each bucket, the gradients that are not ready yet
        self._issued: list[tuple[Tensor, dist.Work]] = []  # all-reduces, in the order of buckets
        self._synchronizes = True
        broadcast_parameters(module, first, group)
        self._expect_gradients()
        for index, bucket in enumerate(self._buckets):
            for parameter in bucket:
                parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                    lambda _, index=index: self._gradient_is_ready(index)
                )
        # END SOLUTION

    def forward(self, *inputs: Any, **more: Any) -> Any:
        """Whatever the module makes of it."""
        return self.module(*inputs, **more)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside, backward passes send nothing, and gradients add up on each rank.

        Forward and backward of a micro-batch are both inside, or both outside. An exception leaves
        the block as usual, and outside gradients are averaged again.
        """
        # BEGIN SOLUTION
        self._synchronizes = False
        try:
            yield
        finally:
            self._synchronizes = True
        # END SOLUTION

    def finish_gradient_synchronization(self) -> None:
        """Wait until every gradient is the mean over the ranks.

        A bucket that still misses a gradient, because a parameter was not used here, is issued
        here: the other ranks may be waiting for it.

        Every rank calls it after each backward pass outside ``no_sync``, before the next forward
        pass. (What it does elsewhere is left open.)
        """
        # BEGIN SOLUTION
        while len(self._issued) < len(self._buckets):  # of parameters that were not used here
            self._issue_next_bucket()
        for bucket, (gradients, work) in zip(self._buckets, self._issued, strict=True):
            work.wait()
            unflatten_gradients(gradients, bucket)
        self._expect_gradients()
        # END SOLUTION

    def _expect_gradients(self) -> None:
        """As it is before a backward pass: no gradient is ready, no bucket issued."""
        # BEGIN SOLUTION
        self._missing = [len(bucket) for bucket in self._buckets]
        self._issued = []
        # END SOLUTION

    def _gradient_is_ready(self, index: int) -> None:
        """Called by autograd when another gradient of a bucket is in ``p.grad``."""
        # BEGIN SOLUTION
        if not self._synchronizes:
            return
        self._missing[index] -= 1
        # All ranks issue the buckets in one order, though they may be complete in another.
        while len(self._issued) < len(self._buckets) and not self._missing[len(self._issued)]:
            self._issue_next_bucket()
        # END SOLUTION

    def _issue_next_bucket(self) -> None:
        """Begin to average the gradients of the first bucket that was not issued yet."""
        # BEGIN SOLUTION
        gradients = flatten_gradients(self._buckets[len(self._issued)])
        work = dist.all_reduce(gradients, ReduceOp.AVG, group=self.group, async_op=True)
        self._issued.append((gradients, work))
        # END SOLUTION

    # --- Given: it looks like the module ----------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        """An attribute that this class does not have is the module's."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module":
                raise
            return getattr(self.module, name)

    def state_dict(self, *arguments: Any, **more: Any) -> Any:
        """The module's, so that it can be loaded with or without this class."""
        return self.module.state_dict(*arguments, **more)

    def load_state_dict(self, *arguments: Any, **more: Any) -> Any:
        """The module's."""
        return self.module.load_state_dict(*arguments, **more)


# --- Given: gradients as one tensor --------------------------------------------------------------


def flatten_gradients(parameters: Sequence[Parameter]) -> Tensor:
    """The gradients of parameters of one dtype, one after another, with zeros for None. A copy."""
    return torch.cat(
        [
            parameter.new_zeros(parameter.numel())
            if parameter.grad is None
            else parameter.grad.detach().flatten()
            for parameter in parameters
        ]
    )


@torch.no_grad()
def unflatten_gradients(flat: Tensor, parameters: Sequence[Parameter]) -> None:
    """The opposite: ``flat`` back into the gradients, which are made where there is none."""
    sizes = [parameter.numel() for parameter in parameters]
    for parameter, values in zip(parameters, torch.split(flat, sizes), strict=True):
        if parameter.grad is None:
            parameter.grad = torch.empty_like(parameter)
        parameter.grad.copy_(values.view_as(parameter))
