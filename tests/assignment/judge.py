"""Checks the collectives: their results, the tensors they must leave alone, what they communicate
with and how much they move. A check that fails says what is wrong, and what it is consistent with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import multirank
from multirank import Ending, Operation, Run

from . import calls as rank_side
from .calls import Arguments, Call, group_name
from .explain import WrongTensor, describe, guesses, listed, megabytes, source_place, tell, tensors
from .running import Subject, Worlds, fail, operations, require_finished

# Above the bound by more than this, a function loses points for cost.
COST_LIMIT = 1.05


@dataclass(frozen=True)
class Check:
    """Checks calls of the collectives."""

    subject: Subject
    worlds: Worlds

    def __call__(self, world_size: int, *calls: Call) -> None:
        """Makes the calls, one after another, and looks at every tensor of every rank."""
        __tracebackhide__ = True
        self._perform(world_size, calls)

    def results(self, world_size: int, *calls: Call) -> list[list[Arguments]]:
        """Makes the calls; for each rank and call its tensors afterwards, which nobody judged."""
        __tracebackhide__ = True
        done = self._run(world_size, calls, rank_side.perform, _by_rank(world_size, calls))
        return done.results

    def agrees_with_torch(self, world_size: int, *calls: Call) -> None:
        """Makes each call with torch.distributed too; what `after` names must be the same."""
        __tracebackhide__ = True
        done = self._run(world_size, calls, rank_side.compare, _by_rank(world_size, calls))
        expected = [
            replace(call, after=_taken_over(call, number, done))
            for number, call in enumerate(calls)
        ]
        _right_values(expected, [[both[1] for both in rank] for rank in done.results], done)

    def refuses(self, world_size: int, valid: Call, bad: Mapping[str, Call]) -> None:
        """Makes a call that must work, and then others that must raise ValueError at once.

        bad: what is wrong with each, and the call.
        """
        __tracebackhide__ = True
        calls = list(bad.values())
        self._perform(world_size, [valid])
        done = self.worlds.call(
            self.subject, world_size, calls, rank_side.attempt, _by_rank(world_size, calls)
        )
        for rank in range(world_size):
            _refused(done, rank, bad)
        require_finished(self.subject, done, calls)

    def costs(
        self, world_size: int, call: Call, *, bound: float, whole: int, whole_name: str
    ) -> None:
        """Makes the call, and compares what the busiest rank moved with the bound.

        bound: in units of S. whole: S in bytes, the size of what `whole_name` names.
        """
        __tracebackhide__ = True
        done = self._perform(world_size, [call])
        element = next(iter(tensors(call.before[0]).values())).element_size()
        moved = [_Moved.by(done, rank) for rank in range(world_size)]
        busiest = max(moved, key=lambda one: one.nbytes)
        if busiest.nbytes <= COST_LIMIT * (bound * whole + busiest.messages * element):
            return
        ratio = busiest.nbytes / (bound * whole)
        sent, received = (
            ", ".join(f"{sum(sizes) / 2**20:.4g}" for sizes in each)
            for each in ([one.sent for one in moved], [one.received for one in moved])
        )
        fail(
            f"{call.function} moves too much: rank {busiest.rank} {busiest.direction} "
            f"{busiest.nbytes / whole:.2f} S; the bound is {bound:.2f} S.",
            [
                f"called: {describe(call, busiest.rank)}, on {world_size} ranks",
                f"S, the size of {whole_name}, is {megabytes(whole)}",
                f"sent by ranks 0 to {world_size - 1}, in MiB: {sent}; received: {received}",
                f"{ratio:.2f} times the bound; all points for cost up to {COST_LIMIT} times",
            ],
            _why_so_much(call, moved, busiest, whole),
        )

    def separates(self, world_size: int, group: tuple[int, ...] | None = None) -> None:
        """Whether nobody leaves the barrier before the last has entered, whoever is last."""
        __tracebackhide__ = True
        members = list(group or range(world_size))
        barriers = [Call("barrier", {rank: {} for rank in members}, {}, group) for _ in members]
        late_by = 0.03  # seconds
        name = None if group is None else group_name(group)
        done = self._run(world_size, barriers, rank_side.pass_barriers, members, name, late_by)
        for number, late in enumerate(members):
            times = {rank: done.results[rank][number] for rank in members}
            entered = times[late][0]
            early = [rank for rank in members if times[rank][1] < entered]
            if early:
                seconds = entered - times[early[0]][1]
                fail(
                    f"barrier lets {listed(early)} out too early: rank {late} entered "
                    f"{seconds:.3f} s after rank {early[0]} had left.",
                    [f"called: {describe(barriers[0], late)} on ranks {members}"],
                    [f"a rank that leaves without having heard that rank {late} is there"],
                )

    def _perform(self, world_size: int, calls: Sequence[Call]) -> Run:
        __tracebackhide__ = True
        done = self._run(world_size, calls, rank_side.perform, _by_rank(world_size, calls))
        _right_values(calls, done.results, done)
        return done

    def _run(
        self, world_size: int, calls: Sequence[Call], function: Callable[..., Any], *args: Any
    ) -> Run:
        """Calls a function that makes the calls; fails unless they use messages only and finish."""
        __tracebackhide__ = True
        done = self.worlds.call(self.subject, world_size, calls, function, *args)
        _only_messages(self.subject, done, calls)
        require_finished(self.subject, done, calls)
        return done


def _by_rank(world_size: int, calls: Sequence[Call]) -> Any:
    """Gives each rank its own arguments only, and nobody what is expected."""
    return multirank.per_rank(
        [
            [
                replace(
                    call,
                    before={rank: call.before[rank]} if rank in call.before else {},
                    after={},
                )
                for call in calls
            ]
            for rank in range(world_size)
        ]
    )


def _taken_over(call: Call, number: int, done: Run) -> dict[int, Arguments]:
    """What `after` names, with the values that torch.distributed gave."""
    return {
        rank: {name: done.results[rank][number][0][name] for name in names}
        for rank, names in call.after.items()
    }


def _only_messages(subject: Subject, done: Run, calls: Sequence[Call]) -> None:
    """Fails if anything but send and receive was used."""
    __tracebackhide__ = True
    for number, call in enumerate(calls):
        for rank in call.members:
            for op in operations(done, rank, number):
                if op.name not in ("send", "recv"):
                    place = source_place(op.file, op.line)
                    fail(
                        f"{call.function} uses dist.{op.name}, at {place}.",
                        [
                            f"In {subject.file}, only dist.send, recv, isend, irecv and "
                            "batch_isend_irecv may communicate."
                        ],
                    )


def _right_values(
    calls: Sequence[Call], outcomes: Sequence[Sequence[Arguments]], done: Run
) -> None:
    """Fails if a tensor is not what it must be."""
    __tracebackhide__ = True
    for number, call in enumerate(calls):
        found = [
            wrong
            for rank in call.members
            for wrong in _wrong_tensors(call, rank, outcomes[rank][number])
        ]
        if not found:
            continue
        found.sort(key=lambda one: (one.is_read_only, one.rank))
        wrong = found[0]
        others = {one.rank for one in found if one.is_read_only == wrong.is_read_only}
        others.discard(wrong.rank)
        also = f" (and on {listed(sorted(others))})" if others else ""
        where = f"on rank {wrong.rank} of {done.world_size}{also}"
        what = f"changes {wrong.name}, which it must not," if wrong.is_read_only else "is wrong"
        before = "; the calls before it were right" if number > 0 else ""
        fail(
            f"{call.function} {what} {where}.",
            [
                f"called: {describe(call, wrong.rank)}",
                f"on {done.world_size} ranks, call {number + 1} of {len(calls)}{before}",
                *tell(wrong),
            ],
            [*_never_waited_for(operations(done, wrong.rank, number)), *guesses(found)],
        )


def _wrong_tensors(call: Call, rank: int, outcome: Arguments) -> list[WrongTensor]:
    before = tensors(call.before[rank])
    wanted = before | tensors(call.after.get(rank, {}))
    held = tensors(outcome)
    found = [
        WrongTensor(call, rank, name, before[name], held[name], wanted[name]) for name in wanted
    ]
    return [
        one
        for one in found
        if one.held.shape != one.wanted.shape
        or one.held.dtype != one.wanted.dtype
        or bool(one.wrong.any())
    ]


def _never_waited_for(done: Sequence[Operation]) -> Iterable[str]:
    for op in done:
        if op.waited is None and op.completed is None:
            place = source_place(op.file, op.line)
            yield f"an i{op.name} that nobody waited for ({place}): call wait() on its Work"
            return


def _refused(done: Run, rank: int, bad: Mapping[str, Call]) -> None:
    """Fails if this rank did not refuse all the bad calls, without a message."""
    __tracebackhide__ = True
    raised = done.results[rank] if done.ranks[rank].ending is Ending.FINISHED else []
    for number, (what, call) in enumerate(bad.items()):
        if rank not in call.before:
            continue
        told = [f"called: {describe(call, rank)}, on rank {rank} of {done.world_size}"]
        if number < len(raised) and raised[number] != "ValueError":
            instead = f"it raises {raised[number]}" if raised[number] else "nothing is raised"
            fail(f"{call.function} must raise ValueError for {what}, but {instead}.", told)
        if operations(done, rank, number):
            op = operations(done, rank, number)[0]
            fail(
                f"{call.function} must raise ValueError for {what} before it communicates, but "
                f"has a {op.name} at {source_place(op.file, op.line)}.",
                told,
            )


# --- What was moved -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Moved:
    """What one rank sent and received during the first call."""

    rank: int
    sent: list[int]
    received: list[int]
    dtypes: set[str | None]

    @classmethod
    def by(cls, done: Run, rank: int) -> _Moved:
        own = operations(done, rank, 0)
        sent, received = ([op.nbytes for op in own if op.name == kind] for kind in ("send", "recv"))
        return cls(rank, sent, received, {op.dtype for op in own})

    @property
    def direction(self) -> str:
        """The one in which it moved more."""
        return "sent" if sum(self.sent) >= sum(self.received) else "received"

    @property
    def sizes(self) -> list[int]:
        """Of the messages in that direction."""
        return self.sent if self.direction == "sent" else self.received

    @property
    def nbytes(self) -> int:
        return sum(self.sizes)

    @property
    def messages(self) -> int:
        return len(self.sizes)


def _why_so_much(call: Call, moved: Sequence[_Moved], busiest: _Moved, whole: int) -> list[str]:
    dtype = str(next(iter(tensors(call.before[busiest.rank]).values())).dtype)
    if other := {f"torch.{name}" for name in busiest.dtypes} - {dtype}:
        return [f"messages of {', '.join(sorted(other))}, where the tensor is {dtype}"]
    all_of_it = max(busiest.sizes) >= whole
    if all_of_it and call.function not in ("broadcast", "reduce", "all_reduce"):
        return [f"all {megabytes(whole)} travelling in a message, where a part of it would do"]
    if busiest.nbytes > 1.5 * median(one.nbytes for one in moved):
        return [
            f"rank {busiest.rank} serving the others one by one, while the links between them lie "
            "idle: let ranks pass on what they have got"
        ]
    if all_of_it:
        return [f"all {megabytes(whole)} travelling in every message, where a part would do"]
    return []
