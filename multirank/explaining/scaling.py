"""Results that are off by a factor, by the wrong operation, or by rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from .copies import Words
from .evidence import CHANCE, Evidence, Mask, Values, Wrong, reduction

_FEWEST_ROUNDED = 4  # elements, to tell a rounding from a small mistake
_LOOKED_AT = 4096  # elements of each rank, where many sums are tried
_SMALL = 2**20  # of integers: an error of one part in so many is a rounding
_NARROWER = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23}  # name: its spacing


def _asked_for(evidence: Evidence, op: str) -> bool:
    """By the facts, or else by the numbers."""
    return evidence.reduces(op) if evidence.facts.op is None else evidence.facts.op == op


def _are_times(evidence: Evidence, factor: float) -> bool:
    """Whether all wrong elements are what they should be, times `factor`."""
    return all(_is_times(evidence, one, factor) for one in evidence.wrong)


def _is_times(evidence: Evidence, one: Wrong, factor: float) -> bool:
    actual, expected = one.actual[one.at], one.expected[one.at]
    if actual.dtype.kind == expected.dtype.kind == "i":
        if factor >= 1:
            return bool(np.all(actual == expected * round(factor)))
        divisor = round(1 / factor)
        if np.abs(actual).max() < 2:  # so small a quotient may be anything
            return False
        down = np.all(actual == expected // divisor)
        to_zero = np.all(actual == np.sign(expected) * (np.abs(expected) // divisor))
        return bool(down or to_zero)
    wanted = expected * factor
    return bool(evidence.close(actual, wanted, np.abs(wanted)).all())


def sum_for_mean(evidence: Evidence) -> Words | None:
    if evidence.facts.op not in (None, "AVG") or evidence.reduces("SUM"):
        return None
    return {"W": evidence.n} if _are_times(evidence, evidence.n) else None


def mean_for_sum(evidence: Evidence) -> Words | None:
    if evidence.facts.op not in (None, "SUM") or evidence.reduces("AVG"):
        return None
    return {"W": evidence.n} if _are_times(evidence, 1 / evidence.n) else None


def divided_by_all_ranks(evidence: Evidence) -> Words | None:
    everybody = evidence.facts.world_size
    if everybody in (None, evidence.n) or not _asked_for(evidence, "AVG"):
        return None
    assert everybody is not None
    told = _are_times(evidence, evidence.n / everybody)
    return {"all": everybody, "W": evidence.n} if told else None


def divided_by_two(evidence: Evidence) -> Words | None:
    if evidence.n == 2 or not _asked_for(evidence, "AVG"):
        return None
    return {"W": evidence.n} if _are_times(evidence, evidence.n / 2) else None


def divided_twice(evidence: Evidence) -> Words | None:
    if not _asked_for(evidence, "AVG") or divided_by_all_ranks(evidence) is not None:
        return None
    return {"W": evidence.n} if _are_times(evidence, 1 / evidence.n) else None


def divided_at_every_hop(evidence: Evidence) -> Words | None:
    """A mean of means: what is added late weighs more than what is added early."""
    n = evidence.n
    if n <= 2 or not evidence.reduces("AVG"):
        return None
    for divisor in (2, n):
        if all(bool(_fits_hops(evidence, one, divisor).all()) for one in evidence.wrong):
            elements = sum(min(int(one.at.sum()), _LOOKED_AT) for one in evidence.wrong)
            if not evidence.is_chance(elements * np.log(4 * n), elements):
                return {"d": divisor, "W": n}
    return None


def _fits_hops(evidence: Evidence, one: Wrong, divisor: int) -> Mask:
    """Which wrong elements are sums along a ring, in either direction, divided at every step."""
    looked_at = np.flatnonzero(one.at)[:_LOOKED_AT]
    terms = evidence.terms(one.place, one.actual.size)
    assert terms is not None
    terms = terms[:, looked_at]
    scale = np.abs(terms).sum(axis=0)
    fits = np.zeros(terms.shape[1], np.bool_)
    for ordered in _around_the_ring(terms):
        total = ordered[0]
        for term in ordered[1:]:
            total = (total + term) / divisor
        for mean in (total, total / evidence.n):  # divided once more at the end, perhaps
            fits |= evidence.close(one.actual[looked_at], mean, scale / evidence.n)
    return fits


def _around_the_ring(terms: Values) -> Iterator[Values]:
    for start in range(len(terms)):
        turned = np.roll(terms, -start, axis=0)
        yield turned
        yield turned[::-1]


def reduced_twice(evidence: Evidence) -> Words | None:
    told = evidence.reduces("SUM") and _are_times(evidence, evidence.n)
    return {"W": evidence.n} if told else None


def another_op(evidence: Evidence) -> Words | None:
    asked = evidence.facts.op
    if asked is None or not evidence.reduces(asked):
        return None
    others = ("MIN", "MAX", "PRODUCT", *(() if asked in ("SUM", "AVG") else ("SUM", "AVG")))
    found = [op for op in others if op != asked and _is_reduction(evidence, op)]
    if len(found) != 1 or _is_anybodys_input(evidence):
        return None
    if found[0] in ("MIN", "MAX") and _is_chance_choice(evidence):
        return None
    return {"other": found[0], "op": asked}


def _is_reduction(evidence: Evidence, op: str) -> bool:
    return _all_are(evidence, lambda terms: reduction(op, terms))


def _is_chance_choice(evidence: Evidence) -> bool:
    """Whether any choice of one rank's input for each element would often be the least of all."""
    return float(evidence.n) ** -evidence.independent_elements() > CHANCE


