"""Each likely cause is told where the numbers bear it out, and only there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import multirank
from multirank import Explanation, Facts, explain
from multirank.explaining.causes import CAUSES

Values = npt.NDArray[Any]
Ranks = list[Any]
W = 4


def inputs(size: int = 8, n: int = W, seed: int = 0) -> Ranks:
    """Whole numbers, no two alike in magnitude, exact in float32 however they are added up."""
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(np.arange(1, 4 * size * n + 1))[: size * n].reshape(n, size)
    return list((12 * drawn * rng.choice([-1, 1], (n, size))).astype(np.float32))


def total(given: Ranks) -> Values:
    return np.asarray(np.sum(given, axis=0, dtype=given[0].dtype))


def names(found: Explanation) -> list[str]:
    """Those of the causes told."""
    told = []
    for text in found.causes:
        fitting = [cause.name for cause in CAUSES if re.fullmatch(_pattern(cause.text), text)]
        assert len(fitting) == 1, text
        told += fitting
    return told


def _pattern(text: str) -> str:
    """The sentence, whatever is put into it; `{what}` stands for a clause, the rest for a word."""
    return re.sub(r"\\{(\w+)\\}", r"\\S+( .+)?", re.escape(text))


@dataclass(frozen=True)
class Case:
    """A call that went wrong."""

    actual: Sequence[Any]
    expected: Sequence[Any]
    given: Sequence[Any]
    facts: Facts = field(default_factory=Facts)

    @property
    def causes(self) -> list[str]:
        return names(explain(self.actual, self.expected, self.given, self.facts))

    def but(self, **facts: Any) -> Case:
        return replace(self, facts=replace(self.facts, **facts))


X = inputs()
WIDE = inputs(40)
SUM, MEAN, LARGEST = total(X), total(X) / W, np.max(X, axis=0)
GATHERED = np.concatenate(X)
SCATTERED = list(SUM.reshape(W, 2))


def summed(*actual: Values, **facts: Any) -> Case:
    """An all_reduce of SUM that gave this on each rank, or the same on all."""
    results = list(actual) * (W if len(actual) == 1 else 1)
    return Case(results, [SUM] * W, X, Facts(function="all_reduce", op="SUM", **facts))


def averaged(*actual: Values, **facts: Any) -> Case:
    results = list(actual) * (W if len(actual) == 1 else 1)
    return Case(results, [MEAN] * W, X, Facts(function="all_reduce", op="AVG", **facts))


def gathered(*actual: Values, **facts: Any) -> Case:
    results = list(actual) * (W if len(actual) == 1 else 1)
    return Case(results, [GATHERED] * W, X, Facts(function="all_gather", **facts))


def broadcast(root: int, *actual: Values) -> Case:
    facts = Facts(function="broadcast", root=root, ranks=(0, 2, 5, 7))
    return Case(actual, [X[facts.ranks.index(root)]] * W, X, facts)  # type: ignore[union-attr]


def reduced_to(root: int, result: Values, **facts: Any) -> Case:
    known = Facts(function="reduce", op="SUM", root=root, before=X, **facts)
    others = [None] * root, [None] * (W - root - 1)
    actual, expected = ([*others[0], one, *others[1]] for one in (result, SUM))
    return Case(actual, expected, X, known)


def put(base: Values, at: slice, values: Any) -> Values:
    changed = base.copy()
    changed[at] = values
    return changed


def narrow(values: Any) -> Values:
    return np.asarray(torch.as_tensor(np.asarray(values)).bfloat16().float().numpy())


def chain(order: Sequence[int], divisor: int, part: slice = slice(None)) -> Values:
    """A sum in this order, divided at every step."""
    result = X[order[0]][part]
    for k in order[1:]:
        result = (result + X[k][part]) / divisor
    return np.asarray(result)


def off_ring(chosen: Sequence[Sequence[int]]) -> Values:
    """For each chunk of two elements, how often each rank's contribution is counted."""
    chunks = [
        sum(times * x[2 * i : 2 * i + 2] for times, x in zip(counts, X, strict=True))
        for i, counts in enumerate(chosen)
    ]
    return np.concatenate(chunks)


