"""What a program did that may go wrong another time, with what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Set

from ..proving.verdict import name_ranks
from .trace import Operation, Trace, describe_operation, where

_ASYNCHRONOUS = {"send": "isend", "recv": "irecv"}
_CONSEQUENCES = {
    "send": "The message may be taken back before it has left.",
    "recv": "Whether the message has come is not known.",
}


def warnings(
    trace: Trace,
    finished: Set[int],
    deserted: Iterable[tuple[Operation, Operation]] = (),
) -> list[str]:
    """The warnings of one call, each said once, however often it applies.

    Args:
        finished: the ranks that finished; what others left open is no fault of theirs.
        deserted: operations that need a rank which had destroyed their group, each with the
            operation that destroyed it.
    """
    found: dict[tuple[str, str], list[int]] = {}
    for operation in trace.operations:
        for before, after in _misuses(operation, finished):
            found.setdefault((before, after), []).append(operation.rank)
    told = [
        f"{name_ranks(sorted(set(ranks)))}: {before}{_times(len(ranks), len(set(ranks)))}{after}"
        for (before, after), ranks in found.items()
    ]
    needed: dict[tuple[str, int, str], list[int]] = {}
    for operation, destroyed in deserted:
        told_alike = where(destroyed), destroyed.rank, describe_operation(operation)
        needed.setdefault(told_alike, []).append(operation.rank)
    told += [
        f"rank {who} destroyed a process group ({line}) while {name_ranks(sorted(set(ranks)))} "
        f"needed it in {what}. Destroy a group only when all its ranks have finished with it; a "
        "barrier before it makes sure."
        for (line, who, what), ranks in needed.items()
    ]
    return told


def _misuses(operation: Operation, finished: Set[int]) -> Iterable[tuple[str, str]]:
    """What was wrong with one operation: in words, before and after the number of times."""
    name = _described(operation)
    if operation.changed is not None:
        yield (
            f"the buffer of {name} was changed before wait()",
            ". Its partner may get the old numbers or the new ones. wait() first, or use a "
            "clone() of it.",
        )
    seen = operation.waited is not None or operation.completed is not None
    if seen or operation.rank not in finished or operation.name.startswith("new_group"):
        return
    consequence = _CONSEQUENCES.get(operation.name, "Its result may not be there yet.")
    if operation.dropped is not None:
        yield (
            f"the handle of {name} was dropped without wait()",
            f". {consequence} Keep it, and call its wait().",
        )
    else:
        yield (
            f"{name} was still open when the function returned",
            f". {consequence} Call its wait().",
        )


def _described(operation: Operation) -> str:
    words = describe_operation(operation)
    name = _ASYNCHRONOUS.get(operation.name, f"{operation.name}(async_op=True)")
    return words.replace(operation.name, name, 1)


def _times(times: int, ranks: int) -> str:
    return f" ({times} times)" if times > ranks else ""
