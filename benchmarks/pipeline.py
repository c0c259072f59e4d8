"""How long the reference's 1F1B takes for a batch, as a ratio to torch.distributed.pipelining.

Forward and backward passes of the same 4 stages, one a rank, with the same micro-batches. Prints a
table and ends with one line of JSON.

    python -m benchmarks.pipeline [--pairs 15]
"""

from __future__ import annotations

import argparse
import json
from functools import partial

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage as TorchPipelineStage
from torch.distributed.pipelining import Schedule1F1B
from torch.nn.functional import mse_loss

import multirank
from benchmarks.pairs import paired, use
from reference.pipeline_parallel import PipelineStage, one_f_one_b, run_schedule

STAGES, LAYERS, BATCH, TARGET = 4, 2, 128, 1.1
SIZES = ((256, 4), (256, 16), (1024, 8))  # width, and number of micro-batches


def stage_module(width: int) -> nn.Module:
    """A stage's layers."""
    layers = [nn.Linear(width, width) for _ in range(LAYERS)]
    return nn.Sequential(*(module for layer in layers for module in (layer, nn.GELU())))


def ours(width: int, microbatches: int) -> None:
    """In a rank: makes the reference's pipeline ready."""
    rank = multirank.context().rank
    stage = PipelineStage(stage_module(width), rank, STAGES, input_shape=(width,))
    schedule = [one_f_one_b(number, STAGES, microbatches) for number in range(STAGES)]
    inputs, targets = torch.randn(2, BATCH, width)

    def step() -> None:
        parts, goals = inputs.chunk(microbatches), targets.chunk(microbatches)
        run_schedule(stage, schedule, [len(part) for part in parts], parts, goals, mse_loss)

    use(step)


def torchs(width: int, microbatches: int) -> None:
    """In a rank: makes torch's ready."""
    rank = multirank.context().rank
    stage = TorchPipelineStage(stage_module(width), rank, STAGES, torch.device("cpu"))
    schedule = Schedule1F1B(stage, microbatches, loss_fn=mse_loss)
    inputs, targets = torch.randn(2, BATCH, width)
    of_first = (inputs,) if rank == 0 else ()
    of_last = {"target": targets} if rank == STAGES - 1 else {}
    use(lambda: schedule.step(*of_first, **of_last))


def main() -> None:
    """Measures, and prints the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=15)
    pairs = parser.parse_args().pairs
    print(f"{'width':<7}{'micro-batches':>14}{'ours, ms':>10}{'torch, ms':>11}{'ratio':>8}")
    rows = []
    for width, microbatches in SIZES:
        found = paired(
            partial(ours, width, microbatches), partial(torchs, width, microbatches), STAGES, pairs
        )
        print(f"{width:<7}{microbatches:>14}{found.ours:>10}{found.theirs:>11}{found.ratio:>8}")
        rows.append(
            {
                "width": width,
                "microbatches": microbatches,
                "ratio": found.ratio,
                "torch_ms": found.theirs,
            }
        )
    print(json.dumps({"benchmark": "pipeline", "pairs": pairs, "target": TARGET, "rows": rows}))


if __name__ == "__main__":
    main()
