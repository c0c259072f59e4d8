"""The reference trains as torch's own DistributedDataParallel does, and as one process does."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import multirank
from multirank import ETHERNET, Fabric, Run, Trace, replay

STEPS, ROWS, LAYERS, ELEMENTS = 3, 4, 6, 1000
FORWARD, BACKWARD = 1e-3, 2e-3  # seconds that a layer declares


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))


def batches(n: int) -> list[tuple[Tensor, Tensor]]:
    """The whole ones."""
    numbers = torch.Generator().manual_seed(1)
    rows = n * ROWS
    return [
        (torch.randn(rows, 5, generator=numbers), torch.randn(rows, 2, generator=numbers))
        for _ in range(STEPS)
    ]


def train(how: str) -> list[Tensor]:
    """The parameters after some steps of SGD, on this rank's rows or, for "one process", on all."""
    from reference import ddp

    rank, n = dist.get_rank(), dist.get_world_size()
    model: nn.Module = network(0 if how == "one process" else rank).double()
    if how == "reference":
        model = ddp.DistributedDataParallel(model, bucket_cap_mb=300 / 2**20)
    elif how == "torch":
        model = nn.parallel.DistributedDataParallel(model)
    elif how != "one process":
        ddp.broadcast_parameters(model, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for whole in batches(n):
        data, targets = (one.double() for one in whole)
        if how != "one process":
            data, targets = (ddp.shard_batch(one, rank, n) for one in (data, targets))
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.mse_loss(model(data), targets))
        if isinstance(model, ddp.DistributedDataParallel):
            model.finish_gradient_synchronization()
        elif how in ("naive", "flat"):
            ddp.all_reduce_gradients(model, flat=how == "flat")
        optimizer.step()
    return [one.detach() for one in model.parameters()]


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_all_ways_of_training_end_at_the_same_parameters(n: int) -> None:
    with multirank.World(n) as world:
        wanted = world.call(train, "one process").results[0]
        for how in ("torch", "reference", "naive", "flat"):
            for rank, found in enumerate(world.call(train, how).results):
                for one, other in zip(found, wanted, strict=True):
                    torch.testing.assert_close(one, other, msg=f"{how}, rank {rank} of {n}")


# --- What overlap is worth, in the model ----------------------------------------------------------


class Layer(torch.autograd.Function):
    """Computes nothing, and declares so many seconds of it."""

    @staticmethod
    def forward(ctx: object, carried: Tensor, weight: Tensor) -> Tensor:
        multirank.compute("forward", FORWARD)
        return carried + weight.sum()

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        multirank.compute("backward", BACKWARD)
        return gradients[0], gradients[0].expand(ELEMENTS).clone()


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(ELEMENTS)) for _ in range(LAYERS)])

    def forward(self) -> Tensor:
        carried = torch.zeros((), requires_grad=True)
        for weight in self.weights:
            carried = Layer.apply(carried, weight)  # type: ignore[no-untyped-call]
        return carried


def step(how: str) -> None:
    """One step of training, in a span of its own."""
    from reference import ddp

    model: nn.Module = Tower()
    if how == "overlapped":  # a bucket for each layer
        model = ddp.DistributedDataParallel(model, bucket_cap_mb=4 * ELEMENTS / 2**20)
    with multirank.span("step"):
        torch.autograd.backward(model())
        if isinstance(model, ddp.DistributedDataParallel):
            model.finish_gradient_synchronization()
        else:
            ddp.all_reduce_gradients(model, flat=how == "flat")


def seconds(run: Run, fabric: Fabric) -> float:
    """Of the step alone, on a modelled network."""
    begins = {one.rank: one.time for one in run.trace.marks if one.label == "step"}
    first = {one.rank: one.time for one in reversed(run.trace.marks) if one.kind == "begin"}
    operations = [one for one in run.trace.operations if one.issued > first[one.rank]]
    assert len(begins) == run.world_size
    return replay(Trace(operations, run.trace.marks), fabric, run.world_size).makespan


@pytest.mark.parametrize("bandwidth", [1e5, 1e7], ids=["slower than backward", "faster"])
def test_overlapped_beats_flat_beats_naive_by_what_the_model_predicts(bandwidth: float) -> None:
    n, nbytes = 4, 4 * ELEMENTS
    fabric = Fabric("tried", latency=1e-4, bandwidth=bandwidth)
    with multirank.World(n) as world:
        found = {how: seconds(world.call(step, how), fabric) for how in ("naive", "flat")}
        found["overlapped"] = seconds(world.call(step, "overlapped"), fabric)
    compute = LAYERS * (FORWARD + BACKWARD)
    one = fabric.collective("all_reduce", n, nbytes)
    predicted = {
        "naive": compute + LAYERS * one,
        "flat": compute + fabric.collective("all_reduce", n, LAYERS * nbytes),
        "overlapped": max(compute + one, LAYERS * FORWARD + BACKWARD + LAYERS * one),
    }
    assert found == pytest.approx(predicted, rel=1e-6)
    assert found["overlapped"] < found["naive"]
    assert found["flat"] < found["naive"]


def test_on_ethernet_overlap_hides_all_but_one_message() -> None:
    with multirank.World(4) as world:
        found = [seconds(world.call(step, how), ETHERNET) for how in ("overlapped", "flat")]
    assert found[0] < found[1] < 2 * found[0]
