"""`multirank.explain`: which ranks hold wrong numbers, where, and what that is consistent with.

run = multirank.run(my_average, 4)
print(multirank.explain(run.results, [mean] * 4, inputs, multirank.Facts(op="AVG")))

rank 0: all 8 elements are wrong; the first, at index 0, is 4.0 and should be 1.0
...
the wrong values are 4 times too large, ...: consistent with a sum where a mean was asked for
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .causes import CAUSES
from .evidence import REDUCTIONS, ByRank, Evidence, Facts, pieces

# More than this, elements of all results times ranks, is not worth the time of looking closer.
_MOST = 2**25
# Fewer wrong elements than this could look like anything by chance.
_FEWEST = 2
_NAMED = 2  # causes


@dataclass(frozen=True)
class WrongRank:
    """A rank whose result is not what it should be.

    Attributes:
        rank: the global rank.
        first: the first wrong element, in the flattened result; None where the shape is wrong.
        wrong: how many elements are wrong.
        size: how many there are.
        told: the same in words, with the values.
    """

    rank: int
    first: int | None
    wrong: int
    size: int
    told: str = field(repr=False, compare=False)


@dataclass(frozen=True)
class Explanation:
    """What is wrong with the numbers of a call. `str()` tells all, values included.

    Attributes:
        wrong: the ranks that hold wrong numbers; empty where all is right.
        causes: at most two sentences, the most telling first, without any value; empty where the
            numbers bear no known mistake out. They are guesses: "consistent with ...".
    """

    wrong: list[WrongRank]
    causes: list[str]

    def __str__(self) -> str:
        if not self.wrong:
            return "all values are right"
        return "\n".join([*(one.told for one in self.wrong), *self.causes])


def explain(
    actual: ByRank,
    expected: ByRank,
    inputs_by_rank: ByRank | None = None,
    facts: Facts | None = None,
) -> Explanation:
    """Says which ranks hold wrong numbers, and what mistake the numbers bear out, if any.

    Args:
        actual: for each rank of the group, in group order, its result: an array, a tensor (any
            shape and dtype but complex), or a list of them (gather).
        expected: what each should be; None where it is not compared.
        inputs_by_rank: what each put in (None: unknown, or nothing): the same size as the result,
            or for a scatter or reduce_scatter that of all parts together.
        facts: what else is known about the call; the more is given, the more causes can be told.

    Raises:
        ValueError: the sequences, or what `facts` gives by rank, have different lengths; `facts`
            has an op that is none.
        TypeError: there is something else than real numbers, or one array for all ranks.
    """
    known = facts or Facts()
    inputs = [None] * len(actual) if inputs_by_rank is None else inputs_by_rank
    _require_one_for_each_rank(actual, expected, inputs, known)
    if known.op is not None and known.op not in REDUCTIONS:
        raise ValueError(f"facts.op is {known.op!r}; it must be one of {', '.join(REDUCTIONS)}")
    compared = [
        (place, pieces([] if a is None else a), pieces(e))
        for place, (a, e) in enumerate(zip(actual, expected, strict=True))
        if e is not None
    ]
    ranks = range(len(actual)) if known.ranks is None else known.ranks
    unlike = [
        _unlike(ranks[place], got, wanted)
        for place, got, wanted in compared
        if [one.shape for one in got] != [one.shape for one in wanted]
    ]
    if unlike:
        return Explanation(unlike, [])
    with np.errstate(all="ignore"):  # a result may hold anything: NaN, infinity, what overflows
        evidence = Evidence(actual, expected, inputs, known)
        causes = _causes(evidence)
    shapes = {place: [one.shape for one in wanted] for place, _, wanted in compared}
    wrong = [
        _wrong(ranks[one.place], one.at, one.actual, one.expected, shapes[one.place])
        for one in evidence.wrong
    ]
    return Explanation(wrong, causes)


def _require_one_for_each_rank(
    actual: ByRank, expected: ByRank, inputs: ByRank, facts: Facts
) -> None:
    before = facts.before if not isinstance(facts.before, int | float) else None
    for name, entries in (("actual", actual), ("expected", expected), ("inputs_by_rank", inputs)):
        if isinstance(entries, torch.Tensor | np.ndarray):
            raise TypeError(
                f"{name} is one array; give a list with an entry for each rank of the group "
                "([x] * n for n ranks that all have x)"
            )
    by_rank = {
        "expected": expected,
        "inputs_by_rank": inputs,
        "facts.ranks": facts.ranks,
        "facts.before": before,
        "facts.bystanders": facts.bystanders,
        "facts.received": facts.received,
        "facts.splits": facts.splits,
        **{f"facts.previous[{i}]": one for i, one in enumerate(facts.previous)},
    }
    for name, given in by_rank.items():
        if given is not None and len(given) != len(actual):
            raise ValueError(
                f"{name} has {len(given)} entries, actual has {len(actual)}: each needs an entry "
                "for each rank of the group (None where there is nothing; [x] * n for n ranks "
                "that all have x)"
            )


def _causes(evidence: Evidence) -> list[str]:
    if sum(a.size for _, a, _ in evidence.pairs) * evidence.n > _MOST:
        return []
    if evidence.wrong_elements() < _FEWEST:
        return []
    found: list[str] = []
    for cause in CAUSES:
        if len(found) == _NAMED:
            break
        if cause.alone and found:
            continue
        if (words := cause.test(evidence)) is not None:
            found.append(cause.text.format(**words))
    return found


def _unlike(rank: int, got: list[npt.NDArray[Any]], wanted: list[npt.NDArray[Any]]) -> WrongRank:
    shapes = [", ".join(str(one.shape) for one in arrays) for arrays in (got, wanted)]
    size = sum(one.size for one in got)
    told = f"rank {rank}: " + (
        f"the shape is {shapes[0]} and should be {shapes[1]}"
        if got
        else f"there is no result; it should have the shape {shapes[1]}"
    )
    return WrongRank(rank, None, size, size, told)


def _wrong(
    rank: int,
    at: npt.NDArray[np.bool_],
    actual: npt.NDArray[Any],
    expected: npt.NDArray[Any],
    shapes: list[tuple[int, ...]],
) -> WrongRank:
    first, wrong, size = int(np.argmax(at)), int(np.count_nonzero(at)), at.size
    place = str(first)
    if len(shapes) == 1 and len(shapes[0]) > 1:
        place = str([int(i) for i in np.unravel_index(first, shapes[0])])
    some = f"all {size}" if wrong == size else f"{wrong} of {size}"
    told = (
        f"rank {rank}: {some} elements are wrong; the first, at index {place}, "
        f"is {actual[first].item()} and should be {expected[first].item()}"
    )
    return WrongRank(rank, first, wrong, size, told)