def _is_anybodys_input(evidence: Evidence) -> bool:
    places = range(evidence.n)
    return any(_all_are(evidence, lambda terms, k=k: terms[k]) for k in places)  # type: ignore[misc]


def _all_are(evidence: Evidence, candidate: Callable[[Values], Values]) -> bool:
    """Whether all wrong elements are what `candidate` makes of the ranks' terms [n, size]."""
    for one in evidence.wrong:
        terms = evidence.terms(one.place, one.actual.size)
        if terms is None:
            return False
        terms = terms[:, one.at]
        scale = np.maximum(np.abs(terms).sum(axis=0), np.abs(candidate(terms)))
        if not evidence.close(one.actual[one.at], candidate(terms), scale).all():
            return False
    return True


def integers_through_floats(evidence: Evidence) -> Words | None:
    for one in evidence.wrong:
        actual, expected = one.actual[one.at], one.expected[one.at]
        if actual.dtype.kind != "i" or expected.dtype.kind != "i":
            return None
        if not np.all(np.abs(actual - expected) <= np.abs(expected) // _SMALL):
            return None
    kept = {dtype: _kept(evidence, dtype) for dtype in (np.float32, np.float64)}
    return {} if any(actual == 1 and expected < 0.5 for actual, expected in kept.values()) else None


def _kept(evidence: Evidence, dtype: type[np.floating[Any]]) -> tuple[float, float]:
    """Of the wrong integers, and of what they should be, the part that the dtype can hold."""
    actual = np.concatenate([one.actual[one.at] for one in evidence.wrong])
    expected = np.concatenate([one.expected[one.at] for one in evidence.wrong])
    held, due = (float(np.mean(v.astype(dtype).astype(np.int64) == v)) for v in (actual, expected))
    return held, due


def sent_in_a_narrower_dtype(evidence: Evidence) -> Words | None:
    if evidence.wrong_elements() < _FEWEST_ROUNDED:
        return None
    if evidence.facts.op == "PRODUCT":  # whose rounding errors grow with the factors
        return None
    for dtype in (name for name, spacing in _NARROWER.items() if spacing > evidence.rounding):
        ways = (_is_rounded, _sums_of_rounded, _rounded_and_near)
        if any(all(way(evidence, one, dtype) for one in evidence.wrong) for way in ways):
            return {"dtype": dtype}
    return None


def _rounded(values: Values, dtype: str) -> Values:
    narrow = torch.from_numpy(np.ascontiguousarray(values, np.float64)).to(getattr(torch, dtype))
    return np.asarray(narrow.double().numpy()).astype(values.dtype)


def _sums_of_rounded(evidence: Evidence, one: Wrong, dtype: str) -> bool:
    """Whether it is the sum or mean of the rounded inputs, its own rounded or not."""
    terms = evidence.terms(one.place, one.actual.size)
    if terms is None or not (evidence.reduces("SUM") or evidence.reduces("AVG")):
        return False
    narrow = _rounded(terms, dtype)
    but_its_own = narrow.copy()
    but_its_own[one.place] = terms[one.place]
    op = "SUM" if evidence.reduces("SUM") else "AVG"
    return any(evidence.same(one.actual, reduction(op, some)) for some in (narrow, but_its_own))


def _is_rounded(evidence: Evidence, one: Wrong, dtype: str) -> bool:
    """Whether it is what it should be, rounded; where that is too large for the dtype, infinity."""
    return bool(np.array_equal(one.actual[one.at], _rounded(one.expected[one.at], dtype)))


def _rounded_and_near(evidence: Evidence, one: Wrong, dtype: str) -> bool:
    """Whether most wrong elements fit the narrower dtype, and all are near what they should be.

    Or their sums without the rank's own term do, which nobody need have sent.
    """
    times = evidence.n if evidence.reduces("AVG") else 1
    actual, expected = times * one.actual[one.at], times * one.expected[one.at]
    terms = evidence.terms(one.place, one.actual.size)
    scale, offsets = np.abs(expected), [np.zeros_like(expected)]
    if terms is not None and (evidence.reduces("SUM") or evidence.reduces("AVG")):
        scale = np.abs(terms).sum(axis=0)[one.at]
        offsets.append(terms[one.place, one.at])
    if not np.all(np.abs(actual - expected) <= _NARROWER[dtype] * scale):
        return False
    return any(_fit(actual - off, dtype) >= 0.5 > _fit(expected - off, dtype) for off in offsets)


def _fit(values: Values, dtype: str) -> float:
    """The part of the values that rounding to the dtype leaves as they are."""
    return float(np.mean(values == _rounded(values, dtype)))
