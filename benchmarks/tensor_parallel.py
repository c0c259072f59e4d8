"""How long the reference's parallel transformer block takes, as a ratio to torch's DTensor.

Attention and MLP with norms and residual connections, forward and backward, on 4 ranks. torch's has
column- and row-wise parallel layers in the same places, and, like ours, one all-reduce for each
half of the block in each direction. Prints a table and ends with one line of JSON.

    python -m benchmarks.tensor_parallel [--pairs 15]
"""

from __future__ import annotations

import argparse
import json
from functools import partial

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

from benchmarks.pairs import paired, use
from reference.examples.transformer_block import MLP, Block
from reference.tensor_parallel import Attention, ParallelAttention, ParallelMLP

RANKS, BATCH, HEADS, TARGET = 4, 4, 8, 1.1
SIZES = ((64, 256), (128, 512))  # sequence and hidden


def ours(sequence: int, hidden: int) -> None:
    """In a rank: makes the reference's block ready."""
    attention, mlp = Attention(hidden, HEADS), MLP(hidden)
    block = Block(ParallelAttention(attention), ParallelMLP(mlp.fc1, mlp.fc2), hidden)
    _use(block, sequence, hidden)


def torchs(sequence: int, hidden: int) -> None:
    """In a rank: makes torch's block ready."""
    block = Block(Attention(hidden, HEADS), MLP(hidden), hidden)
    whole = PrepareModuleInput(
        input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),), use_local_output=False
    )
    plan = {
        "attention": whole,
        **{f"attention.{name}_proj": ColwiseParallel() for name in "qkv"},
        "attention.o_proj": RowwiseParallel(),
        "mlp.fc1": ColwiseParallel(),
        "mlp.fc2": RowwiseParallel(),
    }
    parallelize_module(block, init_device_mesh("cpu", (RANKS,)), plan)
    _use(block, sequence, hidden)


def _use(block: Block, sequence: int, hidden: int) -> None:
    x = torch.randn(BATCH, sequence, hidden, requires_grad=True)
    output_grad = torch.randn(BATCH, sequence, hidden)
    use(lambda: block(x).backward(output_grad))


def main() -> None:
    """Measures, and prints the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=15)
    pairs = parser.parse_args().pairs
    print(f"{'sequence':<10}{'hidden':>8}{'ours, ms':>10}{'torch, ms':>11}{'ratio':>8}")
    rows = []
    for sequence, hidden in SIZES:
        found = paired(
            partial(ours, sequence, hidden), partial(torchs, sequence, hidden), RANKS, pairs
        )
        print(f"{sequence:<10}{hidden:>8}{found.ours:>10}{found.theirs:>11}{found.ratio:>8}")
        rows.append(
            {"sequence": sequence, "hidden": hidden, "ratio": found.ratio, "torch_ms": found.theirs}
        )
    print(
        json.dumps({"benchmark": "tensor_parallel", "pairs": pairs, "target": TARGET, "rows": rows})
    )


if __name__ == "__main__":
    main()
