"""Checks of problem parallel_regions."""

from __future__ import annotations

from autograder.grading import Credit
from autograder.judge import Judge
from autograder.problem import problem
from autograder.tensor_parallel import (
    BadCall,
    Region,
    Setting,
    draw,
    require_refusals,
    require_right,
    require_untouched,
    score_cost,
)

COPY, REDUCE = "copy_to_tensor_parallel_region", "reduce_from_tensor_parallel_region"
GATHER, SCATTER = "gather_from_tensor_parallel_region", "scatter_to_tensor_parallel_region"
PAIR = ("copy_to", "reduce_from")
BACKWARDS = ("split", "reduce_scatter")


@problem("parallel_regions", share="1/4", function=COPY)
def test_copy_and_reduce(judge: Judge) -> None:
    """copy_to and reduce_from, forward and backward, on 1 to 4 ranks, in float32 and bfloat16."""
    settings = [Setting(2), Setting(4), Setting(4, "bfloat16"), Setting(3), Setting(1)]
    require_right(judge, [Region(name, setting) for setting in settings for name in PAIR])


@problem("parallel_regions", share="1/8", function=GATHER)
def test_gather(judge: Judge) -> None:
    """gather_from along any dimension, with both kinds of backward."""
    require_right(
        judge,
        [
            Region("gather_from", Setting(n, dtype), shape, dim, backward)
            for n, dtype in ((2, "float32"), (4, "bfloat16"), (3, "float32"))
            for shape, dim, backward in (
                ((12, 12, 12), None, None),
                ((12, 12, 12), -1, BACKWARDS[1]),
                ((12, 12, 12), 1, BACKWARDS[1]),
                ((12,), 0, BACKWARDS[0]),
            )
        ],
    )


@problem("parallel_regions", share="1/8", function=SCATTER)
def test_scatter(judge: Judge) -> None:
    """scatter_to along any dimension."""
    require_right(
        judge,
        [
            Region("scatter_to", Setting(n, dtype), (12, 12, 12), dim)
            for n, dtype in ((2, "float32"), (4, "bfloat16"), (3, "float32"))
            for dim in (None, 0, 1)
        ],
    )


@problem("parallel_regions", share="3/20", function=COPY)
def test_residual(judge: Judge) -> None:
    """x + region(x): the two branches share the input, and the gradient; nothing changes them."""
    four = Setting(4)
    require_untouched(
        judge,
        [
            *(Region(name, Setting(4, beside=True)) for name in PAIR),
            *(Region(name, four) for name in (*PAIR, "scatter_to")),
            *(Region("gather_from", four, backward=backward) for backward in BACKWARDS),
        ],
    )


@problem("parallel_regions", share="1/10", function=COPY)
def test_sub_group(judge: Judge) -> None:
    """In a sub-group whose ranks are not 0, 1, ..."""
    for members in ((1, 3), (0, 2, 3)):
        group = Setting(4, members=members)
        require_right(
            judge,
            [
                *(Region(name, group) for name in (*PAIR, "scatter_to")),
                *(Region("gather_from", group, backward=backward) for backward in BACKWARDS),
            ],
        )


@problem("parallel_regions", share="1/10", kind="edges", function=COPY)
def test_layouts(judge: Judge) -> None:
    """Tensors that are not contiguous, and the expanded gradients of .sum().backward()."""
    settings = [Setting(2, layout=layout) for layout in ("strided", "transposed")]
    require_right(
        judge,
        [
            Region(name, setting, (12, 12), 0 if name == "gather_from" else None, backward)
            for setting in (*settings, Setting(2, summed=True))
            for name, backward in (
                *((name, None) for name in (*PAIR, "scatter_to")),
                *(("gather_from", backward) for backward in BACKWARDS),
            )
        ],
    )


@problem("parallel_regions", share="1/20", kind="edges", function=SCATTER)
def test_refusals(judge: Judge) -> None:
    """A size that does not divide, and an unknown kind of backward, raise ValueError."""
    x = draw(judge.seed.generator(), 3, 5).float()
    good = Setting(2)
    called = {"x": x, "gradient": None, "layout": "plain", "beside": False}
    require_refusals(
        judge,
        Region("scatter_to", good),
        [
            BadCall(
                "region",
                called | {"region": "scatter_to", "options": {"dim": 1}},
                "scatter_to of a dimension of size 5 on 2 ranks",
            ),
            BadCall(
                "region",
                called | {"region": "gather_from", "options": {"backward": "sum"}},
                'gather_from with backward="sum"',
            ),
        ],
    )


@problem("parallel_regions", share="1/10", kind="cost", function=COPY)
def test_traffic(judge: Judge, credit: Credit) -> None:
    """Bytes that forward and backward move, on 4 ranks."""
    four = Setting(4)
    score_cost(
        judge,
        credit,
        [
            *(Region(name, four) for name in (*PAIR, "scatter_to")),
            *(Region("gather_from", four, backward=backward) for backward in BACKWARDS),
        ],
    )
