"""Timelines of runs, real or replayed, narrower than on a screen, so that their words can be read
on paper.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

import multirank
from handouts.drawing import FAMILY
from handouts.figures import MEASURED
from multirank import Fabric, Replay, Run, Trace, gallery
from multirank.timelines import svg
from reference import collectives
from reference.ddp import DistributedDataParallel, all_reduce_gradients
from reference.pipeline_parallel import one_f_one_b
from reference.schedule_view import run_for_real

_PLOT = 560  # pixels, beside the names of the ranks
FORWARD, BACKWARD, LAYERS, WIDTH = 1e-3, 2e-3, 4, 512
_REAL = ("timeline_hang", "timeline_pipeline")  # in real time
# One layer's all-reduce takes a little less than its backward pass.
_NETWORK = Fabric("slow", latency=50e-6, bandwidth=1e9)


def draw() -> dict[str, str]:
    """All of them; those of real time as they were measured."""
    with multirank.World(3) as world:
        ring = multirank.replay(world.call(_reduce).trace, multirank.INFINIBAND)
    steps = []
    for kind in ("naive", "flat", "overlapped"):
        with multirank.World(2) as world:
            world.call(_prepare, kind)
            steps.append(multirank.replay(world.call(_step, kind).trace, _NETWORK))
    return {
        "timeline_ring": _unlabelled(_narrow([ring], ["all_reduce of 3 MiB, as a ring"])),
        "ddp": _narrow(steps, ["naive", "flat", "overlapped"]),
        **{name: (MEASURED / f"{name}.svg").read_text(encoding="utf-8") for name in _REAL},
    }


def measure() -> dict[str, str]:
    """Those of real time."""
    hang = multirank.run(gallery.pipeline_with_blocking_sends, 3, check=False)
    pipeline = run_for_real([one_f_one_b(stage, 3, 4) for stage in range(3)])
    shown = ((hang, "pipeline_with_blocking_sends"), (pipeline, "1F1B, 3 stages, 4 micro-batches"))
    return {
        f"{name}.svg": _narrow([run], [title])
        for name, (run, title) in zip(_REAL, shown, strict=True)
    }


def _narrow(sources: Sequence[Run | Trace | Replay], titles: list[str]) -> str:
    with mock.patch.object(svg, "PLOT", _PLOT):
        drawn = multirank.timeline(*sources, titles=titles).svg()
    return drawn.replace('Helvetica,Arial,"DejaVu Sans",sans-serif', FAMILY)


def _unlabelled(drawn: str) -> str:
    """Without words in the boxes, for a picture whose arrows cross most of them."""
    return re.sub(r'<g class="labels">.*?</g>\n', "", drawn, flags=re.DOTALL)


def _reduce() -> None:
    collectives.all_reduce(torch.zeros(3 * 2**18))


class _Declared(torch.autograd.Function):
    """The identity, which says how long a layer would take in each direction."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: int) -> Tensor:
        """x."""
        ctx.layer = layer
        multirank.compute(f"F{layer}", FORWARD)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """The gradient."""
        multirank.compute(f"B{ctx.layer}", BACKWARD)
        return grad, None


class _Layer(nn.Linear):
    """A layer of which the replay knows how long it takes."""

    def __init__(self, number: int) -> None:
        super().__init__(WIDTH, WIDTH)
        self.number = number

    def forward(self, input: Tensor) -> Tensor:
        """The output."""
        output: Tensor = _Declared.apply(super().forward(input), self.number)  # type: ignore[no-untyped-call]
        return output


def _prepare(kind: str) -> None:
    """Makes a model on each rank."""
    model: nn.Module = nn.Sequential(*(_Layer(number) for number in range(LAYERS)))
    if kind == "overlapped":
        of_a_layer = 4 * (WIDTH * WIDTH + WIDTH)
        model = DistributedDataParallel(model, bucket_cap_mb=of_a_layer / 2**20)
    multirank.context().state["model"] = model


def _step(kind: str) -> None:
    """Forward, backward, and what makes the gradients the mean."""
    model: nn.Module = multirank.context().state["model"]
    model(torch.ones(1, WIDTH)).sum().backward()
    if isinstance(model, DistributedDataParallel):
        model.finish_gradient_synchronization()
    else:
        all_reduce_gradients(model, flat=kind == "flat")
