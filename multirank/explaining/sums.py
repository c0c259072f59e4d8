"""Sums and means that lack a rank's contribution, count one twice, or take a wrong part of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..proving.verdict import name_ranks
from .copies import Words
from .evidence import Evidence, Mask, Values

_FEW_RANKS = 4  # among no more, all combinations of mistakes are tried
_LOOKED_AT = 64  # elements of each part


@dataclass(frozen=True, eq=False)
class _Sum:
    """The wrong elements of one rank, where a sum was asked for. A mean counts times n.

    held, due, scale: [m]; scale is the size of what is summed, for rounding.
    terms: [n, m] what each rank should have contributed.
    index: [m] where the elements are in the result, which has `size`.
    """

    place: int
    held: Values
    due: Values
    terms: Values
    scale: Values
    index: Values
    size: int


def _sums(evidence: Evidence) -> list[_Sum]:
    """One for each wrong rank; none where neither a sum nor a mean of the inputs was asked for.

    None either where most wrong elements are as near to the right sum as rounding large terms that
    cancel each other may bring them: then anything small seems to be missing, or too much.
    """
    if "sums" not in evidence.kept:
        found = list(_each_sum(evidence))
        near = [evidence.close(one.held, one.due, one.scale) for one in found]
        evidence.kept["sums"] = found if found and np.concatenate(near).mean() < 0.5 else []
    kept: list[_Sum] = evidence.kept["sums"]
    return kept


def _each_sum(evidence: Evidence) -> Iterator[_Sum]:
    factor = 1 if evidence.reduces("SUM") else evidence.n if evidence.reduces("AVG") else None
    if factor is None or evidence.n < 2:
        return
    for one in evidence.wrong:
        terms = evidence.terms(one.place, one.actual.size)
        assert terms is not None
        terms = terms[:, one.at]
        held, scale = one.actual[one.at] * factor, np.abs(terms).sum(axis=0)
        index = np.flatnonzero(one.at)
        yield _Sum(one.place, held, terms.sum(axis=0), terms, scale, index, one.at.size)


def _once_more(evidence: Evidence, one: _Sum, times: int) -> Mask:
    """[n, m]: which elements count a rank's contribution `times` more (-1: it is missing)."""
    fits = evidence.close(one.held, one.due + times * one.terms, one.scale)
    return np.asarray(fits & (one.terms != 0))  # nobody misses a zero


def _own(evidence: Evidence, times: int) -> Words | None:
    sums = _sums(evidence)
    told = len(sums) > 1 and all(_once_more(evidence, one, times)[one.place].all() for one in sums)
    return {} if told else None


def _one(evidence: Evidence, times: int) -> Words | None:
    fitting = [_once_more(evidence, one, times).all(axis=1) for one in _sums(evidence)]
    if not fitting:
        return None
    found = np.flatnonzero(np.all(fitting, axis=0))
    return {"k": evidence.name(int(found[0]))} if len(found) == 1 else None


def _different(evidence: Evidence, times: int) -> Words | None:
    sums = _sums(evidence)
    if not sums or not all(_once_more(evidence, one, times).any(axis=0).all() for one in sums):
        return None
    elements = sum(len(one.held) for one in sums)
    return None if evidence.is_chance(elements * math.log(evidence.n), elements) else {}


def own_missing(evidence: Evidence) -> Words | None:
    return _own(evidence, -1)


def one_missing(evidence: Evidence) -> Words | None:
    return _one(evidence, -1)


def different_missing(evidence: Evidence) -> Words | None:
    # Of two contributions one is missing where the other is all there is: that is no ring.
    return _different(evidence, -1) if evidence.n > 2 else None


def own_twice(evidence: Evidence) -> Words | None:
    return _own(evidence, 1)


def one_twice(evidence: Evidence) -> Words | None:
    return _one(evidence, 1)


def different_twice(evidence: Evidence) -> Words | None:
    return _different(evidence, 1)


def running_sum_passed_on(evidence: Evidence) -> Words | None:
    """Whether every rank passed all that it had summed up so far, n-1 times around a ring.

    The rank k places away is then counted as often as one can choose k of n-1.
    """
    sums = _sums(evidence)
    if not sums or evidence.n <= 2:
        return None
    weights = np.array([math.comb(evidence.n - 1, k) for k in range(evidence.n)])
    for step in (1, -1):
        if all(_are_weighted(evidence, one, weights, step) for one in sums):
            return {"times": evidence.n - 1}
    return None


def _are_weighted(evidence: Evidence, one: _Sum, weights: Values, step: int) -> bool:
    """Whether the rank k steps away is counted weights[k] times in all elements."""
    order = (one.place + step * np.arange(evidence.n)) % evidence.n
    counted = weights[:, None] * one.terms[order]
    wanted, scale = counted.sum(axis=0), np.abs(counted).sum(axis=0)
    return bool(evidence.close(one.held, wanted, scale).all())


