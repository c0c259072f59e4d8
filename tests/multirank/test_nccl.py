"""NCCL as far as a machine without a GPU can tell: how groups are made, and what is seen."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import multirank
from multirank import World

from .pretended_gpus import PRETEND


def test_an_unknown_backend_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="backend is 'mpi'; it must be one of gloo, nccl"):
        World(1, backend="mpi")


def test_with_too_few_gpus_the_world_says_so() -> None:
    gpus = torch.cuda.device_count()
    with pytest.raises(multirank.StartError, match=f"GPU of its own; torch sees {gpus} here"):
        World(gpus + 1, backend="nccl")


def test_every_rank_selects_its_gpu_before_its_groups_are_made_and_they_are_watched() -> None:
    def sums() -> tuple[str, str, float, float]:
        context = multirank.context()
        mine = torch.full((2,), float(context.rank))
        dist.all_reduce(mine)
        pair = torch.ones(1)
        if (group := context.groups["pair"]) is not None:
            dist.all_reduce(pair, group=group)
        dist.barrier()
        return dist.get_backend(), str(context.device), mine[0].item(), pair.item()

    with World(3, groups={"pair": [0, 2]}, backend="nccl", before_ranks=PRETEND) as world:
        run = world.call(sums)
    assert [tuple(result) for result in run.results] == [
        ("nccl", "cpu", 3.0, 2.0),
        ("nccl", "cpu", 3.0, 1.0),
        ("nccl", "cpu", 3.0, 2.0),
    ]
    names = [operation.name for operation in run.trace.of_rank(0)]
    assert names == ["all_reduce", "all_reduce", "barrier"]
    assert all(operation.completed is not None for operation in run.trace.operations)


def test_messages_and_ddp_go_over_it_too() -> None:
    def trains() -> list[float]:
        rank = dist.get_rank()
        got = torch.zeros(1)
        swap = [
            dist.P2POp(dist.isend, torch.ones(1) * rank, 1 - rank),
            dist.P2POp(dist.irecv, got, 1 - rank),
        ]
        for work in dist.batch_isend_irecv(swap):
            work.wait()
        layer = torch.nn.Linear(1, 1, bias=False)
        model = torch.nn.parallel.DistributedDataParallel(layer)
        model(torch.ones(1, 1) * (1 + rank)).sum().backward()
        assert layer.weight.grad is not None
        return [got.item(), layer.weight.grad.item()]

    with World(2, backend="nccl", before_ranks=PRETEND) as world:
        run = world.call(trains)
    assert run.results == [[1.0, 1.5], [0.0, 1.5]]
    sent = [operation.name for operation in run.trace.of_rank(1)]
    assert sent[:2] == ["send", "recv"]
    assert "all_reduce" in sent


def test_a_world_on_gloo_does_not_know_of_it() -> None:
    assert multirank.run(dist.is_nccl_available, 1).results == [dist.is_nccl_available()]


@pytest.mark.skipif(not torch.cuda.device_count(), reason="there is no GPU here")
def test_on_real_gpus_tensors_come_back_from_each() -> None:
    def sums() -> torch.Tensor:
        context = multirank.context()
        mine = torch.full((4,), float(context.rank + 1), device=context.device)
        dist.all_reduce(mine)
        return mine

    count = torch.cuda.device_count()
    run = multirank.run(sums, count, backend="nccl")
    assert [result.tolist() for result in run.results] == [[count * (count + 1) / 2] * 4] * count
