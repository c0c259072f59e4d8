"""What a call was given, gave and should have given, rank by rank, as plain numbers.

Integers stay integers (int64, whose arithmetic wraps as torch's does), everything else becomes
float64, so that nothing is rounded on the way. The tests of the causes ask their questions here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Values = npt.NDArray[Any]  # of one dimension, int64 or float64
Mask = npt.NDArray[np.bool_]
ByRank = Sequence[Any]  # for each rank an array, a tensor, a list of them, or None

# From 1 to the next number, by dtype.
_SPACING = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}
# A reading that fits random numbers more often than this is no evidence.
CHANCE = 2e-3
_COUNTED = 64  # elements of a rank: more evidence is not needed
REDUCTIONS: dict[str, Callable[..., Values]] = {
    "SUM": np.sum,
    "AVG": np.mean,
    "PRODUCT": np.prod,
    "MIN": np.min,
    "MAX": np.max,
}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What else is known about a call. A cause that needs a fact which is not given stays silent.

    Attributes:
        function: its name, such as "all_reduce".
        op: "SUM", "PRODUCT", "MIN", "MAX" or "AVG".
        ranks: the global ranks of the group, in its order; None: 0, 1, ...
        world_size: the number of all ranks, where the group may be smaller.
        root: the global rank that `src` or `dst` names.
        dtype: the name that torch gives it, where numpy arrays stand for another ("bfloat16").
        before: what the outputs held before the call: by rank, or one number for all.
        bystanders: by rank, what tensors that get no result hold afterwards (reduce has them).
        previous: for each earlier call in the same processes, what it gave, by rank.
        splits: for all_to_all, splits[i][j] rows go from the i-th rank of the group to the j-th.
        received: by rank, whether it received any message.
        contiguous: whether the tensors are; work on others is done in copies.
    """

    function: str | None = None
    op: str | None = None
    ranks: Sequence[int] | None = None
    world_size: int | None = None
    root: int | None = None
    dtype: str | None = None
    before: ByRank | float | None = None
    bystanders: ByRank | None = None
    previous: Sequence[ByRank] = ()
    splits: Sequence[Sequence[int]] | None = None
    received: Sequence[bool] | None = None
    contiguous: bool | None = None


@dataclass(frozen=True, eq=False)
class Wrong:
    """The result of one rank that has wrong elements.

    place: the rank's, in the group.
    at: [size] which elements are wrong.
    """

    place: int
    actual: Values
    expected: Values
    at: Mask


