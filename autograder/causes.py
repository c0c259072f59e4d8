"""Likely causes of wrong values: what a good TA would guess from the numbers.

Each cause is a line of a table: a sentence, and a test that says whether the numbers of every wrong
rank bear it out. Guesses only, hence "consistent with"; where nothing fits, nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

# Rounding in the narrowest dtype (bfloat16, 2^-8) stays below this; no mistake in the table does.
_ROUNDING = 2.0**-7
# More elements than this in all outputs together are not worth the memory of looking closer.
_MOST = 2**23
# Fewer wrong elements than this could look like anything by chance.
_FEWEST = 2


@dataclass(frozen=True, eq=False)
class Evidence:
    """What each rank of a group put in, got out, and should have got, flattened, in float64.

    `wrong[r]` marks the elements of rank r that are off by more than rounding. Ranks whose output
    is not compared (the non-roots of a reduce) hold None in `actual` and `expected`.
    """

    actual: list[Values | None]
    expected: list[Values | None]
    inputs: list[Values | None]
    fill: float | None

    @property
    def world_size(self) -> int:
        return len(self.actual)

    def pairs(self) -> list[tuple[int, Values, Values]]:
        """(rank, actual, expected) of the ranks that are compared."""
        return [
            (rank, a, e)
            for rank, (a, e) in enumerate(zip(self.actual, self.expected, strict=True))
            if a is not None and e is not None
        ]

    def wrong_pairs(self) -> list[tuple[int, Values, Values]]:
        """Those of the ranks that have a wrong element."""
        return [(rank, a, e) for rank, a, e in self.pairs() if np.any(_wrong(a, e))]

    def contribution(self, rank: int, to: int, size: int) -> Values | None:
        """What `rank` put in that `to` has `size` elements of: all of it, or chunk number `to`."""
        given = self.inputs[rank]
        if given is None or given.size == size:
            return given
        if given.size == size * self.world_size:
            return given[to * size : (to + 1) * size]
        return None


Found = dict[str, object]


@dataclass(frozen=True)
class Cause:
    """A guess. `test` returns the words to put into `text`, or None where the numbers deny it."""

    name: str
    text: str
    test: Callable[[Evidence], Found | None]


def likely_causes(
    actual_by_rank: Sequence[npt.NDArray[Any] | None],
    expected_by_rank: Sequence[npt.NDArray[Any] | None],
    inputs_by_rank: Sequence[npt.NDArray[Any] | None],
    fill: float | None = None,
) -> list[str]:
    """At most two guesses, the most telling first; none where the values are right or just odd.

    The three sequences hold an array for each rank of the group, in group order, or None for a rank
    whose output is not compared or which gave no input. fill: what the outputs were filled with
    beforehand, where that was neither zero nor NaN.

    Raises ValueError when the sequences have different lengths.
    """
    if not len(actual_by_rank) == len(expected_by_rank) == len(inputs_by_rank):
        raise ValueError("actual, expected and inputs must have an entry for each rank")
    for actual, expected in zip(actual_by_rank, expected_by_rank, strict=True):
        if actual is not None and expected is not None and actual.shape != expected.shape:
            return []
    if sum(actual.size for actual in actual_by_rank if actual is not None) > _MOST:
        return []
    evidence = Evidence(_flat(actual_by_rank), _flat(expected_by_rank), _flat(inputs_by_rank), fill)
    wrong = sum(np.count_nonzero(_wrong(a, e)) for _, a, e in evidence.pairs())
    if wrong < _FEWEST or evidence.world_size < 2:
        return []
    found = ((cause, cause.test(evidence)) for cause in CAUSES)
    return [cause.text.format(**words) for cause, words in found if words is not None][:2]


def _flat(arrays: Sequence[npt.NDArray[Any] | None]) -> list[Values | None]:
    return [None if array is None else array.astype(np.float64).ravel() for array in arrays]


def _wrong(actual: Values, expected: Values) -> npt.NDArray[np.bool_]:
    return ~_close(actual, expected, np.abs(expected))


def _close(actual: Values, wanted: Values, scale: Values) -> npt.NDArray[np.bool_]:
    """Equal but for rounding at numbers of the size of `scale`. NaN is never close."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.abs(actual - wanted) <= _ROUNDING * scale)


