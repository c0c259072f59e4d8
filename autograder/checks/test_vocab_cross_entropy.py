"""Checks of problem vocab_cross_entropy."""

from __future__ import annotations

from autograder.grading import Credit
from autograder.judge import Judge
from autograder.problem import problem
from autograder.tensor_parallel import CrossEntropy, Setting, require_right, score_cost


@problem("vocab_cross_entropy", share="3/10")
def test_loss_and_gradient(judge: Judge) -> None:
    """Targets of all ranks, on 1 to 4 ranks, in float32 and bfloat16."""
    settings = [Setting(2), Setting(2, "bfloat16"), Setting(4), Setting(3), Setting(1)]
    require_right(judge, [CrossEntropy(setting) for setting in settings])


@problem("vocab_cross_entropy", share="1/5")
def test_large_logits(judge: Judge) -> None:
    """Logits up to 1000, whose exponentials no dtype holds."""
    require_right(judge, [CrossEntropy(Setting(n), scale=125.0) for n in (2, 3)])


@problem("vocab_cross_entropy", share="1/5")
def test_ignored(judge: Judge) -> None:
    """Targets that do not count."""
    others = [CrossEntropy(Setting(2), ignored=3, ignore_index=one) for one in (5, 1000)]
    require_right(judge, [*(CrossEntropy(Setting(n), ignored=4) for n in (3, 2)), *others])


@problem("vocab_cross_entropy", share="1/20")
def test_sub_group(judge: Judge) -> None:
    """In a sub-group whose ranks are not 0, 1, ..."""
    require_right(judge, [CrossEntropy(Setting(4, members=(0, 2, 3)))])


@problem("vocab_cross_entropy", share="1/10", kind="edges")
def test_padding(judge: Judge) -> None:
    """Logits that stand for no token, even all of a rank's; logits that are not contiguous."""
    require_right(
        judge,
        [
            *(CrossEntropy(Setting(4), tokens) for tokens in (13, 5)),
            CrossEntropy(Setting(2, layout="transposed")),
        ],
    )


@problem("vocab_cross_entropy", share="3/20", kind="cost")
def test_traffic(judge: Judge, credit: Credit) -> None:
    """Bytes that forward and backward move, on 4 ranks."""
    score_cost(judge, credit, [CrossEntropy(Setting(4), tokens=4096)])