class Evidence:
    """The numbers of one call. Ranks are numbered by their place in the group, from 0.

    `rounding` is the relative error that a few roundings make. Ranks whose result is not compared
    (the non-roots of a reduce) have None in `actual` and `expected`, ranks that put in nothing in
    `inputs`.
    """

    def __init__(self, actual: ByRank, expected: ByRank, inputs: ByRank, facts: Facts) -> None:
        self.facts = facts
        self.actual, self.expected, self.inputs = plain(actual), plain(expected), plain(inputs)
        self.input_shapes = [shape_of(given) for given in inputs]
        self.kept: dict[str, Any] = {}  # what several causes look at, worked out once
        self._reduces: dict[str, bool] = {}
        self.rounding = _rounding([*actual, *expected, *inputs], facts.dtype)

    @property
    def n(self) -> int:
        """The number of ranks."""
        return len(self.actual)

    def name(self, place: int) -> int:
        """The global rank at a place in the group."""
        return place if self.facts.ranks is None else self.facts.ranks[place]

    @property
    def root(self) -> int | None:
        """The root's place in the group."""
        ranks = range(self.n) if self.facts.ranks is None else self.facts.ranks
        return ranks.index(self.facts.root) if self.facts.root in ranks else None

    @cached_property
    def pairs(self) -> list[tuple[int, Values, Values]]:
        """(place, actual, expected) of the ranks that are compared."""
        both = zip(self.actual, self.expected, strict=True)
        return [
            (place, a, e) for place, (a, e) in enumerate(both) if a is not None and e is not None
        ]

    @cached_property
    def wrong(self) -> list[Wrong]:
        """The ranks that have wrong elements. NaN is right where it is expected."""
        found = [
            Wrong(place, a, e, ~(self.close(a, e, np.abs(e)) | (np.isnan(a) & np.isnan(e))))
            for place, a, e in self.pairs
        ]
        return [one for one in found if one.at.any()]

    def wrong_elements(self) -> int:
        """On all ranks together."""
        return sum(int(np.count_nonzero(one.at)) for one in self.wrong)

    @cached_property
    def before(self) -> list[Values | None]:
        """What each rank's output held before the call, where that is known."""
        given = self.facts.before
        if given is None:
            return [None] * self.n
        if isinstance(given, int | float):
            return [None if a is None else np.full_like(a, given) for a in self.actual]
        return plain(given)

    @cached_property
    def bystanders(self) -> list[Values | None]:
        """What each rank's tensor without a result holds afterwards, where that is known."""
        given = self.facts.bystanders
        return [None] * self.n if given is None else plain(given)

    @cached_property
    def previous(self) -> list[list[Values | None]]:
        """What each rank got from earlier calls."""
        return [plain(results) for results in self.facts.previous]

    # --- Comparing --------------------------------------------------------------------------------

    def close(self, actual: Values, wanted: Values, scale: Values) -> Mask:
        """Which elements are equal, but for rounding at numbers of the size of `scale` if floats.

        NaN is never close.
        """
        if actual.dtype.kind == wanted.dtype.kind == "i":
            return np.asarray(actual == wanted)
        off = np.abs(actual - wanted)
        near = np.isfinite(off) & (off <= self.rounding * scale)
        return np.asarray(near | (actual == wanted))  # infinities are equal, never near

    def same(self, actual: Values, wanted: Values | None) -> bool:
        """Whether all elements are equal, but for rounding."""
        return (
            wanted is not None
            and actual.shape == wanted.shape
            and bool(self.close(actual, wanted, np.abs(wanted)).all())
        )

    def is_chance(self, log_choices: float, elements: int) -> bool:
        """Whether random numbers would often fit one of so many readings in so many elements."""
        return log_choices + elements * math.log(self._grain) > math.log(CHANCE)

    @cached_property
    def _grain(self) -> float:
        """How often two numbers of the call would be equal by chance, at most.

        Whole numbers could be any up to the largest; of others there are at least those seen.
        """
        seen = np.concatenate([e.astype(np.float64) for _, _, e in self.pairs])
        if np.array_equal(seen, np.round(seen)):
            alike = 1 / (1 + float(np.abs(seen).max(initial=0)))
        else:
            given = [one.astype(np.float64) for one in self.inputs if one is not None]
            alike = 1 / len(np.unique(np.concatenate([seen, *given])))
        return max(2 * self.rounding, alike)

    def independent_elements(self) -> int:
        """The wrong elements, but those that are made of the same inputs on several ranks once."""
        made = {
            (one.place if self.is_part(one.place, one.at.size) else 0, int(index))
            for one in self.wrong
            for index in np.flatnonzero(one.at)[:_COUNTED]
        }
        return len(made)

    def is_part(self, place: int, size: int) -> bool:
        """Whether a result of this size is one part of what the rank put in."""
        given = self.inputs[place]
        return given is not None and given.size > size

    # --- What was put in --------------------------------------------------------------------------

    def contribution(self, source: int, to: int, size: int) -> Values | None:
        """What `source` put in for the `size` elements of `to`: all of it, or part number `to`."""
        given = self.inputs[source]
        if given is None or given.size == size:
            return given
        if given.size == size * self.n:
            return given[to * size : (to + 1) * size]
        return None

    def terms(self, to: int, size: int) -> Values | None:
        """[n, size]: what each rank put in for the result of `to`, where it is known of all."""
        terms = [self.contribution(source, to, size) for source in range(self.n)]
        known = [term for term in terms if term is not None]
        return np.array(known) if len(known) == self.n else None

    def reduces(self, op: str) -> bool:
        """Whether `op` of the inputs was asked for, and the expected values are just that."""
        if op not in self._reduces:
            self._reduces[op] = self.facts.op in (None, op) and self._expects(op)
        return self._reduces[op]

    def _expects(self, op: str) -> bool:
        for place, _, expected in self.pairs:
            terms = self.terms(place, expected.size)
            if terms is None:
                return False
            scale = np.abs(terms).sum(axis=0)
            if not self.close(reduction(op, terms), expected, scale).all():
                return False
        return True


def reduction(op: str, terms: Values) -> Values:
    """[n, size] terms, reduced over the ranks."""
    return np.asarray(REDUCTIONS[op](terms, axis=0))


def plain(arrays: ByRank) -> list[Values | None]:
    """For each rank its numbers in one dimension; lists of tensors one after another."""
    return [None if array is None else _flat(array) for array in arrays]


def pieces(array: Any) -> list[npt.NDArray[Any]]:
    """An array, a tensor, or a list of them, as numpy arrays of their own shapes.

    Raises:
        TypeError: it does not hold real numbers.
    """
    if isinstance(array, list | tuple):
        return [piece for one in array for piece in pieces(one)]
    if isinstance(array, torch.Tensor):
        dense = array.detach().to_dense().cpu().resolve_neg()
        narrow = dense.is_floating_point() and dense.dtype is not torch.float64
        array = (dense.float() if narrow else dense).numpy()
    numbers = np.asarray(array)
    if numbers.dtype.kind not in "biuf":
        hint = "; give torch.view_as_real() of it" if numbers.dtype.kind == "c" else ""
        raise TypeError(f"explain() compares real numbers, not {numbers.dtype}{hint}")
    return [numbers]


def shape_of(array: Any) -> tuple[int, ...] | None:
    """Its shape; None where there are several arrays, or none."""
    parts = [] if array is None else pieces(array)
    return parts[0].shape if len(parts) == 1 else None


def _flat(array: Any) -> Values:
    parts = pieces(array)
    flat = np.concatenate([part.ravel() for part in parts]) if parts else np.empty(0)
    return flat.astype(np.int64 if flat.dtype.kind in "biu" else np.float64)


def _rounding(arrays: Iterable[Any], dtype: str | None) -> float:
    """The relative error that a few roundings make, in the narrowest floating dtype."""
    spacings = [_SPACING.get(name, 0.0) for name in [dtype, *map(_dtype, arrays)] if name]
    spacing = max(spacings, default=0.0)
    return spacing if spacing == _SPACING["bfloat16"] else 4 * spacing


def _dtype(array: Any) -> str:
    if isinstance(array, list | tuple):
        return _dtype(array[0]) if array else ""
    if isinstance(array, torch.Tensor):
        return str(array.dtype).removeprefix("torch.")
    return "" if array is None else str(np.asarray(array).dtype)
