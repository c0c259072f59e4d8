"""Checks of problem vocab_embedding."""

from __future__ import annotations

from autograder.grading import Credit
from autograder.judge import Judge
from autograder.problem import problem
from autograder.tensor_parallel import Layer, Setting, require_freed, require_right, score_cost

SETTINGS = [Setting(2), Setting(2, "bfloat16"), Setting(4), Setting(3), Setting(1)]


@problem("vocab_embedding", share="2/5")
def test_lookup(judge: Judge) -> None:
    """Tokens of all ranks, some of them more than once, on 1 to 4 ranks: rows and gradients."""
    require_right(judge, [Layer("embedding", setting, (12, 6), (4, 5)) for setting in SETTINGS])


@problem("vocab_embedding", share="3/10")
def test_padding(judge: Judge) -> None:
    """As many tokens as the ranks do not divide, fewer than would fill them, or one each."""
    require_right(
        judge,
        [
            Layer("embedding", Setting(n), (tokens, 4), (3, 5))
            for n, tokens in ((4, 13), (4, 5), (4, 4), (3, 10), (3, 11))
        ],
    )


@problem("vocab_embedding", share="1/10")
def test_sub_group(judge: Judge) -> None:
    """In a sub-group whose ranks are not 0, 1, ...; the master is that of its first."""
    setting = Setting(4, members=(1, 3))
    require_right(judge, [Layer("embedding", setting, (13, 4), (15,), masters_differ=True)])


@problem("vocab_embedding", share="1/10", kind="cost")
def test_memory(judge: Judge) -> None:
    """Nothing of the full weight is kept alive, by a parameter or for backward."""
    sizes = ((1024, 16), (1023, 16))
    require_freed(judge, [Layer("embedding", Setting(4), size, (4,)) for size in sizes])


@problem("vocab_embedding", share="1/10", kind="cost")
def test_traffic(judge: Judge, credit: Credit) -> None:
    """Bytes that forward and backward move, on 4 ranks."""
    score_cost(judge, credit, [Layer("embedding", Setting(4), (1024, 16), (2, 8))])
