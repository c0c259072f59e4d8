"""All that torch.distributed offers works as if nobody watched, and is seen.

The watching rests on parts of torch that are not public. When a new torch breaks one of them, the
test that fails names the feature.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import FileStore

import multirank
from multirank import Run, context


def names(run: Run, rank: int = 0) -> list[str]:
    return [operation.name for operation in run.trace.of_rank(rank)]


def rows(rank: int) -> torch.Tensor:
    return torch.arange(4.0).reshape(2, 2) + 10 * rank


# ---------------------------------------------------------------- what a group says of itself


def test_a_group_calls_itself_gloo() -> None:
    def program() -> list[Any]:
        group = dist.group.WORLD
        sub = dist.new_group([0, 1])
        return [
            dist.get_backend(),
            dist.get_backend(sub),
            isinstance(group, dist.ProcessGroup),
            dist.get_backend_config(),
            dist.is_gloo_available(),
        ]

    (first, *_) = multirank.run(program, 2).results
    assert first == ["gloo", "gloo", True, first[3], True]
    assert "cpu:gloo" in first[3]


def test_groups_know_their_ranks_and_sizes() -> None:
    def program() -> list[Any]:
        group = context().groups["odd"]
        if group is None:
            return [dist.get_rank(), dist.get_world_size()]
        return [
            dist.get_rank(group),
            dist.get_world_size(group),
            dist.get_process_group_ranks(group),
            dist.get_global_rank(group, 1),
            dist.get_group_rank(group, 3),
            group.rank(),
            group.size(),
        ]

    results = multirank.run(program, 4, groups={"odd": [1, 3]}).results
    assert results == [
        [0, 4],
        [0, 2, [1, 3], 3, 1, 0, 2],
        [2, 4],
        [1, 2, [1, 3], 3, 1, 1, 2],
    ]


def test_a_groups_timeout_can_be_set_and_holds() -> None:
    def program() -> str:
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=0.2))
        if dist.get_rank() == 0:
            try:
                dist.barrier()
            except RuntimeError as error:
                return str(error)
        time.sleep(0.6)
        return ""

    run = multirank.run(program, 2)
    assert "Timed out waiting 200ms" in run.results[0]
    assert run.ranks[0].log == ""


def test_a_group_may_be_destroyed_and_made_again() -> None:
    def program(rendezvous: str) -> float:
        for number in range(2):
            dist.init_process_group(
                "gloo",
                store=FileStore(f"{rendezvous}.{number}", context().world_size),
                rank=context().rank,
                world_size=context().world_size,
            )
            tensor = torch.ones(1)
            dist.all_reduce(tensor)
            dist.destroy_process_group()
        return tensor.item()

    def start() -> float:
        return program(context().rendezvous)

    run = multirank.run(start, 2, process_group=False)
    assert run.results == [2.0, 2.0]
    assert names(run) == ["all_reduce", "all_reduce"]


@pytest.mark.parametrize("backend", [None, "cpu:gloo", "gloo"])
def test_every_way_to_ask_for_gloo_is_watched(backend: str | None) -> None:
    def program() -> float:
        dist.init_process_group(backend)
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        return tensor.item()

    run = multirank.run(program, 2, process_group=False)
    assert run.results == [2.0, 2.0]
    assert names(run) == ["all_reduce"]


# ---------------------------------------------------------------- every operation


def all_reduce() -> Any:
    tensor = rows(dist.get_rank())
    dist.all_reduce(tensor)
    return tensor


def reduce() -> Any:
    tensor = rows(dist.get_rank())
    dist.reduce(tensor, 1, dist.ReduceOp.MAX)
    return tensor if dist.get_rank() == 1 else None


def broadcast() -> Any:
    tensor = rows(dist.get_rank())
    dist.broadcast(tensor, 1)
    return tensor


def gather() -> Any:
    into = [torch.empty(2, 2) for _ in range(3)] if dist.get_rank() == 1 else None
    dist.gather(rows(dist.get_rank()), into, dst=1)
    return into


def scatter() -> Any:
    parts = [rows(r) for r in range(3)] if dist.get_rank() == 1 else None
    tensor = torch.empty(2, 2)
    dist.scatter(tensor, parts, src=1)
    return tensor


def all_gather() -> Any:
    into = [torch.empty(2, 2) for _ in range(3)]
    dist.all_gather(into, rows(dist.get_rank()))
    return torch.stack(into)


def all_gather_into_tensor() -> Any:
    into = torch.empty(6, 2)
    dist.all_gather_into_tensor(into, rows(dist.get_rank()))
    return into


def reduce_scatter() -> Any:
    tensor = torch.empty(2, 2)
    dist.reduce_scatter(tensor, [rows(dist.get_rank() + r) for r in range(3)])
    return tensor


def reduce_scatter_tensor() -> Any:
    tensor = torch.empty(2, 2)
    parts = torch.cat([rows(dist.get_rank() + r) for r in range(3)])
    dist.reduce_scatter_tensor(tensor, parts, dist.ReduceOp.AVG)
    return tensor


def all_to_all() -> Any:
    into = [torch.empty(2, 2) for _ in range(3)]
    dist.all_to_all(into, [rows(10 * dist.get_rank() + r) for r in range(3)])
    return torch.stack(into)


def all_to_all_single() -> Any:
    rank = dist.get_rank()
    into, given = torch.empty(3 * (rank + 1)), torch.arange(6.0) + 10 * rank
    dist.all_to_all_single(into, given, [rank + 1] * 3, [1, 2, 3])
    return into


SUM = rows(0) + rows(1) + rows(2)
OPERATIONS: list[tuple[Callable[[], Any], str, Callable[[int], Any]]] = [
    (all_reduce, "all_reduce", lambda r: SUM),
    (reduce, "reduce", lambda r: rows(2) if r == 1 else None),
    (broadcast, "broadcast", lambda r: rows(1)),
    (gather, "gather", lambda r: [rows(0), rows(1), rows(2)] if r == 1 else None),
    (scatter, "scatter", rows),
    (all_gather, "all_gather", lambda r: torch.stack([rows(0), rows(1), rows(2)])),
    (all_gather_into_tensor, "all_gather", lambda r: torch.cat([rows(0), rows(1), rows(2)])),
    (reduce_scatter, "reduce_scatter", lambda r: SUM + 30 * r),
    (reduce_scatter_tensor, "reduce_scatter", lambda r: SUM / 3 + 10 * r),
    (all_to_all, "all_to_all", lambda r: torch.stack([rows(r), rows(10 + r), rows(20 + r)])),
    (
        all_to_all_single,
        "all_to_all",
        lambda r: torch.cat(
            [torch.arange(6.0)[[0, 1, 3][r] : [1, 3, 6][r]] + 10 * s for s in range(3)]
        ),
    ),
]


def same(got: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        return bool(torch.allclose(got, expected))
    if isinstance(expected, list):
        return all(same(g, e) for g, e in zip(got, expected, strict=True))
    return bool(got == expected)


@pytest.mark.parametrize(
    ("program", "name", "expected"), OPERATIONS, ids=[op[0].__name__ for op in OPERATIONS]
)
def test_an_operation_of_torch_distributed(
    program: Callable[[], Any], name: str, expected: Callable[[int], Any]
) -> None:
    run = multirank.run(program, 3)
    for rank, result in enumerate(run.results):
        assert same(result, expected(rank)), f"rank {rank}"
        assert names(run, rank) == [name]


def test_barrier_and_monitored_barrier() -> None:
    def program() -> None:
        dist.barrier()
        dist.monitored_barrier()
        dist.monitored_barrier(timeout=timedelta(seconds=5), wait_all_ranks=True)

    run = multirank.run(program, 3)
    assert names(run, 1) == ["barrier"] * 3
    assert all(operation.completed is not None for operation in run.trace.operations)


def test_monitored_barrier_names_the_rank_that_is_missing() -> None:
    def program() -> str:
        if dist.get_rank() == 1:
            time.sleep(0.6)
            return ""
        try:
            dist.monitored_barrier(timeout=timedelta(seconds=0.2))
        except RuntimeError as error:
            return str(error)
        return "passed"

    assert "Rank 1 failed to pass monitoredBarrier" in multirank.run(program, 3).results[0]


def test_object_collectives() -> None:
    def program() -> list[Any]:
        rank = dist.get_rank()
        everything: list[Any] = [None] * 3
        dist.all_gather_object(everything, {"rank": rank})
        sent: list[Any] = [("from", rank)]
        dist.broadcast_object_list(sent, src=2)
        gathered: list[Any] | None = [None] * 3 if rank == 0 else None
        dist.gather_object(rank, gathered, dst=0)
        mine: list[Any] = [None]
        dist.scatter_object_list(mine, ["a", "b", "c"] if rank == 1 else None, src=1)
        if rank == 0:
            dist.send_object_list(["hello"], dst=1)
        letter: list[Any] = [None]
        if rank == 1:
            dist.recv_object_list(letter, src=0)
        return [everything, sent, gathered, mine, letter]

    run = multirank.run(program, 3)
    everything = [{"rank": 0}, {"rank": 1}, {"rank": 2}]
    for rank, result in enumerate(run.results):
        assert result == [
            everything,
            [["from", 2]],
            [0, 1, 2] if rank == 0 else None,
            ["abc"[rank]],
            ["hello" if rank == 1 else None],
        ]
    assert {"all_gather", "broadcast", "gather", "scatter", "send"} <= set(names(run, 0))


# ---------------------------------------------------------------- point to point


def test_send_and_receive() -> None:
    def program() -> torch.Tensor:
        tensor = rows(dist.get_rank())
        if dist.get_rank() == 0:
            dist.send(tensor, 1)
        else:
            dist.recv(tensor, 0)
        return tensor

    run = multirank.run(program, 2)
    assert torch.equal(run.results[1], rows(0))
    assert [names(run, 0), names(run, 1)] == [["send"], ["recv"]]


def test_a_receive_from_anybody_says_from_whom() -> None:
    def program() -> list[Any]:
        tensor = torch.zeros(1)
        if dist.get_rank() == 0:
            froms = [dist.recv(tensor) for _ in range(2)]
            return [sorted(source for source in froms if source), tensor.item() in (1.0, 2.0)]
        dist.send(torch.full((1,), float(dist.get_rank())), 0)
        return []

    run = multirank.run(program, 3)
    assert run.results[0] == [[1, 2], True]
    assert [(op.name, op.peer) for op in run.trace.of_rank(0)] == [("recv", None)] * 2


def test_an_asynchronous_receive_from_anybody_says_from_whom() -> None:
    def program() -> list[Any]:
        tensor = torch.zeros(1)
        if dist.get_rank() == 0:
            work = dist.irecv(tensor)
            assert work is not None
            work.wait()
            return [work._source_rank(), tensor.item()]
        dist.send(torch.ones(1), 0)
        return []

    assert multirank.run(program, 2).results[0] == [1, 1.0]


def test_batched_sends_and_receives() -> None:
    def program() -> torch.Tensor:
        rank, into = dist.get_rank(), torch.empty(2, 2)
        operations = [
            dist.P2POp(dist.isend, rows(rank), (rank + 1) % 3),
            dist.P2POp(dist.irecv, into, (rank - 1) % 3),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        return into

    run = multirank.run(program, 3)
    for rank, result in enumerate(run.results):
        assert torch.equal(result, rows((rank - 1) % 3))
        assert [(op.name, op.peer) for op in run.trace.of_rank(rank)] == [
            ("send", (rank + 1) % 3),
            ("recv", (rank - 1) % 3),
        ]


def test_operations_in_sub_groups() -> None:
    def program() -> list[float]:
        results = []
        for name in ("odd", "even"):
            group = context().groups[name]
            if group is not None:
                tensor = torch.tensor([float(dist.get_rank())])
                dist.all_reduce(tensor, group=group)
                dist.broadcast(tensor, group=group, group_src=1)
                results.append(tensor.item())
        return results

    run = multirank.run(program, 4, groups={"odd": [1, 3], "even": [0, 2]})
    assert run.results == [[2.0], [4.0], [2.0], [4.0]]
    assert [(op.name, op.group, op.peer) for op in run.trace.of_rank(3)] == [
        ("all_reduce", (1, 3), None),
        ("broadcast", (1, 3), 3),
    ]


# ---------------------------------------------------------------- what is built on top


def test_functional_collectives() -> None:
    def program() -> list[Any]:
        import torch.distributed._functional_collectives as functional

        group: Any = dist.group.WORLD
        x = rows(dist.get_rank())
        return [
            functional.all_reduce(x, "avg", group) + 0,
            functional.all_gather_tensor(x, 0, group) + 0,
            functional.reduce_scatter_tensor(torch.cat([x, x]), "sum", 0, group) + 0,
            functional.all_to_all_single(x, None, None, group) + 0,
            functional.broadcast(x, 1, group) + 0,
            functional.all_reduce_coalesced([x, 2 * x], "sum", group)[1] + 0,
            functional.all_gather_into_tensor_coalesced([x, 2 * x], group)[1] + 0,
            functional.reduce_scatter_tensor_coalesced([torch.cat([x, x])], "sum", [0], group)[0]
            + 0,
        ]

    run = multirank.run(program, 2)
    first, second = run.results[1], rows(0) + rows(1)
    expected = [
        second / 2,
        torch.cat([rows(0), rows(1)]),
        second,
        torch.stack([rows(0)[1], rows(1)[1]]),
        rows(1),
        2 * second,
        2 * torch.cat([rows(0), rows(1)]),
        second,
    ]
    assert all(torch.equal(a, b) for a, b in zip(first, expected, strict=True))
    assert names(run, 1)[:5] == [
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "all_to_all",
        "broadcast",
    ]
    assert names(run, 1)[5:] == ["all_reduce", "all_gather", "reduce_scatter"]


def test_a_functional_collectives_result_may_be_returned_as_it_is() -> None:
    def program() -> torch.Tensor:
        import torch.distributed._functional_collectives as functional

        group: Any = dist.group.WORLD
        result: torch.Tensor = functional.all_reduce(rows(dist.get_rank()), "sum", group)
        return result

    assert torch.equal(multirank.run(program, 2).results[0], rows(0) + rows(1))


def test_collectives_with_gradients() -> None:
    def program() -> list[torch.Tensor | None]:
        import torch.distributed.nn.functional

        functional: Any = torch.distributed.nn.functional
        rank = dist.get_rank()
        gradients = []
        for use in (
            lambda x: functional.all_reduce(x) * (rank + 1),
            lambda x: functional.all_gather(x)[1] * (rank + 1),
            lambda x: torch.cat(
                functional.all_to_all([torch.empty(1), torch.empty(1)], [x[:1], x[1:]])
            ),
        ):
            x = torch.ones(2, requires_grad=True)
            torch.autograd.backward(use(x).sum())
            gradients.append(x.grad)
        return gradients

    run = multirank.run(program, 2)
    assert [g.tolist() for g in run.results[0]] == [[3, 3], [0, 0], [1, 1]]
    assert [g.tolist() for g in run.results[1]] == [[3, 3], [3, 3], [1, 1]]
    assert {"all_reduce", "all_gather", "scatter"} <= set(names(run))  # gloo's all_to_all


def test_coalescing() -> None:
    def program() -> list[torch.Tensor]:
        x, y = rows(dist.get_rank()), 2 * rows(dist.get_rank())
        with dist.distributed_c10d._coalescing_manager():
            dist.all_reduce(x)
            dist.all_reduce(y)
        gathered = [torch.empty(2) for _ in range(2)]
        with dist.distributed_c10d._coalescing_manager(async_ops=True) as manager:
            for number, into in enumerate(gathered):
                dist.all_gather_into_tensor(into, torch.full((1,), float(number)))
        manager.wait()
        return [x, y, *gathered]

    run = multirank.run(program, 2)
    total = rows(0) + rows(1)
    expected = [total, 2 * total, torch.zeros(2), torch.ones(2)]
    assert all(torch.equal(a, b) for a, b in zip(run.results[1], expected, strict=True))
    assert set(names(run)) == {"all_reduce", "all_gather"}


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def batch(rank: int) -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 4) / 10 + rank


def gradients_of_the_mean(world_size: int) -> list[torch.Tensor]:
    model = small_model()
    total = torch.stack([model(batch(rank)).square().mean() for rank in range(world_size)])
    torch.autograd.backward(total.mean())
    return [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True}, {"static_graph": True}])
def test_distributed_data_parallel(options: dict[str, Any]) -> None:
    def program() -> list[torch.Tensor | None]:
        model = nn.parallel.DistributedDataParallel(small_model(), **options)
        for _ in range(2):  # in the second step DDP has rebuilt its buckets
            model.zero_grad()
            torch.autograd.backward(model(batch(dist.get_rank())).square().mean())
        return [p.grad for p in model.parameters()]

    run = multirank.run(program, 2)
    for result in run.results:
        assert all(map(torch.allclose, result, gradients_of_the_mean(2)))
    assert "all_reduce" in names(run)
    assert "broadcast" in names(run)


def test_distributed_data_parallel_with_a_communication_hook() -> None:
    def program() -> list[torch.Tensor | None]:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        model = nn.parallel.DistributedDataParallel(small_model())
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        torch.autograd.backward(model(batch(dist.get_rank())).square().mean())
        return [p.grad for p in model.parameters()]

    run = multirank.run(program, 2)
    close = [
        torch.allclose(a, b, atol=0.02)
        for a, b in zip(run.results[0], gradients_of_the_mean(2), strict=True)
    ]
    assert all(close)
    assert "float16" in [operation.dtype for operation in run.trace.of_rank(0)]


def test_distributed_data_parallel_of_a_channels_last_model() -> None:
    def program() -> torch.Tensor:
        torch.manual_seed(0)
        convolution = nn.Conv2d(3, 2, 2)
        model = nn.parallel.DistributedDataParallel(
            convolution.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        )
        torch.autograd.backward(model(torch.ones(1, 3, 4, 4) * (dist.get_rank() + 1)).sum())
        assert convolution.weight.grad is not None
        return convolution.weight.grad

    run = multirank.run(program, 2)
    assert torch.allclose(run.results[0], torch.full((2, 3, 2, 2), 9 * 1.5))


def test_fully_sharded_data_parallel() -> None:
    def program() -> list[torch.Tensor]:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (2,))
        model: Any = small_model()
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        torch.autograd.backward(model(batch(dist.get_rank())).square().mean())
        return [p.grad.full_tensor() for p in model.parameters()]

    run = multirank.run(program, 2)
    for result in run.results:
        assert all(map(torch.allclose, result, gradients_of_the_mean(2)))
    assert {"all_gather", "reduce_scatter"} <= set(names(run))


def test_distributed_tensors() -> None:
    def program() -> list[Any]:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

        mesh = init_device_mesh("cpu", (2,))
        whole = torch.arange(16.0).reshape(4, 4)
        sharded: Any = distribute_tensor(whole, mesh, [Shard(0)])
        columns = sharded.redistribute(mesh, [Shard(1)])
        product = sharded.t() @ sharded  # a partial sum on every rank
        assert isinstance(product.placements[0], Partial)
        return [
            sharded.redistribute(mesh, [Replicate()]).to_local(),
            columns.to_local(),
            product.redistribute(mesh, [Replicate()]).to_local(),
            product.redistribute(mesh, [Shard(0)]).to_local(),
        ]

    run = multirank.run(program, 2)
    whole = torch.arange(16.0).reshape(4, 4)
    replicated, columns, product, scattered = run.results[1]
    assert torch.equal(replicated, whole)
    assert torch.equal(columns, whole[:, 2:])
    assert torch.equal(product, whole.t() @ whole)
    assert torch.equal(scattered, (whole.t() @ whole)[2:])
    assert {"scatter", "all_gather", "all_reduce", "reduce_scatter"} <= set(names(run))


def test_tensor_parallel_modules() -> None:
    def program() -> torch.Tensor:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        model = small_model()
        mesh = init_device_mesh("cpu", (2,))
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        output: torch.Tensor = model(batch(0))
        return output

    run = multirank.run(program, 2)
    assert torch.allclose(run.results[0], small_model()(batch(0)), atol=1e-6)
    assert "all_reduce" in names(run)


def test_a_device_mesh_has_groups_that_are_watched() -> None:
    def program() -> list[Any]:
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
        results: list[Any] = []
        for name in ("data", "model"):
            group = mesh.get_group(name)
            tensor = torch.tensor([float(dist.get_rank())])
            dist.all_reduce(tensor, group=group)
            results.append([dist.get_process_group_ranks(group), tensor.item()])
            results.append(dist.get_backend(group))
        return results

    run = multirank.run(program, 4)
    assert run.results[3] == [[[1, 3], 4.0], "gloo", [[2, 3], 5.0], "gloo"]
    reduced = [op.group for op in run.trace.of_rank(3) if op.name == "all_reduce"]
    assert reduced == [(1, 3), (2, 3)]


@pytest.mark.parametrize("schedule", ["Schedule1F1B", "ScheduleGPipe"])
def test_pipelining(schedule: str) -> None:
    def program(name: str) -> list[Any]:
        from torch.distributed import pipelining

        rank, size = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(rank)
        layer = nn.Linear(4, 4)
        stage = pipelining.PipelineStage(layer, rank, size, torch.device("cpu"))
        run = getattr(pipelining, name)(stage, 4, loss_fn=lambda y, t: ((y - t) ** 2).mean())
        losses: list[torch.Tensor] = []
        if rank == 0:
            run.step(torch.ones(8, 4))
        elif rank == size - 1:
            run.step(target=torch.zeros(8, 4), losses=losses)
        else:
            run.step()
        return [losses, layer.weight.grad]

    run = multirank.run(program, 3, schedule)
    layers = []
    for rank in range(3):
        torch.manual_seed(rank)
        layers.append(nn.Linear(4, 4))
    loss = (nn.Sequential(*layers)(torch.ones(8, 4)) ** 2).mean()
    torch.autograd.backward(loss)
    for rank, (losses, gradient) in enumerate(run.results):
        expected = layers[rank].weight.grad
        assert expected is not None
        assert torch.allclose(gradient, expected, atol=1e-6)
        assert len(losses) == (4 if rank == 2 else 0)
    assert {"send", "recv"} <= set(names(run, 1))
    assert {operation.peer for operation in run.trace.of_rank(1)} >= {0, 2}


def test_work_handles_answer_all_questions() -> None:
    def program() -> list[Any]:
        tensor = torch.ones(1)
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        work.wait(timedelta(seconds=5))
        done = [work.is_completed(), work.is_success(), work.exception() is None]
        value = work.get_future().then(lambda future: future.value()[0] * 10).wait()
        return [*done, value, work.result()[0]]

    results = multirank.run(program, 2).results
    assert results[0] == [True, True, True, torch.tensor([20.0]), torch.tensor([2.0])]


# ---------------------------------------------------------------- misuse is told, never garbage


# By rank, and made there: a tensor that is sent to a rank arrives contiguous.
STRIDED: dict[str, Callable[[int], torch.Tensor]] = {
    "transposed": lambda rank: (torch.arange(6.0) + rank).reshape(3, 2).t(),
    "expanded": lambda rank: (torch.arange(2.0) + rank).reshape(2, 1).expand(2, 3),
    "every second": lambda rank: (torch.arange(12.0) + rank).reshape(2, 6)[:, ::2],
    "channels last": lambda rank: (
        (torch.arange(48.0) + rank).reshape(2, 4, 2, 3).to(memory_format=torch.channels_last)
    ),
}


def on_strided(name: str, kind: str, strided_ranks: tuple[int, ...]) -> torch.Tensor:
    """Gives a tensor that is not contiguous (elsewhere: one that is) to a collective."""
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = STRIDED[kind](rank)
    assert not tensor.is_contiguous()
    given = tensor if rank in strided_ranks else tensor.contiguous()
    if name == "all_reduce":
        dist.all_reduce(given)
        return given
    if name == "reduce":
        dist.reduce(given, 0)
        return given
    if name == "broadcast":
        dist.broadcast(given, 1)
        return given
    if name == "all_gather":
        into = [torch.zeros(tensor.shape) for _ in range(size)]
        dist.all_gather(into, given)
        return torch.stack(into)
    if name == "all_gather into":
        into = [torch.empty_strided(tensor.shape, tensor.stride()) for _ in range(size)]
        dist.all_gather(into, tensor.contiguous())
        return torch.stack(into)
    if name == "gather":
        into = [torch.zeros(tensor.shape) for _ in range(size)]
        dist.gather(given, into if rank == 0 else None)
        return torch.stack(into)
    if name == "scatter":
        single = torch.zeros(tensor.shape)
        dist.scatter(single, [given, given] if rank == 0 else None)
        return single
    if name == "reduce_scatter":
        single = torch.zeros(tensor.shape)
        dist.reduce_scatter(single, [given, given])
        return single
    if name == "all_to_all":
        into = [torch.zeros(tensor.shape) for _ in range(size)]
        dist.all_to_all(into, [given, given])
        return torch.stack(into)
    if name == "all_gather_into_tensor":
        whole = torch.zeros(size * tensor.shape[0], *tensor.shape[1:])
        dist.all_gather_into_tensor(whole, given)
        return whole
    if name == "reduce_scatter_tensor":
        half = torch.zeros(tensor.shape[0] // 2, *tensor.shape[1:])
        dist.reduce_scatter_tensor(half, given)
        return half
    if name == "all_to_all_single":
        whole = torch.zeros(tensor.shape)
        dist.all_to_all_single(whole, given)
        return whole
    if name == "send":
        whole = torch.zeros(tensor.shape)
        if rank == 0:
            dist.send(given, 1)
        else:
            dist.recv(whole, 0)
        return whole
    assert name == "recv"
    if rank == 0:
        dist.send(tensor.contiguous(), 1)
    else:
        dist.recv(given, 0)
    return given


def correct(name: str, kind: str, rank: int) -> torch.Tensor | None:
    """What the collective must yield on this rank; None: anything."""
    ranks = [STRIDED[kind](0), STRIDED[kind](1)]
    total = ranks[0] + ranks[1]
    half = total.shape[0] // 2
    stacked = torch.stack(ranks)
    expected: dict[str, torch.Tensor | None] = {
        "all_reduce": total,
        "reduce": total if rank == 0 else None,
        "broadcast": ranks[1],
        "all_gather": stacked,
        "all_gather into": stacked,
        "gather": stacked if rank == 0 else None,
        "scatter": ranks[0],
        "reduce_scatter": total,
        "all_to_all": stacked,
        "all_gather_into_tensor": torch.cat(ranks),
        "reduce_scatter_tensor": total[half * rank : half * (rank + 1)],
        "all_to_all_single": torch.cat([r[half * rank : half * (rank + 1)] for r in ranks]),
        "send": ranks[0] if rank == 1 else None,
        "recv": ranks[0] if rank == 1 else None,
    }
    return expected[name]


# In these, one rank gives the tensor, and others wait for it.
ONE_SIDED = ("scatter", "send", "recv")
ALL_SIDED = (
    *("all_reduce", "reduce", "broadcast", "all_gather", "all_gather into", "gather"),
    *("reduce_scatter", "all_to_all"),
    *("all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single"),
)


def check_strided(name: str, kinds: tuple[str, ...], strided_ranks: tuple[int, ...]) -> None:
    def program() -> list[Any]:
        results: list[Any] = []
        for kind in kinds:
            try:
                results.append(on_strided(name, kind, strided_ranks))
            except (ValueError, RuntimeError) as error:
                if len(kinds) == 1:
                    raise
                results.append(str(error))
        return results

    run = multirank.run(program, 2, check=False, timeout=10)
    if not run.ok:
        assert "contiguous" in run.story
        assert {str(rank.ending) for rank in run.ranks} <= {"raised", "stopped", "finished"}
        return
    for rank, results in enumerate(run.results):
        for kind, result in zip(kinds, results, strict=True):
            expected = correct(name, kind, rank)
            if isinstance(result, str):
                assert re.search("contiguous|single memory location", result), kind
            elif expected is not None:
                assert torch.equal(result, expected), f"garbage of {kind} on rank {rank}: {result}"


@pytest.mark.parametrize("name", ALL_SIDED)
def test_tensors_that_are_not_contiguous_give_right_results_or_clear_errors(name: str) -> None:
    check_strided(name, tuple(STRIDED), (0, 1))


@pytest.mark.parametrize("kind", STRIDED)
@pytest.mark.parametrize("name", ONE_SIDED)
def test_a_tensor_that_is_not_contiguous_is_no_garbage_to_others(name: str, kind: str) -> None:
    check_strided(name, (kind,), (0, 1))


@pytest.mark.parametrize("kind", ["transposed", "channels last"])
@pytest.mark.parametrize("name", ["all_reduce", "reduce", "broadcast"])
def test_ranks_whose_strides_differ_do_not_mix_their_elements_up(name: str, kind: str) -> None:
    check_strided(name, (kind,), (1,))


@pytest.mark.parametrize(
    ("misuse", "told"),
    [
        (lambda: dist.send(torch.ones(1), 7), "dist.send: rank 7 is not in this group of 2 ranks"),
        (lambda: dist.send(torch.ones(1), -1), "dist.send: rank -1 is not in this group"),
        (lambda: dist.recv(torch.ones(1), 2), "dist.recv: rank 2 is not in this group"),
        (lambda: dist.broadcast(torch.ones(1), 7), "dist.broadcast: rank 7 is not in this group"),
        (lambda: dist.reduce(torch.ones(1), -3), "dist.reduce: rank -3 is not in this group"),
        (
            lambda: dist.scatter(torch.ones(1), None, src=5),
            "dist.scatter: rank 5 is not in this group",
        ),
    ],
)
def test_a_rank_outside_the_group_is_told(misuse: Callable[[], Any], told: str) -> None:
    run = multirank.run(misuse, 2, check=False, timeout=10)
    assert f"ValueError: {told}" in run.story
    assert {str(rank.ending) for rank in run.ranks} == {"raised"}


def test_operations_that_were_refused_are_not_in_the_trace() -> None:
    def program() -> None:
        with contextlib.suppress(ValueError):
            dist.all_reduce(torch.ones(2, 3).t())
        with contextlib.suppress(ValueError):
            dist.send(torch.ones(1), 7)

    assert names(multirank.run(program, 2)) == []
