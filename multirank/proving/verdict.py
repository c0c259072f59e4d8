"""What the ledger found, told to the person whose program it is: who waits for what, and why."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..recording.trace import Operation, describe_operation, where
from .agreement import Mismatch
from .ledger import Absent, Need, Stuck

WIDTH = 100  # characters of a line


@dataclass(frozen=True)
class Verdict:
    """Why a run was ended although its ranks were alive.

    kind: a proven deadlock, or operations that ought to fit each other and do not.
    ranks: whom it names. story: in words.
    """

    kind: Literal["deadlock", "mismatch"]
    ranks: tuple[int, ...]
    story: str


def deadlock(stuck: Sequence[Stuck]) -> Verdict:
    """The verdict on ranks that can never go on."""
    ranks = tuple(dict.fromkeys(one.operation.rank for one in stuck))
    alike: dict[tuple[str, str], list[int]] = {}
    for one in stuck:
        told = describe_operation(one.operation), _why(one)
        alike.setdefault(told, []).append(one.operation.rank)
    story = [f"Deadlock: {name_ranks(ranks)} can never go on."]
    story += [
        f"  {name_ranks(who)} {_verb(who, 'waits', 'wait')} in {what}: {why}"
        for (what, why), who in alike.items()
    ]
    story.append(f"The usual cause: {_usual_cause(stuck)}")
    return Verdict("deadlock", ranks, "\n".join(map(wrap, story)))


def mismatch(found: Mismatch) -> Verdict:
    """The verdict on partners that do not fit."""
    ranks = tuple(operation.rank for operation in found.operations)
    alike: dict[str, list[int]] = {}
    for one in found.operations:
        told = ", ".join([describe_operation(one), *_details(one)])
        alike.setdefault(told, []).append(one.rank)
    story = [f"Mismatch: {name_ranks(ranks)} do not agree on the {found.what}."]
    story += [
        f"  {name_ranks(who)} {_verb(who, 'calls', 'call')} {told}" for told, who in alike.items()
    ]
    if found.operations[0].name in ("send", "recv"):
        story.append("Both sides of a message need the same number of elements and the same dtype.")
    elif found.what == "operation":
        story.append(
            "All ranks of a group must call its collectives in the same order. The usual cause: a "
            "branch on the rank, or on data that differs between ranks."
        )
    elif found.what == "group":
        story.append(
            "Every rank must call new_group for every group, whether it is a member or not, and "
            "all in the same order."
        )
    else:
        story.append(f"All ranks of a group must give a collective the same {found.what}.")
    return Verdict("mismatch", ranks, "\n".join(map(wrap, story)))


def name_ranks(ranks: Iterable[int]) -> str:
    """Ranks in words: "rank 3", or "ranks 0, 1 and 2"."""
    first = list(ranks)
    last = first.pop()
    return f"ranks {', '.join(map(str, first))} and {last}" if first else f"rank {last}"


def _verb(ranks: Sequence[int], singular: str, plural: str) -> str:
    return singular if len(ranks) == 1 else plural


def wrap(line: str) -> str:
    """A line of a story, on several where it is long."""
    return textwrap.fill(
        line,
        WIDTH,
        subsequent_indent="      " if line.startswith(" ") else "",
        break_long_words=False,
        break_on_hyphens=False,
    )


# ---------------------------------------------------------------- deadlock


def _why(stuck: Stuck) -> str:
    """Why nobody serves the operation, in words."""
    operation, need = stuck.operation, stuck.need
    if need.withdrawn and need.dropped:
        return (
            f"rank {need.dropped.rank} sent it with isend ({where(need.dropped)}), but dropped the "
            "handle without wait(), and that takes the message back"
        )
    if need.any_will_do:
        return "no rank has sent it, and none is left that could"
    alike: dict[str, list[Absent]] = {}
    for one in need.absent:
        alike.setdefault(one.state, []).append(one)
    verb = {"send": "received", "recv": "sent"}.get(operation.name, "entered")
    reasons = [_absence(some, verb) for some in alike.values()]
    reasons += [_elsewhere(one.elsewhere, operation) for one in need.absent if one.elsewhere]
    if need.dropped:
        reasons.append(
            f"the irecv before it ({where(need.dropped)}), whose handle was dropped without "
            "wait(), has taken a message"
        )
    return "; ".join(reasons)


def _absence(alike: Sequence[Absent], verb: str) -> str:
    """Why some ranks have not begun their part; all for the same reason."""
    ranks = [one.rank for one in alike]
    who, have = name_ranks(ranks), _verb(ranks, "has", "have")
    if alike[0].gone:
        return f"{who} {have} {alike[0].state} and never {verb} it"
    if alike[0].state == "waits":
        return f"{who} {have} not {verb} it; {_verb(ranks, 'it waits', 'they wait')}, too"
    return f"{who} {have} not {verb} it yet"


def _elsewhere(other: Operation, operation: Operation) -> str:
    """The message that may have been meant."""
    what = {"send": "sends", "recv": "receives"}[other.name]
    if other.group_name == operation.group_name:
        return f"it {what} with tag {other.tag} ({where(other)}), and this is tag {operation.tag}"
    return (
        f"it {what} in the group {list(other.group)} ({where(other)}), and this is in "
        f"{list(operation.group)}"
    )


def _usual_cause(stuck: Sequence[Stuck]) -> str:
    """A guess from the pattern."""
    needs = [one.need for one in stuck]
    names = {one.operation.name for one in stuck}
    if any(need.withdrawn for need in needs):
        return (
            "the handle that isend returns must be kept, and waited for, until the message is gone."
        )
    if any(need.dropped for need in needs):
        return "the handle of an irecv must be kept, and waited for; it has taken the message."
    if names & {"init_process_group"}:
        return "a process that did not start, or did not call init_process_group."
    if names & {"new_group"}:
        return (
            "every rank must call new_group for every group, whether it is a member or not, and "
            "all in the same order."
        )
    if any("destroyed" in absent.state for need in needs for absent in need.absent):
        return "a rank destroyed the group while others still needed it."
    if any(need.any_will_do for need in needs):
        return "more receives from any rank than sends, or sends that come only after them."
    if names <= {"send", "recv"}:
        return _cause_of_messages(stuck, needs, names)
    if names & {"send", "recv"}:
        return (
            "one side is in a collective, the other in a send or recv: they do the same things in "
            "different orders, or take different branches."
        )
    if _ring(needs):
        return "the ranks call collectives of several groups in different orders."
    return (
        "a branch on the rank around a collective that all ranks of the group must call, loops of "
        "different lengths, or group= left out."
    )


def _cause_of_messages(stuck: Sequence[Stuck], needs: Sequence[Need], names: set[str]) -> str:
    elsewhere = [
        (one.operation, absent.elsewhere)
        for one in stuck
        for absent in one.need.absent
        if absent.elsewhere
    ]
    if any(operation.group_name != other.group_name for operation, other in elsewhere):
        return (
            "a send in one group and its recv in another: group= was left out, or is the wrong one."
        )
    if elsewhere:
        return "a send and its recv with different tags, or in different orders."
    if not _ring(needs):
        return (
            "one side's loop is longer than the other's, it names the wrong rank, or takes another "
            "branch."
        )
    if names == {"recv"}:
        return (
            "everybody receives before anybody sends. Let some ranks send first, or use isend and "
            "irecv together."
        )
    if names == {"send"}:
        return (
            "everybody sends before anybody receives; a blocking send waits for its receiver. Let "
            "some ranks receive first, or use isend and irecv together."
        )
    return (
        "the ranks do their sends and receives in different orders. What one does next must be the "
        "partner of what the other does next; or give them all to batch_isend_irecv."
    )


def _ring(needs: Sequence[Need]) -> bool:
    """Whether they wait for one another, and for nobody else."""
    return all(absent.state == "waits" for need in needs for absent in need.absent)


# ---------------------------------------------------------------- mismatch


def _details(operation: Operation) -> list[str]:
    """What may differ between partners."""
    told = [f"{operation.dtype}{list(operation.shape)}"] if operation.dtype else []
    if operation.reduce_op:
        told.append(operation.reduce_op)
    return [*told, f"group {list(operation.group)}"]