def only_one(evidence: Evidence) -> Words | None:
    """Whether each wrong element is what one rank put in, with nothing added."""
    sums = _sums(evidence)
    if not sums or evidence.reduces("AVG"):
        return None
    for one in sums:
        if not evidence.close(one.held, one.terms, np.abs(one.terms)).any(axis=0).all():
            return None
    elements = sum(len(one.held) for one in sums)
    return None if evidence.is_chance(elements * math.log(evidence.n), elements) else {}


# --- Several mistakes in one sum ------------------------------------------------------------------

_Term = tuple[str, Values]  # a mistake, or "" for none, and what it contributes: [m]


def several_mistakes(evidence: Evidence) -> Words | None:
    """A combination of mistakes that holds for all of a part, in every part that is wrong."""
    if evidence.n > _FEW_RANKS:
        return None
    told, log_choices, elements = [], 0.0, 0
    for one in _sums(evidence):
        for number, part in enumerate(_parts(evidence, one)):
            inside = np.flatnonzero(np.isin(one.index, part))[:_LOOKED_AT]
            if len(inside) == 0:
                continue
            options = [_options(evidence, one, k, inside, number) for k in range(evidence.n)]
            chosen = _fitting(evidence, one, inside, options)
            if chosen is None:
                return None
            log_choices += sum(math.log(len(some)) for some in options)
            elements += len(inside)
            if any(chosen):  # within rounding, a wrong part may fit the right sum too
                told.append((one, inside, chosen))
    if not told or evidence.is_chance(log_choices, elements):
        return None
    one, inside, chosen = told[0]
    first, last = one.index[inside[0]], one.index[inside[-1]]
    where = f"elements {first} to {last}" if last > first else f"element {first}"
    return {"r": evidence.name(one.place), "where": where, "what": _in_words(evidence, chosen)}


def _parts(evidence: Evidence, one: _Sum) -> list[Values]:
    """The indices of each part that a ring works on: of a reduce_scatter's result, all."""
    parts = 1 if evidence.is_part(one.place, one.size) else evidence.n
    return np.array_split(np.arange(one.size), parts)


def _options(
    evidence: Evidence, one: _Sum, source: int, inside: Values, number: int
) -> list[_Term]:
    """What a rank may contribute to part `number` of a result, rightly or not."""
    own, n, size = one.terms[source, inside], evidence.n, one.size
    found = [("", own), ("missing", np.zeros_like(own)), ("counted twice", 2 * own)]
    given = evidence.inputs[source]
    if given is None or (size % n != 0 and given.size == size):
        return found
    is_part = evidence.is_part(one.place, size)
    step, right = (size, one.place) if is_part else (size // n, number)
    for part in range(n):
        if part != right:
            taken = given[one.index[inside] + (part - number) * step]
            found.append((f"taken from part {part}, where part {right} belongs", taken))
    return found


def _fitting(
    evidence: Evidence, one: _Sum, inside: Values, options: list[list[_Term]]
) -> tuple[str, ...] | None:
    """Each rank's mistake; those of the fewest in all that fit, unless two fit equally well."""
    totals: Values = np.zeros(len(inside), one.terms.dtype)
    for some in options:  # [a combination of those before, an option of this rank, an element]
        terms = np.array([term for _, term in some])
        totals = (totals.reshape(-1, 1, len(inside)) + terms).reshape(-1, len(inside))
    fits = np.all(evidence.close(one.held[inside], totals, one.scale[inside]), axis=-1)
    every = itertools.product(*([mistake for mistake, _ in some] for some in options))
    found = [chosen for chosen, fitting in zip(every, fits, strict=True) if fitting]
    fewest = min((_mistakes(chosen) for chosen in found), default=0)
    best = [chosen for chosen in found if _mistakes(chosen) == fewest]
    return best[0] if len(best) == 1 else None


def _mistakes(chosen: tuple[str, ...]) -> int:
    return sum(1 for mistake in chosen if mistake)


def _in_words(evidence: Evidence, chosen: tuple[str, ...]) -> str:
    """`rank 0's contribution is missing and those of ranks 1 and 2 are counted twice`."""
    ranks: dict[str, list[int]] = {}
    for place, mistake in enumerate(chosen):
        if mistake:
            ranks.setdefault(mistake, []).append(evidence.name(place))
    told = [
        f"rank {who[0]}'s contribution is {mistake}"
        if len(who) == 1
        else f"the contributions of {name_ranks(who)} are {mistake}"
        for mistake, who in ranks.items()
    ]
    return f"{', '.join(told[:-1])} and {told[-1]}" if len(told) > 1 else told[0]
