"""What the ledger found, told to the person whose program it is: who waits for what, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .ledger import Mismatch, Stuck
from .trace import Operation, describe_operation


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
    lines = [
        f"  rank {one.operation.rank} waits in {describe_operation(one.operation)}: {one.need.why}"
        for one in stuck
    ]
    who = _ranks(ranks)
    story = [f"Deadlock: {who} can never go on.", *lines]
    if cause := _usual_cause(stuck):
        story.append(f"The usual cause: {cause}")
    return Verdict("deadlock", ranks, "\n".join(story))


def mismatch(found: Mismatch) -> Verdict:
    """The verdict on two partners that do not fit."""
    first, second = found.first, found.second
    story = [
        f"Mismatch: rank {first.rank} and rank {second.rank} do not agree on the {found.what}.",
        *(
            f"  rank {one.rank} calls {describe_operation(one)}, {_details(one)}"
            for one in (first, second)
        ),
    ]
    if first.name in ("send", "recv"):
        story.append("Both sides of a message need the same number of elements and the same dtype.")
    elif found.what == "operation":
        story.append(
            "All ranks of a group must call its collectives in the same order. The usual cause: a "
            "branch on the rank, or on data that differs between ranks."
        )
    elif found.what == "group":
        story.append("All ranks must call new_group for the same groups, in the same order.")
    else:
        story.append(f"All ranks of a group must give a collective the same {found.what}.")
    return Verdict("mismatch", (first.rank, second.rank), "\n".join(story))


def _details(operation: Operation) -> str:
    """What may differ between partners."""
    told = [f"{operation.dtype}{list(operation.shape)}"] if operation.dtype else []
    if operation.reduce_op:
        told.append(operation.reduce_op)
    return ", ".join([*told, f"group {list(operation.group)}"])


def _usual_cause(stuck: Sequence[Stuck]) -> str:
    """A guess from the pattern; empty where there is no usual one."""
    doomed = {one.operation.rank for one in stuck}
    names = {one.operation.name for one in stuck}
    among_themselves = all(set(one.need.ranks) <= doomed for one in stuck)
    if any(one.need.quantifier == "never" for one in stuck):
        return (
            "the handle that isend returns must be kept, and waited for, until the message is gone."
        )
    if any("tag" in one.need.why for one in stuck):
        return "a send and its recv with different tags."
    if among_themselves and names == {"recv"}:
        return (
            "everybody receives before anybody sends. Let some ranks send first, or use isend and "
            "irecv together."
        )
    if among_themselves and names == {"send"}:
        return (
            "everybody sends before anybody receives; a blocking send waits for its receiver. Let "
            "some ranks receive first, or use isend and irecv together."
        )
    if names & {"send", "recv"} and not names - {"send", "recv"}:
        return "one side's loop is longer than the other's, or a rank takes another branch."
    return "a branch on the rank around a collective that all ranks of the group must call."


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(str(rank) for rank in ranks[:-1])} and {ranks[-1]}"