RING_SHORT = off_ring([[0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]])
RING_LONG = off_ring([[2, 1, 1, 1], [1, 2, 1, 1], [1, 1, 2, 1], [1, 1, 1, 2]])
RUNNING = [np.roll([1, 1, 3, 3], rank).tolist() for rank in range(W)]  # passed on to the right
RING_WRONG = off_ring([[0, 2, 1, 1], [1, 0, 2, 1], [1, 1, 0, 2], [2, 1, 1, 0]])
LARGER = [*X[:3], X[3] + np.float32(1e5)]
SQUARE = [x[:32].reshape(4, 8) for x in WIDE]
SQUARE_SUM = total(SQUARE)
LARGE_INTS = [(x.astype(np.int64) * (10**15 + 1)) for x in X]
LARGE_SUM = total(LARGE_INTS)
PARTS = [x.reshape(W, 2) for x in X]
EXCHANGED = [np.concatenate([PARTS[i][j] for i in range(W)]) for j in range(W)]


def exchanged(*actual: Values) -> Case:
    return Case(actual, EXCHANGED, X, Facts(function="all_to_all"))


def uneven(size: int, start: int) -> Case:
    """A sum whose elements from `start` on are wrong, by no rule."""
    x = inputs(size)
    return Case([put(total(x), slice(start, None), 1e6)] * W, [total(x)] * W, x)


