"""Right values in the wrong place: another part's, another rank's, or missing at the end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .copies import Words
from .evidence import Evidence, Values, reduction


def chunk_shifted(evidence: Evidence) -> Words | None:
    told = any(
        _shifted_within(evidence, step) or _shifted_across(evidence, step) for step in (1, -1)
    )
    return {} if told else None


def _shifted_within(evidence: Evidence, step: int) -> bool:
    n = evidence.n
    return all(
        one.actual.size % n == 0
        and evidence.same(one.actual, np.roll(one.expected, step * (one.actual.size // n)))
        for one in evidence.wrong
    )


def _shifted_across(evidence: Evidence, step: int) -> bool:
    wrong = evidence.wrong
    return len(wrong) > 1 and all(
        evidence.same(one.actual, evidence.expected[(one.place + step) % evidence.n])
        for one in wrong
    )


def _whose_results(evidence: Evidence) -> list[int] | None:
    """For each wrong rank, the one rank whose right result it holds."""
    found = []
    for one in evidence.wrong:
        owners = [
            place
            for place, _, wanted in evidence.pairs
            if place != one.place and evidence.same(one.actual, wanted)
        ]
        if len(owners) != 1:
            return None
        found += owners
    return found


def one_result_for_all(evidence: Evidence) -> Words | None:
    owners = set(_whose_results(evidence) or [])
    holders = owners | {one.place for one in evidence.wrong}
    if len(owners) != 1 or holders != {place for place, _, _ in evidence.pairs}:
        return None
    return {"k": evidence.name(*owners)}


def anothers_result(evidence: Evidence) -> Words | None:
    owners = _whose_results(evidence)
    if owners is None:
        return None
    told = [
        f"rank {evidence.name(one.place)} holds what rank {evidence.name(owner)} should"
        for one, owner in zip(evidence.wrong, owners, strict=True)
    ]
    return {"what": told[0] + (", and so on" if len(told) > 1 else "")}


def parts_in_wrong_order(evidence: Evidence) -> Words | None:
    """Every wrong part of every wrong rank is another part of its result, or still unwritten."""
    first, wrong_parts = None, 0
    for one in evidence.wrong:
        cuts = _cuts(evidence, one.place, one.actual.size)
        held, due = np.split(one.actual, cuts), np.split(one.expected, cuts)
        before = evidence.before[one.place]
        left = None if before is None else np.split(before, cuts)
        for i, part in enumerate(held):
            if evidence.same(part, due[i]):
                continue
            if left is not None and evidence.same(part, left[i]):
                continue
            owners = [j for j, other in enumerate(due) if j != i and evidence.same(part, other)]
            if not owners:
                return None
            wrong_parts += 1
            first = first or {"r": evidence.name(one.place), "i": i, "j": owners[0]}
    elements = evidence.wrong_elements()
    if evidence.is_chance(wrong_parts * np.log(evidence.n), elements):
        return None
    return first


def _cuts(evidence: Evidence, place: int, size: int) -> list[int]:
    """Where the parts of a result begin, all but the first."""
    splits = evidence.facts.splits
    sizes: Sequence[int]
    rows = sum(one[place] for one in splits) if splits else 0
    if splits and rows:
        sizes = [one[place] * (size // rows) for one in splits]
    else:
        sizes = [len(part) for part in np.array_split(np.arange(size), evidence.n)]
    return [int(cut) for cut in np.cumsum(sizes)[:-1]]


def along_the_last_dimension(evidence: Evidence) -> Words | None:
    """Matrices that are joined (all_gather) or cut (reduce_scatter) along the wrong dimension."""
    for one in evidence.wrong:
        shape = evidence.input_shapes[one.place]
        if shape is None or len(shape) < 2:
            return None
        if one.actual.size == evidence.n * int(np.prod(shape)):
            parts = [given for given in evidence.inputs if given is not None and given.size]
            if any(given.size != one.actual.size // evidence.n for given in parts):
                return None
            wanted = np.concatenate([given.reshape(shape) for given in parts], axis=-1)
        elif (wholes := _reduced(evidence)) is not None and shape[-1] % evidence.n == 0:
            wanted = np.split(wholes.reshape(shape), evidence.n, axis=-1)[one.place]
        else:
            return None
        if not evidence.same(one.actual, wanted.ravel()):
            return None
    return {}


def _reduced(evidence: Evidence) -> Values | None:
    """What the parts of a reduce_scatter's result are cut from."""
    op = evidence.facts.op or "SUM"
    known = [given for given in evidence.inputs if given is not None]
    if evidence.facts.function != "reduce_scatter" or len(known) < evidence.n:
        return None
    return reduction(op, np.array(known))


def part_for_another(evidence: Evidence) -> Words | None:
    """all_to_all: every wrong part is what its sender has for somebody else."""
    if evidence.facts.function != "all_to_all":
        return None
    first, wrong_parts = None, 0
    for one in evidence.wrong:
        cuts = _cuts(evidence, one.place, one.actual.size)
        held, due = np.split(one.actual, cuts), np.split(one.expected, cuts)
        for source, part in enumerate(held):
            if evidence.same(part, due[source]):
                continue
            meant = _parts_of_input(evidence, source)
            others = [
                to
                for to, other in enumerate(meant)
                if to != one.place and evidence.same(part, other)
            ]
            if not others:
                return None
            wrong_parts += 1
            names = {"r": one.place, "source": source, "to": others[0]}
            first = first or {name: evidence.name(place) for name, place in names.items()}
    elements = evidence.wrong_elements()
    if evidence.is_chance(wrong_parts * np.log(evidence.n), elements):
        return None
    return first


def _parts_of_input(evidence: Evidence, source: int) -> list[Values]:
    given, splits = evidence.inputs[source], evidence.facts.splits
    if given is None:
        return []
    if splits is None:
        return np.array_split(given, evidence.n)
    rows = max(sum(splits[source]), 1)
    return np.split(given, np.cumsum([some * (given.size // rows) for some in splits[source]])[:-1])


def tail_missing(evidence: Evidence) -> Words | None:
    """All elements from one on are wrong, where a remainder begins that does not divide."""
    n = evidence.n
    starts = {int(np.argmax(one.at)) for one in evidence.wrong}
    sizes = {one.at.size for one in evidence.wrong}
    if len(starts) != 1 or len(sizes) != 1:
        return None
    (start,), (size,) = starts, sizes
    if not all(one.at[start:].all() for one in evidence.wrong):
        return None
    short, long = size // n, -(-size // n)
    if short == long or start not in (short * n, long * (n - 1)) or start == 0:
        return None
    return {"tail": size - start, "size": size, "W": n}