def _same(actual: Values, wanted: Values | None) -> bool:
    """A copy, bit for bit but for the sign of zero."""
    return wanted is not None and bool(np.array_equal(actual, wanted))


def _nothing_communicated(evidence: Evidence) -> Found | None:
    for rank, actual, _ in evidence.wrong_pairs():
        if not _same(actual, evidence.contribution(rank, rank, actual.size)):
            return None
    return {}


def _one_ranks_input(evidence: Evidence) -> Found | None:
    wrong = evidence.wrong_pairs()
    holders = [
        k
        for k in range(evidence.world_size)
        if all(
            _same(actual, evidence.contribution(k, rank, actual.size)) for rank, actual, _ in wrong
        )
    ]
    if len(holders) != 1 or [rank for rank, _, _ in wrong] == holders:
        return None  # of no rank, of several alike, or of its own, which is the cause above
    return {"k": holders[0]}


def _untouched(evidence: Evidence) -> Found | None:
    patterns = {"zero": 0.0, "the value it held before": evidence.fill, "NaN": np.nan}
    for name, pattern in patterns.items():
        if pattern is not None and all(
            np.array_equal(left, np.full_like(left, pattern), equal_nan=True)
            for left in (actual[_wrong(actual, e)] for _, actual, e in evidence.wrong_pairs())
        ):
            return {"pattern": name}
    return None


def _times(evidence: Evidence, factor: float) -> bool:
    return all(
        bool(np.all(_close(actual, expected * factor, np.abs(expected * factor))))
        for _, actual, expected in evidence.wrong_pairs()
    )


def _sum_for_mean(evidence: Evidence) -> Found | None:
    world_size = evidence.world_size
    if not _times(evidence, world_size) or _asked_for_sum_times(evidence, 1.0):
        return None
    return {"W": world_size}


def _mean_for_sum(evidence: Evidence) -> Found | None:
    world_size = evidence.world_size
    if not _times(evidence, 1 / world_size) or _asked_for_sum_times(evidence, 1 / world_size):
        return None
    return {"W": world_size}


def _terms(evidence: Evidence, rank: int, size: int) -> Values | None:
    """[W, size]: what each rank put in for the output of `rank`, where that is known of all."""
    terms = [evidence.contribution(k, rank, size) for k in range(evidence.world_size)]
    known = [term for term in terms if term is not None]
    return np.array(known, np.float64) if len(known) == len(terms) else None


def _asked_for_sum_times(evidence: Evidence, factor: float) -> bool:
    """Whether the expected values are known to be the sum of the inputs, times `factor`."""
    for rank, _, expected in evidence.pairs():
        terms = _terms(evidence, rank, expected.size)
        if terms is None:
            return False
        if not np.all(_close(factor * terms.sum(axis=0), expected, np.abs(terms).sum(axis=0))):
            return False
    return True


def _missing(evidence: Evidence) -> list[tuple[int, npt.NDArray[np.bool_]]] | None:
    """For each wrong rank, which rank's contribution [k] is missing from each wrong element [i].

    None unless the expected values are the sums of the inputs, on every rank that is compared.
    """
    if not _asked_for_sum_times(evidence, 1.0):
        return None
    missing = []
    for rank, actual, expected in evidence.wrong_pairs():
        terms = _terms(evidence, rank, expected.size)
        assert terms is not None
        wrong = _wrong(actual, expected)
        terms = terms[:, wrong]
        fits = _close(actual[wrong], expected[wrong] - terms, np.abs(terms).sum(axis=0))
        missing.append((rank, fits & (terms != 0)))  # nobody misses a zero
    return missing


def _own_missing(evidence: Evidence) -> Found | None:
    missing = _missing(evidence)
    if missing is None or len(missing) < 2:
        return None
    return {} if all(np.all(fits[rank]) for rank, fits in missing) else None