# For each cause: where it is told first, and near misses where it is not told.
PAIRS: dict[str, tuple[list[Case], list[Case]]] = {
    "wrong root": (
        [
            broadcast(2, X[3], X[3], X[3], X[3]),
            Case(
                [None, X[1], None, None],
                [None, SUM, None, None],
                X,
                Facts(function="reduce", root=1, op="SUM", bystanders=[X[0], None, SUM, X[3]]),
            ),
        ],
        [
            broadcast(2, X[0], X[1], X[2], X[1]),  # rank 0 has not communicated
            Case([X[3]] * W, [X[1]] * W, X),
            Case(
                [None, X[1], None, None],
                [None, SUM, None, None],
                X,
                Facts(function="reduce", root=1, op="SUM", bystanders=[X[0], None, X[2], X[3]]),
            ),
        ],
    ),
    "nothing for the root": (
        [reduced_to(1, X[1], received=[True, False, False, True])],
        [
            reduced_to(1, X[1], received=[False] * W),
            reduced_to(1, X[1], received=[False, True, False, False]),
            reduced_to(1, X[1]),
        ],
    ),
    "nothing communicated": (
        [
            summed(*X),
            Case(X, [SUM] * W, X),
            Case([None, None, X[2], None], [None, None, SUM, None], X),
            Case([x.reshape(W, 2)[r] for r, x in enumerate(X)], SCATTERED, X),
        ],
        [summed(*X, received=[True] * W), summed(X[0], X[1], X[2], X[0])],
    ),
    "left in a copy": (
        [summed(*X, before=X, received=[True] * W)],
        [
            summed(*X, before=X),
            summed(*X, before=X, received=[True, True, True, False]),
            summed(*X[:3], SUM / 2, before=X, received=[True] * W),
        ],
    ),
    "left in a copy or never written": (
        [gathered(np.full(32, 99.0), before=99, received=[True] * W, contiguous=False)],
        [
            gathered(np.full(32, 99.0), before=99, received=[True] * W, contiguous=True),
            gathered(np.full(32, 99.0), before=99, received=[False] * W, contiguous=False),
            gathered(np.full(32, 98.0), before=99, received=[True] * W, contiguous=False),
            summed(*X, before=X, received=[True] * W, contiguous=False),
        ],
    ),
    "received left out": (
        [
            Case(
                [x.reshape(W, 2)[r] for r, x in enumerate(X)],
                SCATTERED,
                X,
                Facts(op="SUM", before=99, received=[True] * W),
            )
        ],
        [summed(*X, before=X, received=[True] * W), summed(X[0], received=[True] * W)],
    ),
    "one rank's input": (
        [Case([X[3]] * W, [X[1]] * W, X), summed(X[2])],
        [
            Case([X[1], X[1], X[2], X[1]], [X[1]] * W, X),
            Case([X[3]] * W, [SUM] * W, [X[0], X[1], X[3], X[3]]),
        ],
    ),
    "stale": (
        [
            summed(total(inputs(seed=5)), previous=[[total(inputs(seed=5))] * W]),
            summed(
                put(SUM, slice(2, 4), WIDE[0][2:4]), previous=[[WIDE[0][:8]] * W, [LARGEST] * W]
            ),
        ],
        [
            summed(total(inputs(seed=5)), previous=[[total(inputs(seed=6))] * W]),
            summed(total(inputs(seed=5)), previous=[[WIDE[0]] * W]),
            gathered(np.full(32, 99.0), before=99, previous=[[np.full(32, 99.0)] * W]),
        ],
    ),
    "sum for mean": (
        [
            averaged(SUM),
            Case([SUM] * W, [MEAN] * W, X),
            averaged(put(MEAN, slice(2, 4), SUM[2:4])),
            Case([W * MEAN] * W, [MEAN] * W, [np.ones((5, 2))] * W),  # of gradients, say
        ],
        [summed(W * SUM), averaged(3 * MEAN), Case([W * SUM] * W, [SUM] * W, X)],
    ),
    "mean for sum": (
        [summed(MEAN), Case([MEAN] * W, [SUM] * W, X), Case([MEAN] * W, [SUM] * W, [None] * W)],
        [averaged(MEAN / W), summed(SUM / 3), Case([MEAN / W] * W, [MEAN] * W, X)],
    ),
    "divided by all ranks": (
        [averaged(SUM / 6, world_size=6)],
        [averaged(SUM / 6), averaged(SUM / 6, world_size=5), summed(SUM * W / 6, world_size=6)],
    ),
    "divided by two": (
        [averaged(SUM / 2)],
        [summed(2 * SUM), averaged(SUM / 3), Case([X[0] / 2 + X[1]] * 2, [X[0]] * 2, X[:2])],
    ),
    "divided twice": (
        [averaged(MEAN / W), Case([MEAN / W] * W, [MEAN] * W, X)],
        [averaged(MEAN / W, world_size=W * W), summed(SUM / W), averaged(MEAN / 3)],
    ),
    "divided at every hop": (
        [
            averaged(chain((0, 1, 2, 3), 2)),
            averaged(chain((2, 1, 0, 3), 4)),
            averaged(chain((1, 2, 3, 0), 2) / W),
            averaged(
                np.concatenate(
                    [
                        chain([(c + i) % W for i in range(W)], 2, slice(2 * c, 2 * c + 2))
                        for c in range(W)
                    ]
                )
            ),
        ],
        [averaged(chain((0, 1, 2, 3), 3)), averaged(0.5 * X[0] + 0.25 * (X[1] + X[2]) + 0 * X[3])],
    ),
    "reduced twice": (
        [summed(W * SUM)],
        [summed(3 * SUM), averaged(SUM), Case([W * LARGEST] * W, [LARGEST] * W, X)],
    ),
    "another op": (
        [
            Case([SUM] * W, [LARGEST] * W, X, Facts(op="MAX")),
            summed(LARGEST),
            averaged(np.min(X, axis=0)),
        ],
        [
            Case([SUM] * W, [LARGEST] * W, X),
            summed(np.median(X, axis=0)),
            summed(X[3]),
            Case([LARGER[3]] * W, [total(LARGER)] * W, LARGER, Facts(op="SUM")),  # or rank 3's data
        ],
    ),
    "integers through floats": (
        [
            Case(
                [total([x.astype(np.float32) for x in LARGE_INTS]).astype(np.int64)] * W,
                [LARGE_SUM] * W,
                LARGE_INTS,
            )
        ],
        [
            Case([LARGE_SUM + LARGE_SUM // 1000] * W, [LARGE_SUM] * W, LARGE_INTS),
            Case([np.arange(8) + 1] * W, [np.arange(8)] * W, [np.ones(8)] * W),
        ],
    ),
    "narrower dtype": (
        [
            Case([narrow(WIDE[1] + 1)] * W, [WIDE[1] + 1] * W, WIDE),
            Case([total([narrow(x) for x in WIDE])] * W, [total(WIDE)] * W, WIDE),
            Case(
                [total([x if k == r else narrow(x) for k, x in enumerate(WIDE)]) for r in range(W)],
                [total(WIDE)] * W,
                WIDE,
            ),
        ],
        [
            Case([WIDE[1] * 1.003] * W, [WIDE[1]] * W, WIDE),
            Case([narrow(WIDE[1])] * W, [WIDE[1] + 1] * W, WIDE).but(dtype="bfloat16"),
            summed(narrow(SUM) * 1.5),
        ],
    ),
    "own contribution missing": (
        [summed(*[SUM - x for x in X]), Case([X[1], X[0]], [X[0] + X[1]] * 2, X[:2])],
        [summed(SUM - X[0], *[SUM] * 3), summed(*[SUM - x / 2 for x in X])],
    ),
    "one contribution missing": (
        [
            summed(SUM - X[2]),
            averaged(MEAN - X[1] / W),
            summed(put(SUM, slice(4, 6), (SUM - X[1])[4:6])),
            Case([LARGE_SUM - LARGE_INTS[3]] * W, [LARGE_SUM] * W, LARGE_INTS),
        ],
        [summed(SUM - X[2] + 12), Case([LARGEST - X[2]] * W, [LARGEST] * W, X), summed(RING_SHORT)],
    ),
    "different contributions missing": (
        [summed(RING_SHORT)],
        [summed(RING_LONG), summed(SUM - X[0]), summed(RING_SHORT + 12)],
    ),
    "own contribution twice": (
        [summed(*[SUM + x for x in X])],
        [summed(SUM + X[0], *[SUM] * 3), summed(*[SUM - x for x in X])],
    ),
    "one contribution twice": (
        [summed(SUM + X[2]), averaged(MEAN + X[3] / W)],
        [summed(SUM - X[2]), summed(SUM + X[2] / 2), summed(RING_LONG)],
    ),
    "running sum passed on": (
        [
            summed(*[off_ring([counts] * W) for counts in RUNNING]),
            summed(*[off_ring([counts[::-1]] * W) for counts in RUNNING[::-1]]),
        ],
        [summed(RING_LONG), summed(*[SUM + x for x in X]), summed(off_ring([RUNNING[0]] * W))],
    ),
    "different contributions twice": (
        [summed(RING_LONG)],
        [summed(RING_SHORT), summed(SUM + X[0]), summed(RING_LONG + 12)],
    ),
    "chunk shifted": (
        [
            gathered(np.roll(GATHERED, 8)),
            gathered(np.roll(GATHERED, -8)),
            Case([PARTS[0][(r + 1) % W] for r in range(W)], list(PARTS[0]), [X[0], *[None] * 3]),
        ],
        [
            gathered(np.roll(GATHERED, 1)),
            gathered(np.roll(GATHERED, 16)),
            Case([PARTS[0][(r + 2) % W] for r in range(W)], list(PARTS[0]), [X[0], *[None] * 3]),
        ],
    ),
    "one result for all": (
        [Case([PARTS[0][0]] * W, list(PARTS[0]), [X[0], *[None] * 3])],
        [
            Case([PARTS[0][0] + 1] * W, list(PARTS[0]), [X[0], *[None] * 3]),
            Case([PARTS[0][r] for r in (0, 2, 3, 1)], list(PARTS[0]), [X[0], *[None] * 3]),
        ],
    ),
    "another's result": (
        [
            Case([PARTS[0][(r + 2) % W] for r in range(W)], list(PARTS[0]), [X[0], *[None] * 3]),
            Case([SCATTERED[r] for r in (0, 3, 2, 1)], SCATTERED, X, Facts(op="SUM")),
        ],
        [
            Case([PARTS[1][(r + 2) % W] for r in range(W)], list(PARTS[0]), [X[0], *[None] * 3]),
            Case([PARTS[0][2], PARTS[0][3] + 1, *PARTS[0][2:]], list(PARTS[0]), [None] * 4),
        ],
    ),
    "along the last dimension": (
        [
            Case([np.hstack(SQUARE).reshape(16, 8)] * W, [np.vstack(SQUARE)] * W, SQUARE),
            Case(
                [part.reshape(1, 8) for part in np.split(SQUARE_SUM, W, axis=1)],
                np.split(SQUARE_SUM, W),
                SQUARE,
                Facts(function="reduce_scatter", op="SUM"),
            ),
        ],
        [
            Case([np.hstack(SQUARE[::-1]).reshape(16, 8)] * W, [np.vstack(SQUARE)] * W, SQUARE),
            Case(
                [part.reshape(1, 8) for part in np.split(SQUARE_SUM, W, axis=1)],
                np.split(SQUARE_SUM, W),
                SQUARE,
                Facts(function="reduce_scatter", op="MAX"),
            ),
            gathered(np.concatenate(X[::-1])),
        ],
    ),
    "part for another": (
        [
            exchanged(
                *[
                    np.concatenate([PARTS[i][r if i == r else (r + 1) % W] for i in range(W)])
                    for r in range(W)
                ]
            ),
            Case(
                [np.concatenate([X[0][:4], X[1][3:6]]), np.concatenate([X[0][4:], X[1][3:6]])],
                [np.concatenate([X[0][:4], X[1][:3]]), np.concatenate([X[0][4:], X[1][3:6]])],
                [X[0], X[1][:6]],
                Facts(function="all_to_all", splits=[[4, 4], [3, 3]]),
            ),
        ],
        [
            exchanged(
                *[np.concatenate([PARTS[i][r] + (i != r) for i in range(W)]) for r in range(W)]
            ),
            Case([PARTS[0][1]], [PARTS[0][0]], X[:1], Facts(function="all_to_all")),
        ],
    ),
    "parts in wrong order": (
        [
            gathered(np.concatenate(X[::-1])),
            gathered(np.concatenate([X[0], X[0], X[0], X[0]])),
            Case([[], [X[2], X[1], X[0]], []], [[], X[:3], []], X[:3], Facts(function="gather")),
            gathered(np.concatenate([X[3], *np.full((3, 8), 99.0)]), before=99),
        ],
        [
            gathered(np.roll(GATHERED, 8)),
            gathered(np.concatenate([X[3], X[2] + 1, X[1], X[0]])),
            gathered(GATHERED[::-1]),
        ],
    ),
    "tail missing": (
        [uneven(11, 8), uneven(11, 9), uneven(10, 8)],
        [uneven(8, 6), uneven(11, 7), uneven(11, 0)],
    ),
    "untouched": (
        [
            summed(np.zeros(8)),
            summed(np.full(8, np.nan)),
            gathered(np.full(32, 99.0), before=99),
            gathered(np.full(32, 99.0), before=99, received=[True] * W, contiguous=True),
            gathered(put(GATHERED, slice(8, 16), 99), before=99, received=[True] * W),
            summed(put(SUM, slice(2, 4), 0)),
            Case(
                [put(LARGE_SUM, slice(2, 4), x[2:4]) for x in LARGE_INTS],
                [LARGE_SUM] * W,
                LARGE_INTS,
                Facts(before=LARGE_INTS, op="SUM"),
            ),
        ],
        [
            gathered(np.full(32, 5.0), before=99),
            gathered(np.full(32, 99.0)),
            summed(put(np.zeros(8), slice(0, 1), 1)),
            Case([np.full(8, 6)] * W, [LARGE_SUM] * W, LARGE_INTS).but(before=7),
        ],
    ),
    "only one contribution": (
        [
            summed(off_ring(np.eye(W, dtype=int).tolist())),
            Case(
                [np.concatenate([X[0][:4], SUM[4:]]), np.concatenate([SUM[:4], X[1][4:]])] * 2,
                [SUM] * W,
                X,
            ),
        ],
        [
            averaged(off_ring(np.eye(W, dtype=int).tolist())),
            summed(off_ring((2 * np.eye(W, dtype=int)).tolist())),
            summed(RING_SHORT),
        ],
    ),
    "several contributions wrong": (
        [
            summed(
                np.concatenate(
                    [X[0][2 * c : 2 * c + 2] + X[1][2 * c - 2 : 2 * c or None] for c in range(W)]
                )
            ),
            summed(RING_WRONG),
            summed(SUM - X[0] - X[1]),
            Case(
                [sum(PARTS[k][(r + 1) % W if k > 1 else r] for k in range(W)) for r in range(W)],
                SCATTERED,
                X,
                Facts(op="SUM"),
            ),
        ],
        [summed(RING_WRONG + 12), summed(SUM - X[0] - X[1] / 2), summed(SUM - X[0])],
    ),
}


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_every_cause_is_told_where_it_fits_and_not_where_it_nearly_does(cause: Any) -> None:
    fitting, near = PAIRS[cause.name]
    assert fitting
    assert near
    assert "consistent with" in cause.text
    for case in fitting:
        assert case.causes[:1] == [cause.name]
    for case in near:
        assert cause.name not in case.causes


def test_no_cause_is_without_such_cases() -> None:
    assert list(PAIRS) == [cause.name for cause in CAUSES]


# --- What is told ---------------------------------------------------------------------------------


def test_the_wrong_ranks_are_named_with_the_first_wrong_index() -> None:
    found = explain([SUM, put(SUM, slice(3, 5), 0.5), SUM], [SUM] * 3, X[:3])
    assert [(w.rank, w.first, w.wrong, w.size) for w in found.wrong] == [(1, 3, 2, 8)]
    assert str(found).startswith("rank 1: 2 of 8 elements are wrong; the first, at index 3, is 0.5")


def test_indices_are_those_of_the_results_shape() -> None:
    wrong = SUM.reshape(2, 4).copy()
    wrong[1, 2] = 0.5
    found = explain([wrong], [SUM.reshape(2, 4)], [X[0].reshape(2, 4)])
    assert "the first, at index [1, 2], is 0.5" in str(found)
    assert found.wrong[0].first == 6


def test_ranks_are_the_global_ones() -> None:
    found = explain([SUM - X[2]] * W, [SUM] * W, X, Facts(op="SUM", ranks=(0, 3, 5, 6)))
    assert [one.rank for one in found.wrong] == [0, 3, 5, 6]
    assert found.causes == [
        "rank 5's contribution is missing from the sum: consistent with a loop over the ranks "
        "that leaves rank 5 out"
    ]


def test_causes_never_hold_a_value() -> None:
    """The grader shows them to students, from whom its inputs are kept."""
    shown = [cause.text for cause in CAUSES]
    for fitting, _ in PAIRS.values():
        for case in fitting:
            found = explain(case.actual, case.expected, case.given, case.facts)
            shown += found.causes
            assert len(found.causes) <= 2
    values = {str(abs(int(v))) for x in [*X, SUM] for v in x if abs(v) > 100}
    assert not values & {word for text in shown for word in text.replace(",", " ").split()}


def test_it_says_where_and_what_is_wrong_in_a_sum_with_several_mistakes() -> None:
    (text,) = explain([RING_WRONG] * W, [SUM] * W, X).causes
    assert text == (
        "on rank 0, in elements 0 to 1, rank 0's contribution is missing and rank 1's contribution "
        "is counted twice: consistent with steps between the wrong ranks, or with the wrong chunks"
    )


def test_tensors_and_lists_of_tensors_may_be_passed() -> None:
    sent = [torch.from_numpy(narrow(x / 12)).bfloat16() for x in X]
    wanted = torch.stack(sent).float().sum(0).bfloat16()
    assert names(explain([sent[2]] * W, [wanted] * W, sent)) == ["one rank's input"]
    lists = [[t.clone() for t in sent], [], [], []]
    zeros = [[torch.zeros_like(t) for t in sent], [], [], []]
    assert names(explain(zeros, lists, sent)) == ["untouched"]


def test_large_integers_stay_exact() -> None:
    large = torch.tensor([2**60 + 1, 2**60 + 3])
    found = explain([large + 1], [large], [large])
    assert [one.wrong for one in found.wrong] == [2]
    assert str(2**60 + 2) in str(found)
    assert explain([large], [large.clone()], [large]).wrong == []


def test_narrow_floats_are_judged_within_their_rounding() -> None:
    given = [
        torch.randn(64, generator=torch.Generator().manual_seed(r)).bfloat16() for r in range(W)
    ]
    exact = torch.stack([x.double() for x in given]).sum(0)
    lacking = given[0] + given[1] + given[3]
    found = explain([lacking] * W, [exact] * W, given, Facts(op="SUM"))
    assert names(found) == ["one contribution missing"]
    as_numpy = [x.float().numpy() for x in given]
    facts = Facts(op="SUM", dtype="bfloat16")
    found = explain([lacking.float().numpy()] * W, [exact.numpy()] * W, as_numpy, facts)
    assert names(found) == ["one contribution missing"]


def test_numbers_that_are_not_whole_are_evidence_too() -> None:
    """Few of them are alike, so that one that is another's tells something, however small it is."""
    rng = np.random.default_rng(0)
    x = list(rng.standard_normal((W, 12)).astype(np.float32))
    overwritten = np.concatenate([x[(i + 1) % W][3 * i : 3 * i + 3] for i in range(W)])
    found = explain([overwritten] * W, [total(x)] * W, x)
    assert names(found) == ["only one contribution"]
    found = explain([x[0] + x[1]] * 2 + [x[2] + x[3]] * 2, [total(x)] * W, x)
    assert names(found) == ["several contributions wrong"]


def test_what_rounding_hides_is_not_said_to_be_missing_or_too_much() -> None:
    """Large terms that cancel each other leave room for anything small."""
    given = [[1000.0, -500, 700, 300], [-1000.0, 500, -700, -300], [1.0, 2, 3, 4]]
    sent = [torch.tensor(one).bfloat16() for one in given]
    wanted = torch.tensor(given[2]).bfloat16()
    assert explain([wanted + 1] * 3, [wanted] * 3, sent, Facts(op="SUM")).causes == []


def test_a_part_that_rounding_may_have_made_wrong_is_passed_over() -> None:
    a, b, c = [1000.0, -500, 71, 13, 5, 91], [-1000.0, 500, 17, 29, 83, 37], [1.0, 2, 3, 41, 7, 19]
    sent = [torch.tensor(one).bfloat16() for one in (a, b, c)]
    wanted, wrong = sent[0] + sent[1] + sent[2], sent[1] + sent[1] + sent[2]
    wrong[:2] = wanted[:2] + 1
    (text,) = explain([wrong] * 3, [wanted] * 3, sent, Facts(op="SUM")).causes
    assert text.startswith("on rank 0, in elements 2 to 3, rank 0's contribution is missing and ")


# --- Where nothing is claimed ---------------------------------------------------------------------

FACTS = st.sampled_from(
    [
        Facts(),
        *[Facts(op=op, world_size=9) for op in ("SUM", "AVG", "MIN", "MAX", "PRODUCT")],
        Facts(function="broadcast", root=1, before=99),
        Facts(function="all_to_all", before=99),
    ]
)


def some(n: int, size: int, kind: str, seed: int) -> Ranks:
    """Random numbers of a dtype, as the checks draw them."""
    rng = np.random.default_rng(seed)
    if kind == "normal":
        return list(rng.standard_normal((n, size)).astype(np.float32))
    if kind == "bfloat16":
        return [torch.from_numpy(x).bfloat16() for x in rng.integers(-80, 80, (n, size))]
    return list(rng.integers(-(2**20), 2**20, (n, size)).astype(kind))


KINDS = st.sampled_from(["float32", "int64", "float64", "normal", "bfloat16"])


@given(st.integers(1, 5), st.integers(0, 24), KINDS, FACTS, st.integers(0, 10**6))
@settings(deadline=None, max_examples=100)
def test_right_values_have_no_cause(n: int, size: int, kind: str, facts: Facts, seed: int) -> None:
    x, facts = some(n, size, kind, seed), replace(facts, received=[seed % 2 == 0] * n)
    for right in ([x[0]] * n, x, some(n, size, kind, seed + 1)):
        assert explain(right, right, x, facts) == Explanation([], [])


@given(st.integers(2, 5), st.integers(8, 24), KINDS, FACTS, st.integers(0, 10**6))
@settings(deadline=None, max_examples=150)
def test_random_wrong_values_have_no_cause(
    n: int, size: int, kind: str, facts: Facts, seed: int
) -> None:
    x, facts = some(n, size, kind, seed), replace(facts, received=[seed % 2 == 0] * n)
    wide = np.array([np.asarray(torch.as_tensor(one).double()) for one in x])
    functions: dict[str | None, Any] = {
        "AVG": np.mean,
        "MIN": np.min,
        "MAX": np.max,
        "PRODUCT": np.prod,
    }
    expected = functions.get(facts.op, np.sum)(wide, axis=0)
    if kind == "int64" and facts.op not in ("AVG", "PRODUCT"):
        expected = expected.astype(np.int64)
    garbage = some(n, size, kind, seed + 1)
    for wrong in (garbage, [garbage[0]] * n):
        assert explain(wrong, [expected] * n, x, facts).causes == []


def test_a_single_wrong_element_could_be_anything() -> None:
    assert explain([X[0][:1], *[SUM[:1]] * 3], [SUM[:1]] * W, [x[:1] for x in X]).causes == []
    assert names(explain([x[:1] for x in X[:2]], [total(X[:2])[:1]] * 2, [x[:1] for x in X[:2]]))


def test_results_of_another_shape_are_named_but_not_explained() -> None:
    found = explain([X[0][:4], SUM], [SUM] * 2, X[:2])
    assert str(found) == "rank 0: the shape is (4,) and should be (8,)"
    assert found.causes == []


def test_results_too_large_to_look_at_closely_are_not_explained() -> None:
    large = [np.zeros(2**23 + 1, np.float32)] * 2
    assert explain(large, [x + 1 for x in large], large).causes == []
    many = [np.zeros(2**13 + 1, np.float32)] * 64
    assert explain(many, [x + 1 for x in many], many).causes == []


def test_zeros_are_nobody_s_data() -> None:
    """As when each rank puts in its number: that they lie there untouched is likelier."""
    given = [np.full(4, rank, np.float32) for rank in range(W)]
    zeros = np.zeros(4, np.float32)
    assert names(explain([zeros] * W, [total(given)] * W, given)) == ["untouched"]
    facts = Facts(function="broadcast", root=2)
    assert names(explain([zeros] * W, [given[2]] * W, given, facts)) == ["untouched"]


def test_a_few_numbers_may_be_the_largest_by_chance() -> None:
    """Each rank's own half is right, and the other its own input, as after half a ring."""
    x = [np.array([5, 1, 9, 8], np.float32), np.array([2, 3, 4, 6], np.float32)]
    actual = [np.array([7, 4, 9, 8], np.float32), np.array([5, 3, 13, 14], np.float32)]
    found = explain(actual, [total(x)] * 2, x, Facts(op="SUM"))
    assert names(found) == ["only one contribution"]


def test_integers_that_floats_would_hold_were_not_rounded_by_them() -> None:
    expected = np.arange(2**21, 2**21 + 8)
    assert explain([expected + 1] * 2, [expected] * 2).causes == []
    large = np.arange(2**60 + 1, 2**60 + 17, 2)
    assert explain([large + 2] * 2, [large] * 2).causes == []


def test_zeros_are_no_mean_of_small_integers() -> None:
    expected = np.array([1, 0, 2, -1, 3, 1])
    assert names(explain([np.zeros(6, np.int64)] * W, [expected] * W)) == ["untouched"]
    assert explain([np.full(6, -1)] * W, [np.array([-1, -4, -2, -1, -3, -2])] * W).causes == []
    assert names(explain([np.arange(9)] * W, [np.arange(9) * W + 1] * W)) == ["mean for sum"]


def test_nan_is_right_where_it_is_expected() -> None:
    nan = np.array([1, np.nan], np.float32)
    assert explain([nan, nan], [nan, nan.copy()]) == Explanation([], [])
    assert len(explain([nan, nan], [np.array([1, 2], np.float32)] * 2).wrong) == 2


def test_a_result_that_is_missing_is_not_right() -> None:
    """As of a function that forgot to return it."""
    found = explain([None, SUM, None], [SUM, SUM, None])
    assert str(found) == "rank 0: there is no result; it should have the shape (8,)"


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (torch.tensor([1 + 2j]), "complex64; give torch.view_as_real"),
        (np.array(["a"]), "<U1"),
        ({"a": 1}, "object"),
    ],
)
def test_what_is_no_real_number_is_refused(given: Any, what: str) -> None:
    with pytest.raises(TypeError, match=f"compares real numbers, not {what}"):
        explain([given], [given])


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn),
        torch.tensor([1.0, 2.0]).to_sparse(),
        torch.tensor([1 - 1j, 2 - 2j]).conj().imag,
        torch.tensor([1.0, 2.0], requires_grad=True),
        torch.tensor([1, 2], dtype=torch.uint64),
    ],
    ids=["float8", "sparse", "negative bit", "gradient", "uint64"],
)
def test_tensors_of_every_kind_may_be_passed(tensor: torch.Tensor) -> None:
    assert explain([tensor], [torch.tensor([1.0, 2.0])]) == Explanation([], [])
    assert len(explain([tensor], [torch.tensor([1.0, 3.0])]).wrong) == 1


