"""Runs functions on several ranks, and says in words why they did not finish.

Ranks are shared: a world serves test after test, as long as everybody finishes and every message
is received. So no test sees what another has left lying around.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import reprlib
import signal
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from multirank import Ending, Operation, Run, Trace, World

from .calls import Call, call_label, group_name
from .explain import describe, listed, source_place

Group = tuple[int, ...]

# Seconds. The calls here take a fraction of one; a function that has hung is given less then.
DEADLINE, DEADLINE_AFTER_A_HANG = 10.0, 3.0
# By world size; a world that has them serves most of the tests.
_USUAL_GROUPS: dict[int, set[Group]] = {2: {(1,)}, 4: {(1, 3), (0, 2, 3)}}


def fail(headline: str, details: Iterable[str] = (), guessed: Iterable[str] = ()) -> NoReturn:
    """Fails the test with a message and without a traceback."""
    lines = [headline, *(f"  {line}" for line in details)]
    lines += [f"  consistent with {guess}" for guess in list(guessed)[:2]]
    # What it was found out by, such as a ValueError of the tested function, is in the lines.
    raise pytest.fail.Exception("\n".join(lines), pytrace=False) from None


@dataclass(frozen=True)
class Subject:
    """What is tested: a module of a package, which is imported on the ranks only."""

    package: str
    module: str

    @property
    def file(self) -> str:
        return f"{self.package}/{self.module}.py"


_hung: set[tuple[Subject, str]] = set()  # functions that did not come to an end


def _deadline(subject: Subject, function: str) -> float:
    return DEADLINE_AFTER_A_HANG if (subject, function) in _hung else DEADLINE


class _Endless(BaseException):
    """Raised in a function that takes too long; no `except Exception` of its own is in the way."""


def result(subject: Subject, function: str, arguments: Mapping[str, Any]) -> Any:
    """What a function returns that needs no ranks: it is called in this process."""
    __tracebackhide__ = True
    seconds = _deadline(subject, function)
    try:
        with _alarm(seconds):
            module = importlib.import_module(f"{subject.package}.{subject.module}")
            if not hasattr(module, function):
                fail(f"{subject.file} has no function {function}.")
            return getattr(module, function)(**arguments)
    except NotImplementedError:
        fail(f"{function} is not written yet: implement it in {subject.file}")
    except _Endless as endless:
        _hung.add((subject, function))
        told = ", ".join(f"{name}={reprlib.repr(value)}" for name, value in arguments.items())
        where = [
            f"after {seconds:g} s it was in {source_place(one.filename, one.lineno or 0)}: "
            f"{one.line}"
            for one in traceback.extract_tb(endless.__traceback__)
            if Path(one.filename).parent.name == subject.package
        ]
        fail(f"{function} does not come to an end.", [f"called: {function}({told})", *where[-1:]])


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raises _Endless where this takes longer. Python hears signals in its main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: object) -> NoReturn:
        raise _Endless

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Worlds:
    """Live ranks, by the size of their world."""

    def __init__(self) -> None:
        self._worlds: dict[int, tuple[World, set[Group]]] = {}

    def call(
        self,
        subject: Subject,
        world_size: int,
        calls: Sequence[Call],
        function: Callable[..., Any],
        *args: Any,
    ) -> Run:
        """Calls `function(package, module, *args)`, which makes these calls, on every rank."""
        world = self._world(world_size, {call.group for call in calls if call.group is not None})
        name = calls[0].function
        done = world.call(
            function,
            subject.package,
            subject.module,
            *args,
            timeout=_deadline(subject, name),
            check=False,
        )
        if any(rank.ending is Ending.TIMED_OUT for rank in done.ranks):
            _hung.add((subject, name))
        if not done.ok or not _settled(done.trace):
            world.close()
            del self._worlds[world_size]
        return done

    def close(self) -> None:
        """Ends all ranks."""
        for world, _ in self._worlds.values():
            world.close()
        self._worlds.clear()

    def _world(self, world_size: int, wanted: set[Group]) -> World:
        if world_size in self._worlds:
            world, groups = self._worlds[world_size]
            if wanted <= groups:
                return world
            world.close()
        groups = wanted | _USUAL_GROUPS.get(world_size, set())
        world = World(world_size, groups={group_name(group): group for group in groups})
        self._worlds[world_size] = world, groups
        return world


def _settled(trace: Trace) -> bool:
    """Whether everything that was begun has ended, and every message was received."""
    messages = [op for op in trace.operations if op.name in ("send", "recv")]
    sent = Counter((op.rank, op.peer, op.group) for op in messages if op.name == "send")
    received = Counter((op.peer, op.rank, op.group) for op in messages if op.name == "recv")
    return sent == received and all(op.completed is not None for op in trace.operations)


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
        default=run.ranks[0],  # all finished, with numbers that do not belong together
    ).rank
    if run.verdict is not None:
        first = run.verdict.ranks[0]
    number = current_call(run, first)
    call = calls[number] if calls and number is not None else None
    name = call.function if call is not None else subject.file
    exception = run.ranks[first].exception
    for message in (rank.exception.message for rank in run.ranks if rank.exception):
        if unwritten := re.search(r"([\w.]+): not written yet", message):
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
    stuck = run.verdict.ranks if run.verdict is not None else [first]
    fail(headline, [*_called(run, calls, stuck), *_story(run)], _why_unfinished(run, call, number))


def _called(run: Run, calls: Sequence[Call], ranks: Sequence[int]) -> list[str]:
    """What ranks are in, a line for each call; they need not all be in the same."""
    inside: dict[int, list[int]] = {}
    for rank in ranks:
        number = current_call(run, rank)
        if calls and number is not None:
            inside.setdefault(number, []).append(rank)
    return [
        f"called{f' on {listed(there)}' if len(inside) > 1 else ''}: "
        f"{describe(calls[number], there[0])}"
        for number, there in sorted(inside.items())
    ]


def _story(run: Run) -> list[str]:
    """The run's story, less repetitions and the frames of this folder, torch and importlib."""
    hidden = (str(Path(__file__).parent), str(Path(torch.__file__).parent), "importlib")
    lines: list[str] = []
    same: dict[str, list[int]] = {}
    hidden_below: int | None = None
    for line in run.story.splitlines():
        indent = len(line) - len(line.lstrip())
        if hidden_below is not None and indent > hidden_below:
            continue
        frame = re.match(r' *(File "|/)', line) is not None
        hidden_below = indent if frame and any(part in line for part in hidden) else None
        if twin := re.match(r"rank (\d+) of \d+ raised \w+, as rank (\d+) did", line):
            same.setdefault(twin[2], []).append(int(twin[1]))
        elif hidden_below is None:
            lines.append(line)
    told = [f"{listed(ranks)} raised the same as rank {twin}" for twin, ranks in same.items()]
    return [*_without_empty_headings(lines), *told]


