"""Whether operations that belong together fit each other."""

from __future__ import annotations

from dataclasses import dataclass

from ..recording.trace import Operation

_ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
_SAME_SIZE = _ROOTED | {"all_reduce", "all_gather", "reduce_scatter"}


@dataclass(frozen=True)
class Mismatch:
    """Operations that ought to be partners and do not fit, by rank: `what` differs."""

    what: str
    operations: tuple[Operation, ...]


def difference(first: Operation, second: Operation) -> str:
    """In what two partners differ, in words; empty when they fit."""
    if first.name in ("send", "recv"):
        if first.dtype != second.dtype:
            return "dtype"
        return "" if first.nbytes == second.nbytes else "size"
    if (first.name, first.variant) != (second.name, second.variant):
        return "operation"
    if first.group != second.group:
        return "group"
    if first.name in _ROOTED and first.peer != second.peer:
        return "root"
    if first.reduce_op != second.reduce_op:
        return "reduce operation"
    if first.dtype != second.dtype:
        return "dtype"
    if first.name in _SAME_SIZE and _size(first) != _size(second):
        return "size"
    return ""


def _size(operation: Operation) -> int:
    """Bytes that must be the same on all ranks; the root of a gather has everybody's."""
    if operation.name in ("gather", "scatter") and operation.rank == operation.peer:
        return operation.nbytes // max(len(operation.group), 1)
    return operation.nbytes
