"""Runs your functions on several ranks, and fails a test with words where something is wrong.

`run` deals with what any function can do wrong: not written, raising, hanging, dying. `Check` looks
at the collectives: their results, the tensors they must leave alone, what they communicate with and
how much they move.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

import pytest

import multirank
from multirank import Ending, Operation, Run, World

from . import calls as rank_side
from .calls import Arguments, Call, call_label
from .explain import WrongTensor, describe, guesses, listed, megabytes, source_place, tell, tensors

DEADLINE = 10.0  # seconds; the calls here take a fraction of one
# Above the bound by more than this, a function loses points for cost.
COST_LIMIT = 1.05


def fail(headline: str, details: Iterable[str] = (), guessed: Iterable[str] = ()) -> NoReturn:
    """Fails the test with a message and without a traceback."""
    lines = [headline, *(f"  {line}" for line in details)]
    lines += [f"  consistent with {guess}" for guess in list(guessed)[:2]]
    pytest.fail("\n".join(lines), pytrace=False)


# --- Running ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subject:
    """What is tested: a module of a package, which is imported on the ranks only."""

    package: str
    module: str

    @property
    def file(self) -> str:
        return f"{self.package}/{self.module}.py"


def run(
    subject: Subject,
    world: World,
    function: Callable[..., Any],
    *args: Any,
    calls: Sequence[Call] = (),
) -> Run:
    """Calls `function(package, module, *args)` on the ranks of the world; fails unless all finish.

    calls: what the ranks do, for messages; they mark each with its `call_label`.
    """
    __tracebackhide__ = True
    done = world.call(
        function, subject.package, subject.module, *args, timeout=DEADLINE, check=False
    )
    if not done.ok:
        _fail_unfinished(subject, done, calls)
    return done


def _fail_unfinished(subject: Subject, run: Run, calls: Sequence[Call]) -> NoReturn:
    order = (Ending.DIED, Ending.RAISED, Ending.TIMED_OUT)
    first = min(
        (rank for rank in run.ranks if rank.ending in order),
        key=lambda rank: (order.index(rank.ending or Ending.DIED), rank.rank),
    )
    number = current_call(run, first.rank)
    call = calls[number] if calls and number is not None else None
    name = call.function if call is not None else subject.file
    for exception in (rank.exception for rank in run.ranks):
        unwritten = exception and re.search(r"(\w+): not written yet", exception.message)
        if unwritten:
            fail(f"{unwritten[1]} is not written yet: implement it in {subject.file}")
    where = f"rank {first.rank} of {run.world_size}"
    if first.ending is Ending.TIMED_OUT:
        headline = f"{name} does not come to an end on {run.world_size} ranks."
    elif first.ending is Ending.RAISED and first.exception is not None:
        headline = f"{name} raises {first.exception.type} on {where}."
    else:
        headline = f"{name} ends the process of {where}."
    details = [f"called: {describe(call, first.rank)}"] if call is not None else []
    fail(headline, [*details, *_story(run)], _why_unfinished(run, call))


def _story(run: Run) -> list[str]:
    """The run's story, less the lines that are about this folder."""
    own = str(Path(__file__).parent)
    lines: list[str] = []
    hidden_below: int | None = None
    for line in run.story.splitlines():
        indent = len(line) - len(line.lstrip())
        if hidden_below is not None and indent > hidden_below:
            continue
        hidden_below = indent if own in line else None
        if hidden_below is None:
            lines.append(line)
    return lines


def _why_unfinished(run: Run, call: Call | None) -> Iterable[str]:
    stuck = [rank.rank for rank in run.ranks if rank.ending is Ending.TIMED_OUT]
    pending = {rank: run.trace.pending(rank) for rank in stuck}
    if len(stuck) > 1 and all(own and own[-1].name == "send" for own in pending.values()):
        yield (
            "everybody sending first: dist.send returns when the other side receives. Use "
            "dist.batch_isend_irecv, or let every second rank receive first"
        )
    for rank, own in pending.items():
        peer = own[-1].peer if own else None
        if peer is not None and run.ranks[peer].ending is Ending.FINISHED:
            other = "receive" if own[-1].name == "send" else "send"
            yield f"a missing {other}: rank {rank} waits for rank {peer}, which is done"
    if call is not None and call.group is not None:
        yield (
            "a place in the group being taken for a rank: dist.send and dist.recv want global "
            f"ranks, here {list(call.group)}"
        )


def current_call(run: Run, rank: int) -> int | None:
    """The number of the call that the rank was in, or the last that it was in."""
    labels = [mark.label for mark in run.trace.marks if mark.rank == rank]
    numbers = [int(label[5:]) for label in labels if re.fullmatch(r"call \d+", label)]
    return numbers[-1] if numbers else None


def operations(run: Run, rank: int, number: int) -> list[Operation]:
    """What the rank communicated during a call: from its mark to the next."""
    marks = [mark for mark in run.trace.marks if mark.rank == rank]
    begin = next((i for i, mark in enumerate(marks) if mark.label == call_label(number)), None)
    if begin is None:
        return []
    end = marks[begin + 1].time if begin + 1 < len(marks) else float("inf")
    return [op for op in run.trace.of_rank(rank) if marks[begin].time <= op.issued < end]