def _without_empty_headings(lines: Sequence[str]) -> list[str]:
    """Without an "it had printed:" below which everything is hidden."""
    depths = [len(line) - len(line.lstrip()) for line in lines]
    return [
        line
        for line, depth, following in zip(lines, depths, [*depths[1:], 0], strict=True)
        if line.strip() != "it had printed:" or following > depth
    ]


def _why_unfinished(run: Run, call: Call | None, number: int | None) -> list[str]:
    said = "\n".join(
        rank.log + (rank.exception.message if rank.exception else "") for rank in run.ranks
    )
    sizes = re.search(r"op.nbytes. (\d+) vs (\d+). Received data size", said)
    messages = [op for op in run.trace.operations if op.name in ("send", "recv")]
    # A collective consists of messages, too, whose sizes are nobody's business but its own.
    if sizes and {int(sizes[1]), int(sizes[2])} <= {op.nbytes for op in messages}:
        return [
            f"a message of {sizes[1]} bytes meeting a receive for {sizes[2]}: sender and receiver "
            "disagree on a size, or on the order of their messages"
        ]
    lonely = next((op for op in messages if op.peer == op.rank), None)
    if lonely is not None and not _own_exception(run):
        place = source_place(lonely.file, lonely.line)
        return [f"rank {lonely.rank} being its own partner in a {lonely.name} ({place})"]
    if call is None or number is None:
        return []
    refused = re.search(r"destination rank|source rank|[Gg]lobal rank|not in list", said)
    if call.group is not None and (refused or _meets_strangers(run, call, number)):
        return [
            "a place in the group being taken for a rank: torch.distributed wants global ranks, "
            f"here {list(call.group)}"
        ]
    if "should not be the same as the rank of the current process" in said:
        return ["a rank being its own partner; what it already has it need not send"]
    return []


def _own_exception(run: Run) -> bool:
    """Whether ranks raised something, and none of it comes from torch.distributed."""
    tracebacks = [rank.exception.traceback for rank in run.ranks if rank.exception]
    return bool(tracebacks) and not any("distributed_c10d.py" in one for one in tracebacks)


def _meets_strangers(run: Run, call: Call, number: int) -> bool:
    """Whether a rank of the call's group sends to a rank outside, or receives from one."""
    done = [op for rank in call.members for op in operations(run, rank, number)]
    return any(op.peer is not None and op.peer not in call.members for op in done)


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
