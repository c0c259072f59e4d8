"""A transformer block on several ranks: `python -m assignment.examples.transformer_block`.

    x = x + attention(norm(x))        # each half of the block: one all-reduce forward, of the
    x = x + mlp(norm(x))              # output, and one backward, of the input's gradient

Your ParallelAttention and ParallelMLP are put into it, and every rank compares output and gradients
with those of the same block without parallelism. `transformer_block.html` shows what was sent when.

All of it is given; what it uses of `tensor_parallel.py` is yours.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multirank
from multirank import Trace

from ..tensor_parallel import Attention, ParallelAttention, ParallelMLP
from .ranks import call

BATCH, SEQUENCE, HIDDEN, HEADS = 4, 64, 384, 12
CLOSE = 1e-4  # relative to the largest number: float32's rounding makes less than that
SPLIT_OUTPUTS, SPLIT_INPUTS = ("q_proj", "k_proj", "v_proj", "fc1"), ("o_proj", "fc2")


class MLP(nn.Module):
    """fc2(gelu(fc1(x)))."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """The shape of ``x``."""
        output: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return output


class Block(nn.Module):
    """Attention and MLP, each with a norm before and a residual connection around it."""

    def __init__(self, attention: nn.Module, mlp: nn.Module, hidden: int) -> None:
        super().__init__()
        self.attention, self.mlp = attention, mlp
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)

    def forward(self, x: Tensor) -> Tensor:
        """The shape of ``x``: (batch, sequence, hidden)."""
        with multirank.span("attention"):
            x = x + self.attention(self.norm1(x))
        with multirank.span("mlp"):
            x = x + self.mlp(self.norm2(x))
        return x


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m assignment.examples.transformer_block",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--ranks", type=int, default=4, choices=(1, 2, 3, 4, 6, 12), metavar="N")
    parser.add_argument("--out", type=Path, default=Path("transformer_block.html"))
    asked = parser.parse_args(arguments)
    try:
        with multirank.World(asked.ranks) as world:
            call(world, prepare)
            run = call(world, compare)
    except NotImplementedError as error:
        sys.exit(f"{error}. It is needed for this.")
    except multirank.RanksFailed as failed:
        sys.exit(str(failed))
    print("\n".join([*agreement(run.results), "", *sent(run.trace)]))
    multirank.timeline(run, titles=[f"A transformer block on {asked.ranks} ranks"]).save(asked.out)
    print(f"\nThe timeline: {asked.out}")


def prepare() -> None:
    """On the calling rank: makes both blocks ready, and runs the one without parallelism."""
    torch.manual_seed(0)
    attention, mlp = Attention(HIDDEN, HEADS), MLP(HIDDEN)
    alone = Block(attention, mlp, HIDDEN)
    parallel = Block(ParallelAttention(attention), ParallelMLP(mlp.fc1, mlp.fc2), HIDDEN)
    x, output_grad = torch.randn(2, BATCH, SEQUENCE, HIDDEN)
    state = multirank.context().state
    state["parallel"] = parallel, x, output_grad
    state["expected"] = forward_and_backward(alone, x, output_grad)


def compare() -> dict[str, float]:
    """On the calling rank: runs the parallel block.

    Returns:
        for the output and each gradient, how far it is from the other block's, relative to the
        largest number in it, or to 1 where all are smaller.
    """
    state = multirank.context().state
    found = forward_and_backward(*state["parallel"])
    return {
        name: _distance(tensor, own_part(name, state["expected"][name]))
        for name, tensor in found.items()
    }


def forward_and_backward(block: Block, x: Tensor, output_grad: Tensor) -> dict[str, Tensor]:
    """The output, and the gradients of the input and of all parameters, by name."""
    x = x.clone().requires_grad_()
    with multirank.span("forward"):
        output = block(x)
    with multirank.span("backward"):
        output.backward(output_grad)
    assert x.grad is not None
    gradients = {name: one.grad for name, one in block.named_parameters() if one.grad is not None}
    return {"output": output.detach(), "input": x.grad, **gradients}


def own_part(name: str, full: Tensor) -> Tensor:
    """What the calling rank has of a parameter, or of its gradient."""
    context = multirank.context()
    layer, _, kind = name.rpartition(".")
    layer = layer.rpartition(".")[-1]
    if layer in SPLIT_OUTPUTS:
        return full.chunk(context.world_size, dim=0)[context.rank]
    if layer in SPLIT_INPUTS and kind == "weight":
        return full.chunk(context.world_size, dim=1)[context.rank]
    return full


def _distance(found: Tensor, right: Tensor) -> float:
    if found.shape != right.shape:
        return float("inf")
    # The gradient of the keys' bias is 0 but for rounding: softmax does not see it.
    return float((found - right).abs().max() / right.abs().max().clamp(min=1))


def agreement(results: Sequence[Mapping[str, float]]) -> list[str]:
    """Lines on how far each rank is from the block without parallelism."""
    lines = ["The largest difference from one process, relative to the largest number", ""]
    for name in results[0]:
        worst = max(range(len(results)), key=lambda rank: results[rank][name])
        size = results[worst][name]
        verdict = "" if size <= CLOSE else f"   differs, most on rank {worst}"
        what = name if name == "output" else f"gradient of {name}"
        lines.append(f"{what:<40}{size:>10.1e}{verdict}")
    if all(size <= CLOSE for result in results for size in result.values()):
        lines += ["", "All agree."]
    return lines


def sent(trace: Trace) -> list[str]:
    """Lines on what rank 0 communicated in forward and in backward."""
    (turn,) = [m.time for m in trace.marks if (m.rank, m.kind, m.label) == (0, "begin", "backward")]
    names: dict[str, list[str]] = {"forward": [], "backward": []}
    for operation in trace.of_rank(0):
        names["forward" if operation.issued < turn else "backward"].append(operation.name)
    lines = []
    for where, done in names.items():
        counts = ", ".join(f"{done.count(name)} {name}" for name in dict.fromkeys(done))
        lines.append(f"{where + ':':<12}{counts or 'nothing is sent'}")
    return [*lines, "(One all_reduce is all that a half of the block needs, in each direction.)"]


if __name__ == "__main__":
    main()
