"""Results that are somebody's input, an earlier result, or what lay there before."""

from __future__ import annotations

from typing import Any

import numpy as np

from .evidence import Evidence, Values, Wrong

Words = dict[str, Any]  # what a cause's sentence is filled in with


def is_copy(actual: Values, wanted: Values | None) -> bool:
    """Equal bit for bit, but for the sign of zero."""
    return wanted is not None and bool(np.array_equal(actual, wanted))


def _hold_their_own_input(evidence: Evidence) -> bool:
    return all(
        is_copy(one.actual, evidence.contribution(one.place, one.place, one.actual.size))
        for one in evidence.wrong
    )


def _hold_what_was_there(evidence: Evidence) -> bool:
    return all(is_copy(one.actual, evidence.before[one.place]) for one in evidence.wrong)


def _received(evidence: Evidence) -> list[bool]:
    """Of each wrong rank, whether it received anything; empty where that is not known.

    But for the root of a scatter, which need not.
    """
    known, scatters = evidence.facts.received, evidence.facts.function == "scatter"
    if known is None:
        return []
    return [
        known[one.place] for one in evidence.wrong if not (scatters and one.place == evidence.root)
    ]


def nothing_communicated(evidence: Evidence) -> Words | None:
    told = not any(_received(evidence)) and _hold_their_own_input(evidence)
    return {} if told else None


def _unchanged_though_received(evidence: Evidence) -> bool:
    received = _received(evidence)
    return bool(received) and all(received) and _hold_what_was_there(evidence)


def left_in_a_copy(evidence: Evidence) -> Words | None:
    told = _unchanged_though_received(evidence) and _hold_their_own_input(evidence)
    return {} if told else None


def left_in_a_copy_or_never_written(evidence: Evidence) -> Words | None:
    """An output beside the input, where only a tensor that is not contiguous needs a copy."""
    told = _unchanged_though_received(evidence) and evidence.facts.contiguous is False
    return {} if told else None


def received_left_out(evidence: Evidence) -> Words | None:
    received = _received(evidence)
    if not received or not all(received) or _hold_what_was_there(evidence):
        return None
    return {} if _hold_their_own_input(evidence) else None


def nothing_for_the_root(evidence: Evidence) -> Words | None:
    received, root = evidence.facts.received, evidence.root
    if evidence.facts.function not in ("reduce", "gather") or received is None or root is None:
        return None
    if received[root] or not any(received):
        return None
    return {"root": evidence.name(root)}


def _holder(evidence: Evidence) -> int | None:
    """The one rank whose input all wrong ranks hold, unless it is their own, or all zero."""
    wrong = evidence.wrong
    if not any(one.actual.any() for one in wrong):
        return None  # zeros are anybody's
    holders = [
        source
        for source in range(evidence.n)
        if all(
            is_copy(one.actual, evidence.contribution(source, one.place, one.actual.size))
            for one in wrong
        )
    ]
    if len(holders) != 1 or [one.place for one in wrong] == holders:
        return None
    return holders[0]


def wrong_root(evidence: Evidence) -> Words | None:
    root, found = evidence.root, None
    if root is None:
        return None
    if evidence.facts.function == "broadcast":
        found = _holder(evidence)
    elif evidence.facts.function == "reduce":
        found = _bystander_with_the_result(evidence, root)
    if found is None or found == root:
        return None
    return {"k": evidence.name(found), "root": evidence.name(root)}


def _bystander_with_the_result(evidence: Evidence, root: int) -> int | None:
    wanted = evidence.expected[root]
    held = evidence.bystanders
    if wanted is None or not evidence.wrong:
        return None
    found = [
        place
        for place, got in enumerate(held)
        if got is not None and place != root and evidence.same(got, wanted)
    ]
    return found[0] if len(found) == 1 and np.any(wanted) else None


def one_ranks_input(evidence: Evidence) -> Words | None:
    holder = _holder(evidence)
    return None if holder is None else {"k": evidence.name(holder)}


def stale(evidence: Evidence) -> Words | None:
    earlier = evidence.previous
    for back, results in enumerate(earlier):
        if all(_held_there(evidence, one, results[one.place]) for one in evidence.wrong):
            calls = len(earlier) - back
            when = "the call before" if calls == 1 else f"an earlier call, {calls} before this one,"
            return {"when": when}
    return None


def _held_there(evidence: Evidence, wrong: Wrong, earlier: Values | None) -> bool:
    """Whether the wrong elements are those of an earlier result, and of nothing nearer."""
    if earlier is None or earlier.shape != wrong.actual.shape:
        return False
    held = wrong.actual[wrong.at]
    before = evidence.before[wrong.place]
    lay_there = before is not None and is_copy(held, before[wrong.at])
    return is_copy(held, earlier[wrong.at]) and not lay_there


def untouched(evidence: Evidence) -> Words | None:
    left = [one.actual[one.at] for one in evidence.wrong]
    if all(not some.any() for some in left):
        return {"pattern": "are all zero"}
    if all(np.isnan(some).all() for some in left):
        return {"pattern": "are all NaN"}
    for one in evidence.wrong:
        before = evidence.before[one.place]
        if before is None or not is_copy(one.actual[one.at], before[one.at]):
            return None
    return {"pattern": "hold what they held before the call"}