# --- Checking -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    """Checks calls of the collectives. Each check has fresh ranks."""

    subject: Subject

    def __call__(self, world_size: int, *calls: Call) -> None:
        """Makes the calls, one after another, and looks at every tensor of every rank."""
        __tracebackhide__ = True
        with self._world(world_size, calls) as world:
            self._perform(world, calls)

    def results(self, world_size: int, *calls: Call) -> list[list[Arguments]]:
        """Makes the calls; for each rank and call its tensors afterwards, which nobody judged."""
        __tracebackhide__ = True
        with self._world(world_size, calls) as world:
            done = run(self.subject, world, rank_side.perform, _by_rank(world, calls), calls=calls)
        _only_messages(self.subject, done, calls)
        return done.results

    def agrees_with_torch(self, world_size: int, *calls: Call) -> None:
        """Makes each call with torch.distributed too; what `after` names must be the same."""
        __tracebackhide__ = True
        with self._world(world_size, calls) as world:
            done = run(self.subject, world, rank_side.compare, _by_rank(world, calls), calls=calls)
        _only_messages(self.subject, done, calls)
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
        with self._world(world_size, [valid, *calls]) as world:
            self._perform(world, [valid])
            arguments = _by_rank(world, calls)
            done = world.call(
                rank_side.attempt,
                self.subject.package,
                self.subject.module,
                arguments,
                timeout=DEADLINE / 3,
                check=False,
            )
        for rank in range(world_size):
            _refused(done, rank, bad)
        if not done.ok:
            _fail_unfinished(self.subject, done, calls)

    def costs(
        self, world_size: int, call: Call, *, bound: float, whole: int, whole_name: str
    ) -> None:
        """Makes the call, and compares what the busiest rank moved with the bound.

        bound: in units of S. whole: S in bytes, the size of what `whole_name` names.
        """
        __tracebackhide__ = True
        with self._world(world_size, [call]) as world:
            done = self._perform(world, [call])
        element = next(iter(tensors(call.before[0]).values())).element_size()
        moved = [_Moved.by(done, rank) for rank in range(world_size)]
        busiest = max(moved, key=lambda one: one.nbytes)
        if busiest.nbytes <= COST_LIMIT * (bound * whole + busiest.messages * element):
            return
        ratio = busiest.nbytes / (bound * whole)
        each = "; ".join(f"rank {i} {one.in_megabytes}" for i, one in enumerate(moved))
        fail(
            f"{call.function} moves too much: rank {busiest.rank} {busiest.direction} "
            f"{busiest.nbytes / whole:.2f} S; the bound is {bound:.2f} S.",
            [
                f"called: {describe(call, busiest.rank)}, on {world_size} ranks",
                f"S, the size of {whole_name}, is {megabytes(whole)}; sent and received, in MiB: "
                f"{each}",
                f"{ratio:.2f} times the bound; all points for cost up to {COST_LIMIT} times",
            ],
            _why_so_much(moved, busiest, whole),
        )

    def separates(self, world_size: int, group: tuple[int, ...] | None = None) -> None:
        """Whether nobody leaves the barrier before the last has entered, whoever is last."""
        __tracebackhide__ = True
        members = list(group or range(world_size))
        barriers = [Call("barrier", {rank: {} for rank in members}, {}, group) for _ in members]
        late_by = 0.05
        with self._world(world_size, barriers) as world:
            done = run(
                self.subject,
                world,
                rank_side.pass_barriers,
                members,
                barriers[0].group_name,
                late_by,
                calls=barriers,
            )
        _only_messages(self.subject, done, barriers)
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

    def _world(self, world_size: int, calls: Iterable[Call]) -> World:
        groups = {call.group_name: call.group for call in calls if call.group is not None}
        return World(world_size, groups={name: ranks for name, ranks in groups.items() if name})

    def _perform(self, world: World, calls: Sequence[Call]) -> Run:
        __tracebackhide__ = True
        done = run(self.subject, world, rank_side.perform, _by_rank(world, calls), calls=calls)
        _only_messages(self.subject, done, calls)
        _right_values(calls, done.results, done)
        return done


def _by_rank(world: World, calls: Sequence[Call]) -> Any:
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
            for rank in range(world.world_size)
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
        wrong = min(found, key=lambda one: (one.is_read_only, one.rank))
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
            [*_never_waited_for(operations(done, wrong.rank, number)), *guesses(wrong)],
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

    @classmethod
    def by(cls, done: Run, rank: int) -> _Moved:
        own = operations(done, rank, 0)
        sent, received = ([op.nbytes for op in own if op.name == kind] for kind in ("send", "recv"))
        return cls(rank, sent, received)

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

    @property
    def in_megabytes(self) -> str:
        return f"{sum(self.sent) / 2**20:.4g} and {sum(self.received) / 2**20:.4g}"


def _why_so_much(moved: Sequence[_Moved], busiest: _Moved, whole: int) -> list[str]:
    if busiest.nbytes > 1.5 * median(one.nbytes for one in moved):
        return [
            f"one rank doing the others' work: rank {busiest.rank} moves far more than they do. "
            "Let all links carry data at the same time"
        ]
    if max(busiest.sizes) >= whole:
        return [
            f"the whole {megabytes(whole)} travelling in every message, where a part of it would do"
        ]
    return []
