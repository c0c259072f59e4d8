"""The lecture's MLP, trained in every way of this assignment: what runs on the ranks.

All trainings begin with the same parameters and see the same batch, so their losses are the same,
step by step, if all gradients are right. The optimizer is SGD on purpose: Adam divides by the size
of the gradients, and so hides gradients that are all too large or too small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

import multirank

from .. import collectives
from ..ddp import (
    DistributedDataParallel,
    all_reduce_gradients,
    broadcast_parameters,
    shard_batch,
)
from ..pipeline_parallel import Action, gpipe, one_f_one_b, partition_layers, run_schedule
from ..schedule_view import TracedStage
from ..tensor_parallel import ColumnParallelMLP, ParallelMLP


@dataclass(frozen=True)
class Settings:
    """What is trained. own: naive and flat data parallelism use the collectives of
    `collectives.py`, not torch's."""

    ranks: int = 4
    batch: int = 128
    width: int = 1024
    layers: int = 4
    microbatches: int = 8
    learning_rate: float = 0.5
    own: bool = False


def full_layers(settings: Settings, seed: int = 0) -> list[nn.Linear]:
    """All layers, with the parameters that this seed gives."""
    torch.manual_seed(seed)
    layers = [nn.Linear(settings.width, settings.width) for _ in range(settings.layers)]
    for layer in layers:
        nn.init.kaiming_normal_(layer.weight)
    return layers


def mlp(layers: list[nn.Linear]) -> nn.Sequential:
    """x = gelu(layer(x)), for each layer."""
    return nn.Sequential(*(module for layer in layers for module in (layer, nn.GELU())))


def whole_batch(settings: Settings) -> tuple[Tensor, Tensor]:
    """Inputs, and what another MLP makes of them: the targets."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(settings.batch, settings.width, generator=generator)
    with torch.no_grad():
        return inputs, mlp(full_layers(settings, seed=2))(inputs)


class Training:
    """On one device, without any parallelism; the other ones differ from this in some places."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.inputs, self.targets = whole_batch(settings)
        self.model = self.parallelize(full_layers(settings))
        parameters = self.model.parameters()
        self.optimizer = torch.optim.SGD(parameters, settings.learning_rate, momentum=0.9)

    def parallelize(self, layers: list[nn.Linear]) -> nn.Module:
        """This rank's model."""
        return mlp(layers)

    def step(self) -> float | None:
        """One step; the loss of this rank's samples, where it knows that."""
        self.optimizer.zero_grad()
        loss = self.gradients()
        with multirank.span("optimizer"):
            self.optimizer.step()
        return loss

    def gradients(self) -> float | None:
        """Computes all gradients, and the loss."""
        with multirank.span("forward"):
            loss = F.mse_loss(self.model(self.inputs), self.targets)
        with multirank.span("backward"):
            loss.backward()  # type: ignore[no-untyped-call]
        self.synchronize()
        return loss.item()

    def synchronize(self) -> None:
        """What is to be done after a backward pass."""


class DataParallel(Training):
    """Every rank has all layers and a part of the batch; here with a message for each gradient."""

    flat = False

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        rank = multirank.context().rank
        self.inputs = shard_batch(self.inputs, rank, settings.ranks)
        self.targets = shard_batch(self.targets, rank, settings.ranks)

    def parallelize(self, layers: list[nn.Linear]) -> nn.Module:
        """The MLP with other parameters on every rank, until they get those of rank 0."""
        model = mlp(full_layers(self.settings, seed=multirank.context().rank))
        broadcast_parameters(model, src=0)
        return model

    def synchronize(self) -> None:
        """The one line more."""
        all_reduce = collectives.all_reduce if self.settings.own else dist.all_reduce
        with multirank.span("all_reduce_gradients"):
            all_reduce_gradients(self.model, flat=self.flat, all_reduce=all_reduce)


class FlatDataParallel(DataParallel):
    """All gradients in one message."""

    flat = True


class OverlappedDataParallel(DataParallel):
    """A bucket for each layer, sent while backward goes on."""

    model: DistributedDataParallel

    def parallelize(self, layers: list[nn.Linear]) -> nn.Module:
        """The same, wrapped."""
        own = full_layers(self.settings, seed=multirank.context().rank)
        of_a_layer = sum(parameter.nbytes for parameter in own[0].parameters())
        return DistributedDataParallel(mlp(own), bucket_cap_mb=of_a_layer / 2**20)

    def synchronize(self) -> None:
        """Waits for what is still on its way."""
        with multirank.span("finish"):
            self.model.finish_gradient_synchronization()


class ColumnParallel(Training):
    """Every rank has some columns of each layer, as in the lecture."""

    def parallelize(self, layers: list[nn.Linear]) -> nn.Module:
        """ColumnParallelMLP, which has the activations in it."""
        return ColumnParallelMLP(layers, F.gelu)


class MegatronParallel(Training):
    """Layers in pairs: the first split by columns, the second by rows."""

    def parallelize(self, layers: list[nn.Linear]) -> nn.Module:
        """A ParallelMLP for two layers each."""
        pairs = list(zip(layers[::2], layers[1::2], strict=True))
        modules = [module for pair in pairs for module in (ParallelMLP(*pair, F.gelu), nn.GELU())]
        return nn.Sequential(*modules)


class Pipeline(Training):
    """Every rank has some of the layers; here with GPipe's schedule."""

    schedule_of_stage: Callable[[int, int, int], list[Action]] = staticmethod(gpipe)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        p, m = settings.ranks, settings.microbatches
        self.schedule = [self.schedule_of_stage(stage, p, m) for stage in range(p)]
        rank = multirank.context().rank
        self.stage = TracedStage(self.model, rank, p, input_shape=(settings.width,))

    def parallelize(self, layers: list[nn.Linear]) -> nn.Module:
        """The layers of this rank's stage."""
        own = partition_layers(len(layers), self.settings.ranks)[multirank.context().rank]
        return mlp([layers[number] for number in own])

    def gradients(self) -> float | None:
        """Those of the stage's own layers; the last stage has the loss."""
        inputs = self.inputs.tensor_split(self.settings.microbatches)
        targets = self.targets.tensor_split(self.settings.microbatches)
        sizes = [len(one) for one in inputs]
        loss = run_schedule(self.stage, self.schedule, sizes, inputs, targets, F.mse_loss)
        return None if loss is None else loss.item()


class PipelineOneFOneB(Pipeline):
    """With 1F1B."""

    schedule_of_stage = staticmethod(one_f_one_b)


MODES: dict[str, dict[str, type[Training]]] = {
    "none": {"one process": Training},
    "ddp": {
        "ddp, naive": DataParallel,
        "ddp, flat": FlatDataParallel,
        "ddp, overlapped": OverlappedDataParallel,
    },
    "tensor": {
        "tensor, all by columns": ColumnParallel,
        "tensor, columns and rows": MegatronParallel,
    },
    "pipeline": {"pipeline, GPipe": Pipeline, "pipeline, 1F1B": PipelineOneFOneB},
}
"""What ``--parallel`` takes, and the trainings that it means."""


def prepare(mode: str, variant: str, settings: Settings) -> None:
    """Makes a training ready on the calling rank."""
    multirank.context().state["training"] = MODES[mode][variant](settings)


def step() -> float | None:
    """One step of it."""
    training: Training = multirank.context().state["training"]
    return training.step()
