"""Runs your functions on several ranks, and fails a test with words where something is wrong.

`require_finished` deals with what any function can do wrong: not written, raising, hanging, dying.
`Check` looks at the collectives: their results, the tensors they must leave alone, what they
communicate with and how much they move.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

import pytest
import torch

import multirank
from multirank import Ending, Operation, Run, World

from . import calls as rank_side
from .calls import Arguments, Call, call_label, group_name
from .explain import WrongTensor, describe, guesses, listed, megabytes, source_place, tell, tensors

Group = tuple[int, ...]

# Seconds. The calls here take a fraction of one; a function that has hung is given less then.
DEADLINE, DEADLINE_AFTER_A_HANG = 10.0, 3.0
# Above the bound by more than this, a function loses points for cost.
COST_LIMIT = 1.05
# By world size; a world that has them serves most of the tests.
_USUAL_GROUPS: dict[int, set[Group]] = {2: {(1,)}, 4: {(1, 3), (0, 2, 3)}}


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


def require_finished(subject: Subject, done: Run, calls: Sequence[Call] = ()) -> None:
    """Fails unless all ranks finished.

    calls: what the ranks did, for messages; they mark each with its `call_label`.
    """
    __tracebackhide__ = True
    if not done.ok:
        _fail_unfinished(subject, done, calls)


def _fail_unfinished(subject: Subject, run: Run, calls: Sequence[Call]) -> NoReturn:
    order = (Ending.DIED, Ending.RAISED, Ending.TIMED_OUT, Ending.STOPPED)
    first = min(
        (rank for rank in run.ranks if rank.ending in order),
        key=lambda rank: (order.index(rank.ending or Ending.STOPPED), rank.rank),
    ).rank
    if run.verdict is not None:
        first = run.verdict.ranks[0]
    number = current_call(run, first)
    call = calls[number] if calls and number is not None else None
    name = call.function if call is not None else subject.file
    exception = run.ranks[first].exception
    for message in (rank.exception.message for rank in run.ranks if rank.exception):
        if unwritten := re.search(r"(\w+): not written yet", message):
            fail(f"{unwritten[1]} is not written yet: implement it in {subject.file}")
        if message == f"module '{subject.package}.{subject.module}' has no attribute '{name}'":
            fail(f"{subject.file} has no function {name}.")
    where = f"rank {first} of {run.world_size}"
    if run.verdict is not None:
        what = "hangs" if run.verdict.kind == "deadlock" else "sends what nobody expects"
        headline = f"{name} {what} on {run.world_size} ranks."
    elif exception is None:
        what = "does not come to an end" if run.ranks[first].ending is Ending.TIMED_OUT else "dies"
        headline = f"{name} {what} on {where}."
    elif number is None:
        headline = f"{subject.file} cannot be imported: {exception.type}."
    else:
        headline = f"{name} raises {exception.type} on {where}."
    details = [f"called: {describe(call, first)}"] if call is not None else []
    fail(headline, [*details, *_story(run)], _why_unfinished(run, call))


def _story(run: Run) -> list[str]:
    """The run's story, less the lines about this folder, torch and importing, and repetitions."""
    hidden = (str(Path(__file__).parent), str(Path(torch.__file__).parent), "importlib")
    lines: list[str] = []
    same: dict[str, list[int]] = {}
    hidden_below: int | None = None
    for line in run.story.splitlines():
        indent = len(line) - len(line.lstrip())
        if hidden_below is not None and indent > hidden_below:
            continue
        hidden_below = indent if any(part in line for part in hidden) else None
        if twin := re.match(r"rank (\d+) of \d+ raised \w+, as rank (\d+) did", line):
            same.setdefault(twin[2], []).append(int(twin[1]))
        elif hidden_below is None:
            lines.append(line)
    told = [f"{listed(ranks)} raised the same as rank {twin}" for twin, ranks in same.items()]
    return lines + told


