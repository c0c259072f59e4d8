"""Programs that come to their end, or whose end cannot be told: none of them is a deadlock."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from multirank import context


def x(elements: int = 4) -> torch.Tensor:
    return torch.ones(elements)


def me() -> tuple[int, int]:
    return dist.get_rank(), dist.get_world_size()


def every() -> list[torch.Tensor]:
    return [x() for _ in range(dist.get_world_size())]


def settle() -> None:
    """Longer than it takes to see a deadlock and to believe it."""
    time.sleep(0.8)


def long_compute() -> None:
    if me()[0] == 0:
        until = time.monotonic() + 0.8
        while time.monotonic() < until:
            pass
    dist.barrier()


def a_slow_peer() -> None:
    r, n = me()
    if r == 0:
        settle()
    dist.send(x(), 1) if r == 0 else dist.recv(x(), r - 1)
    if 0 < r < n - 1:
        dist.send(x(), r + 1)


def a_thread_that_serves() -> None:
    if me()[0] == 0:

        def serve() -> None:
            settle()
            dist.send(x(), 1)

        thread = threading.Thread(target=serve)
        thread.start()
        dist.recv(x(), 1)
        thread.join()
    elif me()[0] == 1:
        dist.recv(x(), 0)
        dist.send(x(), 0)


def a_thread_that_outlives_its_function() -> None:
    if me()[0] == 0:

        def serve() -> None:
            settle()
            dist.send(x(), 1)

        threading.Thread(target=serve).start()
    elif me()[0] == 1:
        dist.recv(x(), 0)


def a_callback_that_serves() -> None:
    if me()[0] == 0:
        work = dist.all_reduce(x(), async_op=True)
        assert work is not None

        def serve(_: Any) -> None:
            settle()
            dist.send(x(), 1, tag=2)

        work.get_future().add_done_callback(serve)
        dist.recv(x(), 1, tag=3)
    elif me()[0] == 1:
        dist.all_reduce(x())
        dist.recv(x(), 0, tag=2)
        dist.send(x(), 0, tag=3)


def leaving_a_gather_early() -> None:
    """1 needs its root only, which is late; it does not need 2, which waits for it."""
    r, _ = me()
    if r == 0:
        settle()
    if r == 2:
        dist.recv(x(), 1)
    dist.gather(x(), every() if r == 0 else None)
    if r == 1:
        dist.send(x(), 2)


def leaving_a_scatter_early() -> None:
    """1 needs its root only, which is late; it does not need 2, which waits for it."""
    r, _ = me()
    if r == 0:
        settle()
    if r == 2:
        dist.recv(x(), 1)
    dist.scatter(x(), every() if r == 0 else None)
    if r == 1:
        dist.send(x(), 2)


def leaving_a_broadcast_early() -> None:
    """1 needs its root only, which is late; it does not need 2, which waits for it."""
    r, _ = me()
    if r == 0:
        settle()
    if r == 2:
        dist.recv(x(), 1)
    dist.broadcast(x(), 0)
    if r == 1:
        dist.send(x(), 2)


def leaving_a_reduce_of_few_elements_early() -> None:
    """With fewer elements than ranks some have nothing to pass on: 4 does not need 1."""
    r, _ = me()
    if r == 3:
        settle()
    if r == 1:
        dist.recv(x(), 4)
    dist.reduce(x(), 0)
    if r == 4:
        dist.send(x(), 1)


def leaving_empty_collectives_early() -> None:
    r, _n = me()
    if r == 1:
        settle()
        dist.recv(x(), 0)
    dist.all_reduce(x(0))
    dist.reduce(x(0), 1)
    dist.all_gather_into_tensor(x(0), x(0))
    dist.reduce_scatter_tensor(x(0), x(0))
    if r == 0:
        dist.send(x(), 1)


def a_sub_group_that_only_its_members_make() -> None:
    os.environ["TORCH_DIST_INIT_BARRIER"] = "1"  # torch then lets them wait for each other
    r, _ = me()
    if r == 1:
        settle()
    if r < 2:
        group = dist.new_group([0, 1], use_local_synchronization=True)
        dist.barrier(group)


def a_wait_with_a_deadline_of_its_own() -> None:
    if me()[0] == 0:
        work = dist.irecv(x(), 1)
        assert work is not None
        try:
            work.wait(timedelta(seconds=0.7))
        except RuntimeError:
            time.sleep(0.3)
            return
        raise AssertionError("nobody has sent it")


def a_failure_that_is_handled() -> None:
    """After the exception the rank waits for nothing any more."""
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=0.5))
    if me()[0] == 0:
        try:
            dist.barrier()
        except RuntimeError:
            settle()
            return
    time.sleep(0.8)


def large_messages() -> None:
    r, n = me()
    for _ in range(2):
        sent = dist.isend(x(1 << 24), (r + 1) % n)
        dist.recv(x(1 << 24), (r - 1) % n)
        assert sent is not None
        sent.wait()
    dist.broadcast(x(1 << 24), 0)


def from_anybody_and_from_somebody() -> None:
    r, n = me()
    if r == 0:
        later = dist.irecv(x(), 2)
        for _ in range(n - 1):
            dist.recv(x())
        assert later is not None
        later.wait()
    else:
        time.sleep(0.3 * r)
        dist.send(x(), 0)
        if r == 2:
            dist.send(x(), 0)


def two_receives_from_one_and_any_from_the_other() -> None:
    """More receives are posted than messages sent; the one from any rank is served all the same."""
    r, _ = me()
    if r == 0:
        handles = [dist.irecv(x(), 2), dist.irecv(x(), 2)]
        dist.recv(x())
        dist.send(x(), 2)
        for handle in handles:
            assert handle is not None
            handle.wait()
    elif r == 1:
        settle()
        dist.send(x(), 0)
    elif r == 2:
        dist.recv(x(), 0)
        dist.send(x(), 0)
        dist.send(x(), 0)


def a_group_made_twice() -> None:
    """Its second life has the name of the first; what was left over there counts for nothing."""
    r = context().rank
    for life in range(2):
        dist.init_process_group(
            "gloo",
            init_method=f"file://{context().rendezvous}.{life}",
            rank=r,
            world_size=context().world_size,
        )
        dist.all_reduce(x())
        if life == 0:
            left_over = dist.irecv(x(8), 1) if r == 0 else None  # nobody will send it
        elif r == 0:
            dist.recv(x(), 1)
        else:
            dist.send(x(), 0)
        dist.barrier()
        dist.destroy_process_group()
    del left_over


def ranks_in_another_order() -> None:
    """The program numbers its ranks the other way round."""
    size = context().world_size
    dist.init_process_group(
        "gloo",
        init_method=f"file://{context().rendezvous}.turned",
        rank=size - 1 - context().rank,
        world_size=size,
    )
    r, _n = me()
    if r == 0:
        settle()
        dist.send(x(), 1)
    elif r == 1:
        dist.recv(x(), 0)
    dist.broadcast(x(), 0)


def data_parallel() -> None:
    model = DistributedDataParallel(torch.nn.Linear(8, 8), bucket_cap_mb=0.0001)
    for _ in range(3):
        if me()[0] == 0:
            time.sleep(0.2)
        model(torch.ones(2, 8)).sum().backward()


def data_parallel_with_an_unused_parameter_everywhere() -> None:
    """The first buckets are reduced; but backward then ends, and waits for nothing."""

    class Layers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(2)])

        def forward(self, value: torch.Tensor, first: int) -> torch.Tensor:
            for layer in list(self.layers)[first:]:
                value = layer(value)
            return value

    model = DistributedDataParallel(Layers(), bucket_cap_mb=0.00001)
    model(torch.ones(2, 4), 0).sum().backward()  # makes the buckets anew, in order
    loss = model(torch.ones(2, 4), 1).sum()
    if me()[0] == 0:
        loss.backward()
        settle()
        dist.send(x(), 1)
    else:
        dist.recv(x(), 0)
        loss.backward()


def fully_sharded() -> None:
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    for _ in range(2):
        if me()[0] == 1:
            time.sleep(0.2)
        model(torch.ones(2, 8)).sum().backward()


def pipelined() -> None:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    r, n = me()
    layer = torch.nn.Linear(8, 8)
    stage = PipelineStage(layer, r, n, torch.device("cpu"))
    schedule = Schedule1F1B(stage, 4, loss_fn=lambda output, target: (output - target).sum())
    for _ in range(2):
        if r == 0:
            time.sleep(0.2)
            schedule.step(torch.ones(8, 8))
        elif r == n - 1:
            schedule.step(target=torch.ones(8, 8))
        else:
            schedule.step()


HONEST: tuple[tuple[Callable[[], None], int], ...] = (
    (long_compute, 3),
    (a_slow_peer, 4),
    (a_thread_that_serves, 3),
    (a_thread_that_outlives_its_function, 2),
    (a_callback_that_serves, 2),
    (leaving_a_gather_early, 3),
    (leaving_a_scatter_early, 3),
    (leaving_a_broadcast_early, 3),
    (leaving_a_reduce_of_few_elements_early, 5),
    (leaving_empty_collectives_early, 2),
    (a_sub_group_that_only_its_members_make, 3),
    (a_wait_with_a_deadline_of_its_own, 2),
    (a_failure_that_is_handled, 2),
    (large_messages, 3),
    (from_anybody_and_from_somebody, 4),
    (two_receives_from_one_and_any_from_the_other, 3),
    (data_parallel, 2),
    (data_parallel_with_an_unused_parameter_everywhere, 2),
    (fully_sharded, 2),
    (pipelined, 3),
)
# These make their process groups themselves.
ORDINARY: tuple[tuple[Callable[[], None], int], ...] = (
    (a_group_made_twice, 2),
    (ranks_in_another_order, 3),
)


# ---------------------------------------------------------------- by chance


def random_program(seed: int, rounds: int) -> None:
    """A correct program, the same on all ranks but for when and how long each of them sleeps."""
    shared, own = random.Random(seed), random.Random(seed * 1000 + dist.get_rank())
    for number in range(rounds):
        if own.random() < 0.3:
            time.sleep(own.random() ** 4 * 0.2)
        shared.choice(_ROUNDS)(shared, number)


def _whole(chance: random.Random, number: int) -> None:
    kind = chance.randrange(8)
    n, root = dist.get_world_size(), chance.randrange(dist.get_world_size())
    tensor = x(chance.choice([1, 4, 1000, 100_000]))
    r = dist.get_rank()
    if kind == 0:
        dist.all_reduce(tensor)
    elif kind == 1:
        dist.broadcast(tensor, root)
    elif kind == 2:
        dist.reduce(tensor, root)
    elif kind == 3:
        into = [torch.empty_like(tensor) for _ in range(n)] if r == root else None
        dist.gather(tensor, into, dst=root)
    elif kind == 4:
        parts = [tensor] * n if r == root else None
        dist.scatter(torch.empty_like(tensor), parts, src=root)
    elif kind == 5:
        dist.all_gather([torch.empty_like(tensor) for _ in range(n)], tensor)
    elif kind == 6:
        dist.all_to_all_single(x(n * 3), x(n * 3))
    else:
        dist.barrier()


def _shift(chance: random.Random, number: int) -> None:
    r, n = me()
    by, elements = chance.randrange(1, max(n, 2)), chance.choice([1, 100, 200_000])
    if n == 1:
        return
    sent = dist.isend(x(elements), (r + by) % n, tag=number)
    dist.recv(x(elements), (r - by) % n, tag=number)
    assert sent is not None
    sent.wait()


def _pairs(chance: random.Random, number: int) -> None:
    r, n = me()
    order = list(range(n))
    chance.shuffle(order)
    place = order.index(r)
    partner = place ^ 1
    if partner >= n:
        return
    first = place < partner
    for sends in (first, not first):
        if sends:
            dist.send(x(), order[partner])
        else:
            dist.recv(x(), order[partner])


def _from_anybody(chance: random.Random, number: int) -> None:
    r, n = me()
    root = chance.randrange(n)
    tag = 10_000 + number
    if r == root:
        for _ in range(n - 1):
            dist.recv(x(), tag=tag)
    else:
        dist.send(x(), root, tag=tag)


def _batch(chance: random.Random, number: int) -> None:
    r, n = me()
    if n == 1:
        return
    batch = [
        operation
        for by in range(1, n)
        for operation in (
            dist.P2POp(dist.irecv, x(), (r - by) % n),
            dist.P2POp(dist.isend, x(), (r + by) % n),
        )
    ]
    for work in dist.batch_isend_irecv(batch):
        work.wait()


def _sub_group(chance: random.Random, number: int) -> None:
    n = dist.get_world_size()
    ranks = sorted(chance.sample(range(n), chance.randrange(1, n + 1)))
    group = dist.new_group(ranks)
    if dist.get_rank() in ranks:
        dist.all_reduce(x(), group=group)
        dist.broadcast(x(), ranks[-1], group=group)


def _asynchronous(chance: random.Random, number: int) -> None:
    works = [dist.all_reduce(x(), async_op=True) for _ in range(chance.randrange(1, 6))]
    works.append(dist.broadcast(x(), chance.randrange(dist.get_world_size()), async_op=True))
    for work in reversed(works):
        assert work is not None
        work.wait()


_ROUNDS = (_whole, _whole, _whole, _shift, _pairs, _from_anybody, _batch, _sub_group, _asynchronous)
