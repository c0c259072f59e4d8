"""Checks the collectives: their results, the tensors they must leave alone, what they communicate
with and how much they move. A check that fails says what is wrong, and what it is consistent with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

import multirank
from multirank import Ending, Operation, Run

from . import calls as rank_side
from .calls import Arguments, Call, group_name
from .cost import Complaint, Limit, complaint
from .explain import (
    WrongTensor,
    describe,
    likely_causes,
    listed,
    source_place,
    tell,
    tensors,
)
from .running import Subject, Worlds, fail, operations, require_finished


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

    def costs(self, world_size: int, limit: Limit, *calls: Call) -> None:
        """Makes the calls, one after another, until one costs no more than the limit allows.

        Of a later call that fails nothing is told: what costs too much may run into the deadline.
        """
        __tracebackhide__ = True
        complaints: list[Complaint] = []
        for call in calls:
            try:
                done = self._perform(world_size, [call])
            except pytest.fail.Exception:
                if not complaints:
                    raise
                break
            found = complaint(done, call, limit)
            if found is None:
                return
            complaints.append(found)
        least = min(complaints, key=lambda one: one.excess)
        fail(least.headline, least.details, least.guessed)

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
        unwaited = list(_never_waited_for(operations(done, wrong.rank, number)))
        received = [
            any(op.name == "recv" for op in operations(done, rank, number)) for rank in call.members
        ]
        causes = likely_causes(found, done.world_size, received, calls[:number])
        fail(
            f"{call.function} {what} {where}.",
            [
                f"called: {describe(call, wrong.rank)}",
                f"on {done.world_size} ranks, call {number + 1} of {len(calls)}{before}",
                *tell(wrong),
                *causes[: 2 - len(unwaited)],
            ],
            unwaited,
        )


def _wrong_tensors(call: Call, rank: int, outcome: Arguments) -> list[WrongTensor]:
    before = tensors(call.before[rank])
    wanted = before | tensors(call.after.get(rank, {}))
    held = tensors(outcome)
    found = [WrongTensor(call, rank, name, held[name], wanted[name]) for name in wanted]
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
