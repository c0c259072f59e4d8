"""Checks of problem parallel_attention."""

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

HIDDEN = (24, 24)


@problem("parallel_attention", share="2/5")
def test_heads(judge: Judge) -> None:
    """As many key/value heads as query heads, on 1 to 4 ranks: output and gradients."""
    settings = [
        *(Setting(n, beside=True) for n in (1, 2)),
        *(Setting(2, "bfloat16"), Setting(4, "bfloat16")),
        *(Setting(n, beside=True) for n in (4, 3)),
    ]
    require_right(
        judge,
        [Layer("attention", setting, HIDDEN, (2, 5), heads=(12, 12, True)) for setting in settings],
    )


@problem("parallel_attention", share="1/4")
def test_grouped_heads(judge: Judge) -> None:
    """Query heads that share keys and values: as many of these as ranks, or a multiple."""
    require_right(
        judge,
        [
            Layer("attention", Setting(n), HIDDEN, (2, 5), heads=(12, kv_heads, True))
            for n, kv_heads in ((2, 2), (2, 4), (4, 4), (3, 3), (3, 6))
        ],
    )


@problem("parallel_attention", share="1/10")
def test_options(judge: Judge) -> None:
    """Without a causal mask, without biases, and in a sub-group."""
    three, group = Setting(3), Setting(4, members=(1, 3))
    require_right(
        judge,
        [
            Layer("attention", three, HIDDEN, (2, 5), heads=(6, 6, False)),
            Layer("attention", three, HIDDEN, (2, 5), heads=(6, 3, True), bias=False),
            Layer("attention", group, HIDDEN, (2, 5), heads=(6, 2, True)),
        ],
    )


@problem("parallel_attention", share="1/20", kind="edges")
def test_refusals(judge: Judge) -> None:
    """Heads that the ranks do not divide raise ValueError."""
    three = Setting(3)
    require_refusals(
        judge,
        Layer("attention", three, HIDDEN, (2, 5), heads=(6, 3, True)),
        [
            bad_layer(Layer("attention", three, HIDDEN, heads=(8, 8, True))),
            bad_layer(Layer("attention", three, HIDDEN, heads=(6, 2, True))),
        ],
    )


@problem("parallel_attention", share="1/20", kind="cost")
def test_memory(judge: Judge) -> None:
    """Nothing of a full weight is kept alive, by a parameter or for backward."""
    layer = Layer("attention", Setting(4), (64, 64), (1, 2), heads=(8, 8, True))
    require_freed(judge, [layer])


@problem("parallel_attention", share="3/20", kind="cost")
def test_traffic(judge: Judge, credit: Credit) -> None:
    """Bytes that forward and backward move, on 4 ranks."""
    layer = Layer("attention", Setting(4), (64, 64), (2, 5), heads=(8, 8, True))
    score_cost(judge, credit, [layer])
