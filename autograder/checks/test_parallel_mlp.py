"""Checks of problem parallel_mlp."""

from __future__ import annotations

from autograder.grading import Credit
from autograder.judge import Judge
from autograder.problem import problem
from autograder.tensor_parallel import (
    Layer,
    Setting,
    bad_layer,
    require_freed,
    require_refusals,
    require_right,
    score_cost,
)

COLUMN, MEGATRON = "ColumnParallelMLP", "ParallelMLP"
SETTINGS = [
    *(Setting(n, beside=True) for n in (1, 2)),
    *(Setting(2, "bfloat16"), Setting(4, "bfloat16")),
    *(Setting(n, beside=True) for n in (4, 3)),
]
DEEP, PAIR = (24, 36, 12, 24), (24, 48, 24)


@problem("parallel_mlp", share="3/10", function=COLUMN)
def test_column(judge: Judge) -> None:
    """The lecture's MLP, alone and as a residual block, on 1 to 4 ranks: output and gradients."""
    some = Setting(3)
    require_right(
        judge,
        [
            *(Layer("column_mlp", setting, DEEP) for setting in SETTINGS),
            Layer("column_mlp", some, (24, 36), activation="gelu"),
            Layer("column_mlp", some, (24, 36, 12), bias=False),
        ],
    )


@problem("parallel_mlp", share="3/10", function=MEGATRON)
def test_megatron(judge: Judge) -> None:
    """Megatron's MLP, alone and as a residual block, on 1 to 4 ranks: output and gradients."""
    some = Setting(3)
    require_right(
        judge,
        [
            *(Layer("mlp", setting, PAIR) for setting in SETTINGS),
            Layer("mlp", some, (12, 36, 24), activation="gelu"),
            Layer("mlp", some, PAIR, bias=False),
        ],
    )


@problem("parallel_mlp", share="1/10", function=MEGATRON)
def test_sub_group(judge: Judge) -> None:
    """In a sub-group whose ranks are not 0, 1, ..."""
    setting = Setting(4, members=(1, 3))
    require_right(judge, [Layer("mlp", setting, PAIR), Layer("column_mlp", setting, DEEP)])


@problem("parallel_mlp", share="1/20", kind="edges", function=MEGATRON)
def test_refusals(judge: Judge) -> None:
    """Features that the ranks do not divide raise ValueError."""
    three = Setting(3)
    require_refusals(
        judge,
        Layer("mlp", three, PAIR),
        [
            bad_layer(Layer("mlp", three, (6, 8, 6))),
            bad_layer(Layer("column_mlp", three, (6, 6, 8))),
        ],
    )


@problem("parallel_mlp", share="1/20", kind="cost", function=MEGATRON)
def test_memory(judge: Judge) -> None:
    """Nothing of a full weight is kept alive, by a parameter or for backward."""
    four = Setting(4)
    kinds = ("mlp", "column_mlp")
    require_freed(judge, [Layer(kind, four, (64, 128, 64), (2,)) for kind in kinds])


@problem("parallel_mlp", share="1/5", kind="cost", function=MEGATRON)
def test_traffic(judge: Judge, credit: Credit) -> None:
    """Bytes that forward and backward move, on 4 ranks."""
    four, rows = Setting(4), (4, 8)
    mlp = Layer("mlp", four, (64, 512, 64), rows)
    score_cost(judge, credit, [mlp, Layer("column_mlp", four, (64, 256, 256, 64), rows)])