def _why_unfinished(run: Run, call: Call | None) -> list[str]:
    said = "\n".join(
        rank.log + (rank.exception.message if rank.exception else "") for rank in run.ranks
    )
    if sizes := re.search(r"op.nbytes. (\d+) vs (\d+). Received data size", said):
        return [
            f"a message of {sizes[1]} bytes meeting a receive for {sizes[2]}: sender and receiver "
            "disagree on a size, or on the order of their messages"
        ]
    if lonely := next((op for op in run.trace.operations if op.peer == op.rank), None):
        place = source_place(lonely.file, lonely.line)
        return [f"rank {lonely.rank} being its own partner in a {lonely.name} ({place})"]
    named = re.search(r"destination rank|source rank|[Gg]lobal rank|not in list", said)
    if call is not None and call.group is not None and (run.verdict is not None or named):
        return [
            "a place in the group being taken for a rank: dist.send and dist.recv want global "
            f"ranks, here {list(call.group)}"
        ]
    return []


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


class Worlds:
    """Live ranks, which the checks of one function share, to save time.

    Those of a check that fails are not used again, and another function gets new ones: what one
    leaves lying around, such as a message that nobody received, cannot disturb another.
    """

    def __init__(self) -> None:
        self.deadline = DEADLINE
        self._function = ""
        self._worlds: dict[int, tuple[World, set[Group]]] = {}

    @contextlib.contextmanager
    def lend(self, world_size: int, calls: Sequence[Call]) -> Iterator[World]:
        """A world for these calls, for the length of a `with` block."""
        if calls[0].function != self._function:
            self.close()
            self._function = calls[0].function
            self.deadline = DEADLINE
        wanted = {call.group for call in calls if call.group is not None}
        world, groups = self._worlds.pop(world_size, (None, set()))
        if world is None or not wanted <= groups:
            if world is not None:
                world.close()
            groups = wanted | _USUAL_GROUPS.get(world_size, set())
            world = World(world_size, groups={group_name(group): group for group in groups})
        try:
            yield world
        except BaseException:
            world.close()
            raise
        self._worlds[world_size] = world, groups

    def close(self) -> None:
        """Ends all ranks."""
        for world, _ in self._worlds.values():
            world.close()
        self._worlds.clear()


@dataclass(frozen=True)
class Check:
    """Checks calls of the collectives."""

    subject: Subject
    worlds: Worlds

    def __call__(self, world_size: int, *calls: Call) -> None:
        """Makes the calls, one after another, and looks at every tensor of every rank."""
        __tracebackhide__ = True
        with self.worlds.lend(world_size, calls) as world:
            self._perform(world, calls)

    def results(self, world_size: int, *calls: Call) -> list[list[Arguments]]:
        """Makes the calls; for each rank and call its tensors afterwards, which nobody judged."""
        __tracebackhide__ = True
        with self.worlds.lend(world_size, calls) as world:
            done = self._run(world, calls, rank_side.perform, _by_rank(world, calls))
        return done.results

    def agrees_with_torch(self, world_size: int, *calls: Call) -> None:
        """Makes each call with torch.distributed too; what `after` names must be the same."""
        __tracebackhide__ = True
        with self.worlds.lend(world_size, calls) as world:
            done = self._run(world, calls, rank_side.compare, _by_rank(world, calls))
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
        with self.worlds.lend(world_size, [valid, *calls]) as world:
            self._perform(world, [valid])
            arguments = _by_rank(world, calls)
            done = self._call(world, rank_side.attempt, arguments)
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
        with self.worlds.lend(world_size, [call]) as world:
            done = self._perform(world, [call])
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
        with self.worlds.lend(world_size, barriers) as world:
            name = None if group is None else group_name(group)
            done = self._run(world, barriers, rank_side.pass_barriers, members, name, late_by)
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

    def _perform(self, world: World, calls: Sequence[Call]) -> Run:
        __tracebackhide__ = True
        done = self._run(world, calls, rank_side.perform, _by_rank(world, calls))
        _right_values(calls, done.results, done)
        return done

    def _run(
        self, world: World, calls: Sequence[Call], function: Callable[..., Any], *args: Any
    ) -> Run:
        """Calls a function that makes the calls; fails unless they use messages only and finish."""
        __tracebackhide__ = True
        done = self._call(world, function, *args)
        _only_messages(self.subject, done, calls)
        require_finished(self.subject, done, calls)
        return done

    def _call(self, world: World, function: Callable[..., Any], *args: Any) -> Run:
        subject, deadline = self.subject, self.worlds.deadline
        done = world.call(
            function, subject.package, subject.module, *args, timeout=deadline, check=False
        )
        if any(rank.ending is Ending.TIMED_OUT for rank in done.ranks):
            self.worlds.deadline = DEADLINE_AFTER_A_HANG
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
