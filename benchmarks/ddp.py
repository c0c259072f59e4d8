"""How long a training step with the reference's DDP takes, as a ratio to torch's own.

An MLP of 10 M parameters on 4 ranks: forward, backward, averaged gradients, and a step of SGD, with
the same buckets of at most 25 MiB. Prints a table and ends with one line of JSON.

    python -m benchmarks.ddp [--pairs 15]
"""

from __future__ import annotations

import argparse
import json
from functools import partial

import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel as TorchDistributedDataParallel

from benchmarks.pairs import paired, use
from reference.ddp import DistributedDataParallel

RANKS, WIDTH, LAYERS, TARGET = 4, 1024, 10, 1.05
SAMPLES = (8, 32)  # of each rank: little to compute beside what is sent, and more


def prepare(ours: bool, samples: int) -> None:
    """In a rank: makes a training ready."""
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    mlp = nn.Sequential(*(module for layer in layers for module in (layer, nn.GELU())))
    model: nn.Module = DistributedDataParallel(mlp) if ours else TorchDistributedDataParallel(mlp)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    inputs, targets = torch.randn(2, samples, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(mse_loss(model(inputs), targets))
        if isinstance(model, DistributedDataParallel):
            model.finish_gradient_synchronization()
        optimizer.step()

    use(step)


def main() -> None:
    """Measures, and prints the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=15)
    pairs = parser.parse_args().pairs
    print(f"{'samples of a rank':<20}{'ours, ms':>10}{'torch, ms':>11}{'ratio':>8}")
    rows = []
    for samples in SAMPLES:
        found = paired(
            partial(prepare, True, samples), partial(prepare, False, samples), RANKS, pairs
        )
        print(f"{samples:<20}{found.ours:>10}{found.theirs:>11}{found.ratio:>8}")
        rows.append({"samples": samples, "ratio": found.ratio, "torch_ms": found.theirs})
    print(json.dumps({"benchmark": "ddp", "pairs": pairs, "target": TARGET, "rows": rows}))


if __name__ == "__main__":
    main()