def _one_missing(evidence: Evidence) -> Found | None:
    missing = _missing(evidence)
    if missing is None:
        return None
    lacking = [k for k in range(evidence.world_size) if all(np.all(fits[k]) for _, fits in missing)]
    return {"k": lacking[0]} if len(lacking) == 1 else None


def _different_ones_missing(evidence: Evidence) -> Found | None:
    missing = _missing(evidence)
    if missing is None or evidence.world_size == 2:  # of two, one missing is the other's input
        return None
    if _one_missing(evidence) is not None or _own_missing(evidence) is not None:
        return None
    return {} if all(np.all(np.any(fits, axis=0)) for _, fits in missing) else None


def _chunk_shifted(evidence: Evidence) -> Found | None:
    wrong, world_size = evidence.wrong_pairs(), evidence.world_size
    for step in (1, -1):
        within = all(
            actual.size % world_size == 0
            and _same_but_rounding(actual, np.roll(expected, step * (actual.size // world_size)))
            for _, actual, expected in wrong
        )
        neighbours = [evidence.expected[(rank + step) % world_size] for rank, _, _ in wrong]
        across = len(wrong) > 1 and all(
            neighbour is not None
            and neighbour.shape == actual.shape
            and _same_but_rounding(actual, neighbour)
            for (_, actual, _), neighbour in zip(wrong, neighbours, strict=True)
        )
        if within or across:
            return {}
    return None


def _same_but_rounding(actual: Values, wanted: Values) -> bool:
    return not np.any(_wrong(actual, wanted))


def _tail_missing(evidence: Evidence) -> Found | None:
    starts, sizes = set(), set()
    for _, actual, expected in evidence.wrong_pairs():
        wrong = _wrong(actual, expected)
        start = int(np.argmax(wrong))
        if not np.all(wrong[start:]):
            return None
        starts.add(start)
        sizes.add(actual.size)
    if len(starts) != 1 or len(sizes) != 1:
        return None
    (start,), (size,) = starts, sizes
    world_size = evidence.world_size
    short, long = size // world_size, -(-size // world_size)
    if short == long or start not in (short * world_size, long * (world_size - 1)) or start == 0:
        return None
    return {"tail": size - start, "size": size, "W": world_size}


CAUSES: tuple[Cause, ...] = (
    Cause(
        "nothing communicated",
        "each wrong rank holds just what it put in: consistent with nothing having been "
        "communicated",
        _nothing_communicated,
    ),
    Cause(
        "one rank's input",
        "the wrong ranks hold what rank {k} put in: consistent with a copy of rank {k}'s data",
        _one_ranks_input,
    ),
    Cause(
        "untouched",
        "the wrong elements are all {pattern}: consistent with an output that was never written "
        "there",
        _untouched,
    ),
    Cause(
        "sum for mean",
        "the values are {W} times too large, {W} being the number of ranks: consistent with a sum "
        "where a mean was asked for",
        _sum_for_mean,
    ),
    Cause(
        "mean for sum",
        "the values are {W} times too small, {W} being the number of ranks: consistent with a mean "
        "where a sum was asked for",
        _mean_for_sum,
    ),
    Cause(
        "own contribution missing",
        "each wrong rank's own contribution is missing from its sum: consistent with adding up "
        "only what was received",
        _own_missing,
    ),
    Cause(
        "one contribution missing",
        "rank {k}'s contribution is missing from the sum: consistent with a loop over the ranks "
        "that leaves rank {k} out",
        _one_missing,
    ),
    Cause(
        "different contributions missing",
        "every wrong element lacks one rank's contribution, not everywhere the same rank's: "
        "consistent with one step too few",
        _different_ones_missing,
    ),
    Cause(
        "chunk shifted",
        "the right values are there, shifted by one rank's chunk: consistent with an index that is "
        "off by one rank",
        _chunk_shifted,
    ),
    Cause(
        "tail missing",
        "only the last {tail} of {size} elements are wrong, and {size} does not divide by {W} "
        "ranks: consistent with a remainder that was dropped",
        _tail_missing,
    ),
)