def test_an_op_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"facts\.op is 'sum'; it must be one of SUM, AVG"):
        explain([SUM] * W, [SUM] * W, X, Facts(op="sum"))


def test_one_rank_alone_may_have_left_its_output_untouched() -> None:
    assert names(explain([np.zeros(4)], [np.ones(4)], [np.ones(4)])) == ["untouched"]
    assert explain([X[1]], [X[0]], [X[0]]).causes == []


def test_it_does_without_inputs() -> None:
    assert names(explain([SUM] * W, [MEAN] * W)) == ["sum for mean"]


def test_nothing_wrong_is_said_to_be_right() -> None:
    assert str(explain([SUM], [SUM.copy()])) == "all values are right"


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"inputs_by_rank": X[:3]}, "inputs_by_rank has 3 entries, actual has 4"),
        ({"expected": [SUM] * 2}, r"expected has 2 entries, .* \[x\] \* n for n ranks"),
        ({"facts": Facts(before=X[:2])}, r"facts.before has 2 entries, actual has 4"),
        ({"facts": Facts(previous=[X, X[:1]])}, r"facts.previous\[1\] has 1 entries"),
    ],
)
def test_each_rank_needs_an_entry(more: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        explain(**({"actual": [SUM] * W, "expected": [SUM] * W} | more))


def test_it_explains_a_run() -> None:
    def forgets_to_divide() -> Any:
        import torch.distributed as dist

        x = torch.arange(4.0) + dist.get_rank()
        dist.all_reduce(x)
        return x

    run = multirank.run(forgets_to_divide, 2)
    sent = [torch.arange(4.0) + rank for rank in range(2)]
    found = explain(run.results, [torch.stack(sent).mean(0)] * 2, sent, Facts(op="AVG"))
    assert names(found) == ["sum for mean"]


def test_one_array_for_all_ranks_is_refused_with_what_to_give() -> None:
    with pytest.raises(TypeError, match=r"expected is one array; give a list .*\[x\] \* n"):
        explain([SUM] * W, torch.ones(W))  # type: ignore[arg-type]
