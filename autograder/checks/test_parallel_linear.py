"""Checks of problem parallel_linear."""

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

COLUMN, ROW = "ColumnParallelLinear", "RowParallelLinear"
SETTINGS = [
    Setting(2),
    Setting(2, "bfloat16"),
    Setting(4),
    Setting(4, "bfloat16"),
    Setting(3),
    Setting(1),
]
GATHERED = {"gather_output": True}
FEATURES = (24, 36)


@problem("parallel_linear", share="1/4", function=COLUMN)
def test_column(judge: Judge) -> None:
    """ColumnParallelLinear, its output gathered or not, on 1 to 4 ranks: output and gradients."""
    require_right(
        judge,
        [
            Layer("column", setting, FEATURES, options=options)
            for setting in SETTINGS
            for options in ({}, GATHERED)
        ],
    )


@problem("parallel_linear", share="1/4", function=ROW)
def test_row(judge: Judge) -> None:
    """RowParallelLinear on 1 to 4 ranks: output and gradients, those of the bias too."""
    require_right(judge, [Layer("row", setting, FEATURES) for setting in SETTINGS])


@problem("parallel_linear", share="1/10", function=COLUMN)
def test_one_master(judge: Judge) -> None:
    """Ranks that drew different full layers have parts of one: that of the group's first rank."""
    for setting in (Setting(3), Setting(4, members=(1, 3))):
        require_right(
            judge,
            [Layer(kind, setting, FEATURES, masters_differ=True) for kind in ("column", "row")],
        )


@problem("parallel_linear", share="1/10", function=COLUMN)
def test_sub_group(judge: Judge) -> None:
    """In a sub-group whose ranks are not 0, 1, ..."""
    for members in ((1, 3), (0, 2, 3)):
        setting = Setting(4, members=members)
        require_right(
            judge,
            [
                Layer("column", setting, FEATURES),
                Layer("column", setting, FEATURES, options=GATHERED),
                Layer("row", setting, FEATURES),
            ],
        )


@problem("parallel_linear", share="1/20", function=COLUMN)
def test_options(judge: Judge) -> None:
    """Layers without a bias; and an input that the caller has copied already."""
    three = Setting(3)
    require_right(
        judge,
        [
            Layer("column", three, FEATURES, bias=False),
            Layer("row", three, FEATURES, bias=False),
            Layer("column", three, FEATURES, options={"copy_input": False}),
        ],
    )


@problem("parallel_linear", share="1/20", kind="edges", function=COLUMN)
def test_layouts(judge: Judge) -> None:
    """Inputs that are not contiguous; the expanded gradients of .sum().backward()."""
    settings = [Setting(2, layout="strided"), Setting(2, layout="transposed")]
    settings.append(Setting(2, summed=True))
    require_right(
        judge,
        [
            Layer(kind, setting, FEATURES, options=options)
            for setting in settings
            for kind, options in (("column", GATHERED), ("column", {}), ("row", {}))
        ],
    )


@problem("parallel_linear", share="1/20", kind="edges", function=COLUMN)
def test_refusals(judge: Judge) -> None:
    """Features that the ranks do not divide raise ValueError."""
    three = Setting(3)
    require_refusals(
        judge,
        Layer("column", three, FEATURES),
        [
            bad_layer(Layer("column", three, (6, 8))),
            bad_layer(Layer("row", three, (8, 6))),
        ],
    )


@problem("parallel_linear", share="1/10", kind="cost", function=COLUMN)
def test_memory(judge: Judge) -> None:
    """Nothing of a full weight is kept alive, by a parameter or for backward."""
    four = Setting(4)
    column = Layer("column", four, (64, 64), (2,), options=GATHERED)
    require_freed(judge, [column, Layer("row", four, (64, 64), (2,))])


@problem("parallel_linear", share="1/20", kind="cost", function=COLUMN)
def test_traffic(judge: Judge, credit: Credit) -> None:
    """Bytes that forward and backward move, on 4 ranks."""
    four, rows = Setting(4), (4, 8)
    score_cost(
        judge,
        credit,
        [
            Layer("column", four, (64, 512), rows),
            Layer("column", four, (64, 512), rows, options=GATHERED),
            Layer("column", four, (64, 512), rows, options={"copy_input": False}),
            Layer("row", four, (512, 64), rows),
        ],
    )
